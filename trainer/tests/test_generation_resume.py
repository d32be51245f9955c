"""An interrupted asynchronous run resumes with its groups in progress: no prompt is lost or trained on twice."""

from __future__ import annotations

import json
import os
import signal
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import in_process
import pytest
import torch
from ranks import run_process
from safetensors.torch import load_file
from torch import Tensor

from rlt_api.spec.training_config import TrainingConfig
from rlt_trainer.checkpoint.driver_state import TENSORS
from rlt_trainer.checkpoint.marker import find_latest_step
from rlt_trainer.data.byte_tokenizer import build_byte_tokenizer
from rlt_trainer.data.dataset import PromptDataset
from rlt_trainer.driver.generation import RolloutGenerator
from rlt_trainer.errors import Terminated
from rlt_trainer.workers.train_worker import TrainWorker

STEPS = 7
SIZE = 8
INTERRUPTED_STEP = 4


def train_until_signal(config: TrainingConfig, number: int) -> None:
    """Train until the signal at the start of INTERRUPTED_STEP. Checkpoints wait for all groups in progress.

    The process exits with 143 if the run ends as it does after SIGTERM.
    """
    pack_ahead = RolloutGenerator.pack_ahead
    begin_step = TrainWorker.begin_step

    def wait_for_all(generation: RolloutGenerator, step: int) -> dict[str, Tensor]:
        _, others = generation._schedule.groups_ahead(step)
        assert others, "groups are in progress"
        for group in others:
            group.pending.scored.result()
        return pack_ahead(generation, step)

    def begin(worker: TrainWorker, step: int) -> None:
        if step == INTERRUPTED_STEP:
            os.kill(os.getpid(), number)
        begin_step(worker, step)

    patch = pytest.MonkeyPatch()
    patch.setattr(RolloutGenerator, "pack_ahead", wait_for_all)
    patch.setattr(TrainWorker, "begin_step", begin)
    try:
        in_process.train(config)
    except Terminated:
        os._exit(128 + signal.SIGTERM)  # the engine's thread may still be generating


@pytest.mark.slow
@pytest.mark.parametrize(
    ("number", "saved", "batches"),
    [(signal.SIGKILL, 2, 1), (signal.SIGTERM, 3, 2)],  # SIGTERM: the batch of step 4 is complete
    ids=["SIGKILL", "SIGTERM"],
)
def test_a_resumed_run_trains_on_the_saved_groups(
    make_config: Callable[..., TrainingConfig],
    monkeypatch: pytest.MonkeyPatch,
    number: int,
    saved: int,
    batches: int,
) -> None:
    config = make_config(
        workers=1,
        training={"totalSteps": STEPS, "trainBatchSize": SIZE},
        rollout={"mode": "separate", "workerGroup": "engines", "staleness": {"maxSteps": 2}},
        rewards=[{"name": "regex", "options": {"pattern": "[a-z0-9]"}}],
        checkpoint={"saveFreq": 2},
    )
    run = Path(config.run_directory)
    assert run_process(train_until_signal, config, number) == (-number if number == signal.SIGKILL else 128 + number)
    assert find_latest_step(run / "checkpoints") == saved
    queue = load_file(run / "checkpoints" / f"step-{saved}" / TENSORS)
    assert queue["responses"].tolist() == [config.rollout.responses_per_prompt] * SIZE * batches

    sent: list[int] = []
    start = RolloutGenerator._start

    def record(generation: RolloutGenerator, step: int, groups: Sequence[Any]) -> Any:
        sent.extend(number for number, *_ in groups)
        return start(generation, step, groups)

    monkeypatch.setattr(RolloutGenerator, "_start", record)
    last = {line["training/global_step"]: line for line in in_process.train(config)}
    assert sent == list(range(SIZE * (saved + batches), SIZE * STEPS))
    assert [last[step]["data/prompts_consumed"] for step in range(1, STEPS + 1)] == [
        SIZE * step for step in range(1, STEPS + 1)
    ]

    tokenizer = build_byte_tokenizer()
    prompts = PromptDataset.load(config.data, tokenizer, seed=config.training.seed, run_directory=run)
    lines = [
        json.loads(line)
        for step in range(1, STEPS + 1)
        for line in (run / "rollouts" / f"step-{step}.jsonl").read_text().splitlines()
    ]
    expected = [
        prompt.text for prompt in prompts.take(0, SIZE * STEPS) for _ in range(config.rollout.responses_per_prompt)
    ]
    assert Counter(line["prompt"] for line in lines) == Counter(expected)
    texts = tokenizer.batch_decode(
        [piece.tolist() for piece in torch.split(queue["tokens"], queue["lengths"].tolist())], skip_special_tokens=True
    )
    indices = queue["prompt"].repeat_interleave(queue["responses"]).tolist()
    of_saved = zip([prompt.text for prompt in prompts.by_index(indices)], texts, strict=True)
    assert Counter(of_saved) <= Counter((line["prompt"], line["response"]) for line in lines)
