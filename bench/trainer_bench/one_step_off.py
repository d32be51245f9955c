"""One-step-off against on-policy, with an engine and a train worker on a core each: two whole runs with Ray.

The shapes make generation and training take about the same time. With a model of 128 dimensions a step of an engine
takes 2 ms, and its processes wait longer than that for a core.
"""

from __future__ import annotations

import statistics
import tempfile
from typing import Any

from bench_report import Row

from trainer_bench.configs import build_config
from trainer_bench.local_run import run_local

STEPS = 24
"""Steps of a run."""
FIRST = 6
"""The first step whose time counts."""
LAST = 5
"""Steps at the end of a run whose mean score is compared."""
MIN_RATIO = 1.4
MAX_SCORE_DIFFERENCE = 0.05
PROMPTS = 2
N = 4
ANSWER = "0" * 127
MODEL = {"seed": 1, "hiddenSize": 512, "intermediateSize": 1536, "numHiddenLayers": 4, "numAttentionHeads": 4}
ONE_STEP_OFF = {"staleness": {"maxSteps": 1}}


def measure() -> Row:
    """Compare the median seconds of a step, and the final scores, from 0 to 1."""
    on_policy = run({}, {})
    ahead = run(ONE_STEP_OFF, {"rolloutCorrection": {"level": "token"}})
    on_policy_s, ahead_s = (
        statistics.median(step["timing_s/step"] for step in run[FIRST:]) for run in (on_policy, ahead)
    )
    scores = [statistics.mean(step["critic/score/mean"] for step in run[-LAST:]) for run in (on_policy, ahead)]
    ratio = on_policy_s / ahead_s
    gen, update = (
        statistics.median(step[f"timing_s/{phase}"] for step in on_policy[FIRST:]) for phase in ("gen", "update_actor")
    )
    return Row(
        "one-step-off against on-policy, generation and training on a core each",
        f"at least {MIN_RATIO} x, same final score within {MAX_SCORE_DIFFERENCE}",
        f"{ratio:.2f} x ({on_policy_s:.2f} and {ahead_s:.2f} s a step; on-policy {gen:.2f} s gen, {update:.2f} s "
        f"update_actor), final scores {scores[0]:.2f} and {scores[1]:.2f}",
        ratio >= MIN_RATIO and abs(scores[0] - scores[1]) <= MAX_SCORE_DIFFERENCE,
        {"on_policy": on_policy, "one_step_off": ahead},
    )


def run(rollout: dict[str, Any], algorithm: dict[str, Any]) -> list[dict[str, float]]:
    """Train, and return the metrics of each step."""
    with tempfile.TemporaryDirectory() as folder:
        config = build_config(
            folder,
            rolloutWorkers=1,
            rolloutCpusPerWorker=1,
            model={"fromSeed": MODEL},
            data={
                "preset": None,
                "inline": [{"prompt": f"{chr(97 + number)}:", "answer": ANSWER} for number in range(PROMPTS)],
                "maxPromptLength": 8,
                "maxResponseLength": len(ANSWER) + 1,
            },
            rewards=[{"name": "characters"}],
            algorithm={"klLossCoef": 0, **algorithm},
            training={
                "totalSteps": STEPS,
                "trainBatchSize": PROMPTS,
                "ppoMiniBatchSize": PROMPTS,
                "learningRate": 1e-3,
            },
            rollout={"mode": "separate", "workerGroup": "rollout", "responsesPerPrompt": N, **rollout},
        )
        return run_local(config)


if __name__ == "__main__":
    print(measure().measured)
