"""A step of a whole run against the time in which its engine generated and its train worker computed.

Both are measured in the processes of one run: the spans of engine and train worker contain no call of the driver, no
weight sync and no reward.
"""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench_report import Row

from rlt_api.spec.training_config import TrainingConfig
from rlt_trainer.telemetry.chrome_trace import read_spans
from rlt_trainer.telemetry.run_directory import SPANS
from rlt_trainer.telemetry.spans import DRIVER, STEP, Span
from trainer_bench.configs import build_config
from trainer_bench.local_run import run_local

COMPUTED = ("gen", "old_log_prob", "ref", "update_actor")
PROMPTS = 16
N = 16
RESPONSE_TOKENS = 128
STEPS = 12
"""Steps of the run."""
FIRST = 4
"""The first step that counts."""
MAX_RATIO = 1.05


def measure() -> Row:
    """Measure GRPO with a reference, vLLM and a train worker on one core."""
    with tempfile.TemporaryDirectory() as folder:
        steps = run_local(build_step_config(folder))
        spans = list(read_spans(Path(folder, SPANS)))
    by_step = [compare(spans, step) for step in range(FIRST, STEPS + 1)]
    ratio = statistics.median(step / computed for step, computed in by_step)
    seconds, computed = (statistics.median(each) for each in zip(*by_step, strict=True))
    sync = statistics.median(step["timing_s/update_weights"] for step in steps[FIRST - 1 :])
    return Row(
        "a step against the sum of its engines alone: vLLM's generation, and the train worker's passes",
        f"at most {MAX_RATIO} x",
        f"{ratio:.2f} x ({seconds:.2f} and {computed:.2f} s, of the difference {sync:.2f} s verified weight sync)",
        ratio <= MAX_RATIO,
        {"seconds": by_step, "metrics": steps},
    )


def build_step_config(folder: str, **rollout: Any) -> TrainingConfig:
    """Build the config of the run. Keywords are fields of the rollout."""
    return build_config(
        folder,
        data={"maxResponseLength": RESPONSE_TOKENS},
        algorithm={"klLossCoef": 0.001},
        training={"totalSteps": STEPS, "trainBatchSize": PROMPTS, "ppoMiniBatchSize": PROMPTS},
        rollout={"engine": "vllm", "responsesPerPrompt": N, **rollout},
    )


def compare(spans: Sequence[Span], step: int) -> tuple[float, float]:
    """Return the seconds of a step, and of the computation in it."""
    (whole,) = (span for span in spans if span.rank == DRIVER and span.phase == STEP and span.step == step)
    computed = sum(
        min(span.end, whole.end) - max(span.start, whole.start)
        for span in spans
        if span.rank != DRIVER and span.phase in COMPUTED and whole.start <= span.start < whole.end
    )
    return whole.end - whole.start, computed


if __name__ == "__main__":
    print(measure().measured)
