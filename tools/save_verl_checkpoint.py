"""Save a model as a checkpoint of verl's FSDP manager, sharded over two processes on the CPU.

    python save_verl_checkpoint.py MODEL DIRECTORY

It runs with the verl of another environment (requirements/verl-cpu.txt).
"""

from __future__ import annotations

import multiprocessing
import sys
import tempfile

import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from transformers import AutoModelForCausalLM, AutoTokenizer
from verl.trainer.config import CheckpointConfig
from verl.utils.checkpoint.fsdp_checkpoint_manager import FSDPCheckpointManager

RANKS = 2


def save(rank: int, model: str, directory: str, store: str) -> None:
    """Shard the model as verl does and save the part of one rank."""
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=RANKS)
    module = AutoModelForCausalLM.from_pretrained(model)
    fully_shard(module, mesh=init_device_mesh("cpu", (RANKS,), mesh_dim_names=("fsdp",)))
    manager = FSDPCheckpointManager(
        module,
        optimizer=None,
        lr_scheduler=None,
        processing_class=AutoTokenizer.from_pretrained(model),
        checkpoint_config=CheckpointConfig(save_contents=["model"], load_contents=["model"]),
    )
    manager.save_checkpoint(directory, global_step=1)
    dist.destroy_process_group()


def main() -> None:
    model, directory = sys.argv[1:]
    fork = multiprocessing.get_context("fork")
    with tempfile.TemporaryDirectory() as folder:
        ranks = [fork.Process(target=save, args=(rank, model, directory, f"{folder}/store")) for rank in range(RANKS)]
        for process in ranks:
            process.start()
        for process in ranks:
            process.join()
    sys.exit(max(process.exitcode or 0 for process in ranks))


if __name__ == "__main__":
    main()
