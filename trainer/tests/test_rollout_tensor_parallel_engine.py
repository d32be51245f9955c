"""A tensor-parallel engine on two ranks.

This file is also the program of one rank: `python test_rollout_tensor_parallel_engine.py CONFIG RANK PORT`.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rlt_api.training_config import TrainingConfig
from rlt_trainer.cluster.rendezvous import free_port

PROMPTS = [[[50, 51], [60]], []]
"""Prompts of each rank. The second has none, but takes part in the generation."""


@pytest.mark.slow
def test_two_ranks_share_an_engine_with_the_weights_of_the_policy(
    make_config: Callable[..., TrainingConfig], tmp_path: Path
) -> None:
    config = make_config(rollout={"engine": "vllm", "tensorParallelSize": 2})
    file = tmp_path / "training.json"
    file.write_text(config.model_dump_json(by_alias=True))
    command = [sys.executable, __file__, str(file)]
    port = str(free_port("127.0.0.1"))
    ranks = [subprocess.Popen([*command, str(rank), port], stdout=subprocess.PIPE, text=True) for rank in range(2)]
    outputs = [rank.communicate(timeout=300)[0] for rank in ranks]
    assert [rank.returncode for rank in ranks] == [0, 0]
    first, second = (json.loads(output.splitlines()[-1]) for output in outputs)
    assert max(first["difference"], second["difference"]) < 1e-4
    assert second["alone"] == []
    assert [len(tokens) for tokens in first["alone"]] == [5, 5]
    assert first["both"] == first["alone"]  # a response depends on its own seed, not on those of the other rank
    assert second["both"] == first["both"][::-1]


def one_rank(file: Path, rank: int, port: int) -> dict[str, Any]:
    import torch

    from rlt_trainer.cluster.rendezvous import Rendezvous
    from rlt_trainer.data.prompt import Prompt
    from rlt_trainer.workers.train_worker import TrainWorker

    torch.set_num_threads(1)
    process = TrainWorker(TrainingConfig.model_validate_json(file.read_text()), rank, 2, address="127.0.0.1")
    process.connect(Rendezvous("127.0.0.1", port))
    process.load_models()
    process.start_engine([Prompt(i, (50 + i, 51, 52, 53), "", "", "", "") for i in range(4)])
    difference = process.sync_weights()
    alone = process.generate(PROMPTS[rank], [1, 2][: len(PROMPTS[rank])])
    both = process.generate(PROMPTS[0][:: 1 - 2 * rank], [1, 2][:: 1 - 2 * rank])
    process.close()
    token_ids = {"alone": [each.token_ids for each in alone], "both": [each.token_ids for each in both]}
    return {"difference": difference, **token_ids}


if __name__ == "__main__":
    print(json.dumps(one_rank(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))))
