"""Recompilations of compiled layers over packed batches of different counts and lengths."""

from __future__ import annotations

import random
import tempfile
from pathlib import Path

import torch
import torch.distributed as dist
from bench_report import Row
from torch._dynamo.utils import counters
from torch.distributed import HashStore  # type: ignore[attr-defined]
from torch.distributed.device_mesh import init_device_mesh

from rlt_api.blocks.model import Model
from rlt_trainer.batches.sequences import Sequences
from rlt_trainer.policy.log_probs import response_log_probs
from rlt_trainer.policy.model_files import prepare_model_files
from rlt_trainer.policy.sharded_model import ModelOptions, load_sharded_model

BATCHES = 50
MAX_RECOMPILATIONS = 2
MODEL = {"seed": 1, "hiddenSize": 64, "intermediateSize": 128, "numHiddenLayers": 2, "numAttentionHeads": 2}


def measure() -> Row:
    """Count the graphs after the first batch."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=0, world_size=1, store=HashStore())
    with tempfile.TemporaryDirectory() as folder:
        files = prepare_model_files(Model.model_validate({"fromSeed": MODEL}), Path(folder))
        options = ModelOptions(mesh=init_device_mesh("cpu", (1,)), dtype=torch.float32, packed=True, compiled=True)
        model = load_sharded_model("actor", files, options, response_log_probs)
    generator, graphs = random.Random(0), []
    for _ in range(BATCHES):
        rows = [[70] * generator.randint(1, 29) for _ in range(generator.randint(1, 12))]
        sequences = Sequences.pad([[50]] * len(rows), rows, pad_token_id=0)
        model(sequences, temperature=1.0, packed=True)[0].sum().backward()
        graphs.append(counters["stats"]["unique_graphs"])
    dist.destroy_process_group()
    recompilations = graphs[-1] - graphs[0]
    return Row(
        f"compile with packing: recompilations over {BATCHES} batches of different counts",
        f"at most {MAX_RECOMPILATIONS}",
        f"{recompilations} after {graphs[0]} graphs of the first batch",
        graphs[0] > 0 and recompilations <= MAX_RECOMPILATIONS,
        {"graphs": graphs},
    )


if __name__ == "__main__":
    print(measure())
