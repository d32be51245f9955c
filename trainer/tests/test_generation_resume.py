"""An interrupted asynchronous run resumes with its rollout batches: no prompt is lost or trained on twice."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import in_process
import pytest
from ranks import run_process
from safetensors.torch import load_file

from rlt_api.training_config import TrainingConfig
from rlt_trainer.batches.rollout_batch import RolloutBatch
from rlt_trainer.checkpoint.driver_state import TENSORS
from rlt_trainer.checkpoint.marker import find_latest_step
from rlt_trainer.data.byte_tokenizer import build_byte_tokenizer
from rlt_trainer.data.dataset import PromptDataset
from rlt_trainer.driver.generation import RolloutGenerator
from rlt_trainer.errors import Terminated
from rlt_trainer.workers.train_worker import TrainWorker

STEPS, SIZE, INTERRUPTED_STEP = 7, 8, 4


def train_until_signal(config: TrainingConfig, number: int) -> None:
    """Train until the signal at the start of INTERRUPTED_STEP. Checkpoints wait for all batches in the queue.

    The process exits with 143 if the run ends as it does after SIGTERM.
    """
    ahead, begin_step = RolloutGenerator.pack_ahead, TrainWorker.begin_step

    def wait_for_all(generation: RolloutGenerator, step: int) -> Any:
        assert generation._schedule is not None
        for future in generation._schedule._running.values():
            future.result()
        return ahead(generation, step)

    def begin(worker: TrainWorker, step: int) -> None:
        if step == INTERRUPTED_STEP:
            os.kill(os.getpid(), number)
        begin_step(worker, step)

    RolloutGenerator.pack_ahead, TrainWorker.begin_step = wait_for_all, begin  # type: ignore[method-assign]
    try:
        in_process.train(config)
    except Terminated:
        os._exit(128 + signal.SIGTERM)  # the engine's thread may still be generating


@pytest.mark.slow
@pytest.mark.parametrize(
    ("number", "saved", "waiting"),
    [
        (signal.SIGKILL, 2, [3, 4]),
        (signal.SIGTERM, 3, [4, 5, 6]),
    ],  # SIGTERM: step 4 started step 6
    ids=["SIGKILL", "SIGTERM"],
)
def test_a_resumed_run_trains_on_the_saved_batches(
    make_config: Callable[..., TrainingConfig],
    monkeypatch: pytest.MonkeyPatch,
    number: int,
    saved: int,
    waiting: list[int],
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
    assert sorted({int(name.partition("/")[0]) for name in queue}) == waiting

    generated: list[int] = []
    batch = RolloutGenerator.generate_batch

    def record(generation: RolloutGenerator, step: int, *first: Any) -> RolloutBatch:
        generated.append(step)
        return batch(generation, step, *first)

    monkeypatch.setattr(RolloutGenerator, "generate_batch", record)
    last = {line["training/global_step"]: line for line in in_process.train(config)}
    assert generated == list(range(waiting[-1] + 1, STEPS + 1))
    assert [last[step]["data/prompts_consumed"] for step in range(1, STEPS + 1)] == [
        SIZE * step for step in range(1, STEPS + 1)
    ]

    tokenizer = build_byte_tokenizer()
    prompts = PromptDataset.load(config.data, tokenizer, seed=config.training.seed, run_directory=run)
    for step in range(1, STEPS + 1):
        lines = [json.loads(line) for line in (run / "rollouts" / f"step-{step}.jsonl").read_text().splitlines()]
        asked = [prompt.text for prompt in prompts.batch(step - 1, SIZE) for _ in range(config.rollout.n)]
        assert [line["prompt"] for line in lines] == asked, step
        if step in waiting:
            pieces = queue[f"{step}/tokens"].split(queue[f"{step}/lengths"].tolist())
            texts = tokenizer.batch_decode([piece.tolist() for piece in pieces], skip_special_tokens=True)
            assert [line["response"] for line in lines] == texts, step
