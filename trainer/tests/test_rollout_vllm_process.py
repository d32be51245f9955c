"""vLLM's processes: tensor parallelism on two of them, and their end with the process of the engine."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import psutil  # type: ignore[import-untyped]
import pytest
import torch
from torch import Tensor

from rlt_api.blocks.rollout import Rollout

PROMPTS = [[50, 51], [60]]


def shared_memory(processes: Sequence[psutil.Process]) -> set[Path]:
    """Return the shared memory files of these processes. Files of other tests are not included."""
    mapped = {Path(each.path) for process in processes for each in process.memory_maps(grouped=True)}
    return {file for file in mapped if file.is_relative_to("/dev/shm") and file.exists()}


@pytest.mark.slow
@pytest.mark.long
def test_two_processes_share_an_engine_with_the_weights_of_the_policy_and_end_with_it(tiny_model: str) -> None:
    """The engine runs in a process that is killed, as by the kernel's out-of-memory killer."""
    command = [sys.executable, __file__, tiny_model]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as engine:
        assert engine.stdout is not None
        assert next((line for line in engine.stdout if line.startswith("tokens")), None) == "tokens [5, 5]\n"
        children = psutil.Process(engine.pid).children(recursive=True)
        assert len([child for child in children if "VLLM" in child.name()]) == 3  # the scheduler and two workers
        files = shared_memory(children)
        assert files
        os.kill(engine.pid, signal.SIGKILL)
        _, alive = psutil.wait_procs(children, timeout=60)
    assert alive == []
    assert [file for file in files if file.exists()] == []


def is_sharded(name: str) -> bool:
    """Whether the weight is a matrix of which each process has a part."""
    return name.endswith("_proj.weight")


def exchange_halves(name: str, weight: Tensor) -> Tensor:
    """Exchange the halves of the rows or columns that the two processes have."""
    dim = 1 if name.endswith(("o_proj.weight", "down_proj.weight")) else 0
    return torch.cat(weight.chunk(2, dim)[::-1], dim) if is_sharded(name) else weight


def main(files: str) -> None:
    """Generate with the weights of the model in the folder `files`, and wait."""
    from engine_calls import EngineCalls

    from rlt_trainer.policy.model import load_model
    from rlt_trainer.rollout.engine import Sampling
    from rlt_trainer.rollout.vllm_engine import VllmEngine
    from rlt_trainer.rollout.weight_sync import find_moved_weights

    rollout = Rollout(tensor_parallel_size=2, max_num_seqs=8)
    sampling = Sampling(temperature=1.0, top_p=1.0, max_tokens=5, stop_token_ids=())
    engine = EngineCalls(
        VllmEngine(files, dtype="float32", rollout=rollout, max_model_len=21, seed=0), sampling, devices=2
    )
    model = load_model(files, torch.float32)
    sent = engine.update_weights(model.named_parameters(), limit=10_000)
    held = engine.sum_weights()
    assert find_moved_weights(sent, held) == []
    assert all(elements for _, elements in held.weights.values()), "the place of each weight in both shards is known"
    engine.update_weights((name, exchange_halves(name, weight)) for name, weight in model.named_parameters())
    assert set(find_moved_weights(sent, engine.sum_weights())) == {name for name in sent.weights if is_sharded(name)}
    engine.update_weights(model.named_parameters())
    lengths: Sequence[int] = [len(each.token_ids) for each in engine.generate(PROMPTS, [1, 2])]
    sequence = [50, 51, 52, 53]
    logits = model(input_ids=torch.tensor([sequence])).logits[0, :-1].log_softmax(-1)
    expected = logits.gather(-1, torch.tensor(sequence[1:])[:, None]).squeeze(-1)
    assert torch.allclose(torch.tensor(engine.log_probs([sequence])[0]), expected, atol=1e-4)
    print("tokens", lengths, flush=True)
    signal.pause()


if __name__ == "__main__":
    main(sys.argv[1])
