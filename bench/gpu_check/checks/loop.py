"""The whole training loop with vLLM on the same device: five steps, then steps on responses of earlier weights."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from statistics import median
from typing import Any

from in_process import train

from gpu_check.figures import Figure
from gpu_check.models import build_shape, write_model
from gpu_check.runs import build_config
from gpu_check.settings import Settings
from rlt_trainer.rollout.weight_sync import MAX_DIFFERENCE

DIFFERENCE = "training/weight_sync_difference"
KEPT = ("timing_s/", "perf/", DIFFERENCE, "training/rollout_probs_diff_mean", "critic/score/mean")
"""Beginnings of the metric names that become figures, in the last step."""
MAX_VERIFICATION_SHARE = 0.02
"""Of a step: what the default of rollout.verifyWeightsFreq, 1, may cost."""


def run(settings: Settings) -> Iterator[Figure]:
    """Run both, with Qwen3-0.6B's shape on a GPU."""
    model = write_model(build_shape(settings.choose("0.6B", "tiny")), settings.folder / "model", settings.device)
    yield from run_steps(settings, model, "on-policy", 5, {})
    yield from run_steps(settings, model, "staleness 1", 3, {"staleness": {"maxSteps": 1}})


def run_steps(settings: Settings, model: str, title: str, steps: int, rollout: dict[str, Any]) -> Iterator[Figure]:
    """Run `steps` steps, and yield the metrics of the last one."""
    prompts, length = settings.choose((32, 1024), (4, 8))
    on_gpu = {"freeCacheEngine": True, "gpuMemoryUtilization": 0.4, "enforceEager": False}
    config = build_config(
        settings.device,
        settings.folder / title.replace(" ", "-"),
        model,
        data={"maxResponseLength": length},
        training={
            "totalSteps": steps,
            "trainBatchSize": prompts,
            "ppoMiniBatchSize": prompts,
            "useDynamicBsz": True,
            "ppoMaxTokenLenPerDevice": settings.choose(16_384, 64),
            "useTorchCompile": settings.choose(True, False),  # the defaults
        },
        rollout={
            "engine": "vllm",
            "responsesPerPrompt": 8,
            "verifyWeightsFreq": 2,
            **settings.choose(on_gpu, {"kvCacheSpace": 1}),
            **rollout,
        },
    )
    metrics = train(config)
    yield Figure(f"{title}: steps", len(metrics), passed=len(metrics) == steps)
    last = metrics[-1]
    for name in sorted(last):
        if name.startswith(KEPT) and isinstance(last[name], float | int):
            yield Figure(f"{title}: {name}", last[name])
    moved = any(step["actor/grad_norm"] > 0 for step in metrics)
    yield Figure(f"{title}: a step has a gradient", str(moved), passed=moved)
    differences = [step[DIFFERENCE] for step in metrics if DIFFERENCE in step]
    bound = MAX_DIFFERENCE["bfloat16"]
    yield Figure(
        f"{title}: largest difference after a weight sync",
        max(differences),
        "nats",
        passed=max(differences) < bound,
        note=f"at most {bound}",
    )
    share = compute_verification_share(metrics[1:])
    yield Figure(
        f"{title}: verification of a weight sync, share of a step",
        100 * share,
        "%",
        passed=None if settings.rehearse else share < MAX_VERIFICATION_SHARE,
        note=f"at most {100 * MAX_VERIFICATION_SHARE:.0f} %",
    )


def compute_verification_share(steps: Sequence[Mapping[str, Any]]) -> float:
    """Return the time that a verified sync takes in addition to another one, as a share of a step. Every second sync is
    verified, and has a difference of log-probabilities."""
    verified, others = (
        median(float(step["timing_s/update_weights"]) for step in steps if (DIFFERENCE in step) == is_verified)
        for is_verified in (True, False)
    )
    return (verified - others) / median(float(step["timing_s/step"]) for step in steps)
