"""8-bit AdamW, Muon and the float32 head against their definitions on a CPU, and more tests."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec
from typing import Any

from torch import Tensor

from gpu_check.figures import Figure
from gpu_check.models import build_shape, write_model
from gpu_check.pytest_run import run_tests
from gpu_check.runs import build_config, build_sequences, train_worker
from gpu_check.settings import Settings

OPTIMIZERS = {"adamw": None, "muon": None, "adamw_8bit": "torchao"}
"""training.optimizer -> the package that it needs."""
MAX_UPDATE_DIFFERENCE = 0.05
"""Of the updates of three steps on GPU and CPU, relative to the CPU's. Both compute in float32."""
MAX_HEAD_DIFFERENCE = 5e-3
"""Mean difference of log-probabilities between the heads in float32 and bfloat16, in nats."""
TESTS = {
    "Liger": ("liger_kernel", ("test_policy_liger.py",)),
    "FP8": ("vllm", ("test_rollout_vllm_fp8.py", "test_rollout_fp8_weights.py")),
    "speculative decoding": ("vllm", ("test_rollout_vllm_speculation.py", "test_rollout_vllm_expand.py")),
    "router replay": ("vllm", ("test_rollout_vllm_routes.py",)),
}
"""Title -> the package that the tests need, and their files."""


def run(settings: Settings) -> Iterator[Figure]:
    """Take three steps with each optimizer on both devices, compare the heads, and run the tests."""
    shape = build_shape("tiny", hidden_size=256, intermediate_size=512, vocab_size=1024)
    model = write_model(shape, settings.folder / "model", "cpu")
    for name, package in OPTIMIZERS.items():
        if package is not None and find_spec(package) is None:
            yield Figure(f"{name}: not run", f"{package} is not installed")
            continue
        fields = {"optimizer": name, "learningRate": 1e-3}
        expected, found = (update(settings, device, model, fields) for device in ("cpu", settings.device))
        norm = sum(float(each.norm()) for each in expected.values())
        difference = sum(float((found[part] - each).norm()) for part, each in expected.items()) / norm
        yield Figure(
            f"{name}: three steps against the same steps on a CPU, difference of the updates",
            difference,
            passed=None if settings.rehearse else norm > 0 and difference < MAX_UPDATE_DIFFERENCE,
            note=settings.choose(f"at most {MAX_UPDATE_DIFFERENCE} of their norm", "needs CUDA: both are CPUs"),
        )
    yield from compare_heads(settings, model)
    for title, (package, files) in TESTS.items():
        if find_spec(package) is None:
            yield Figure(f"{title}: not run", f"{package} is not installed")
        else:
            yield from run_tests(settings, title, files)


def update(settings: Settings, device: str, model: str, training: dict[str, Any]) -> dict[str, Tensor]:
    """Return what three supervised steps in float32 add to the weights."""
    run = settings.folder / f"{training['optimizer']}-{device}"
    config = build_config(device, run, model, model={"dtype": "float32"}, training=training)
    sequences = build_sequences(rows=4, length=24)
    with train_worker(config) as worker:
        before = {name: each.cpu() for name, each in worker._actor.gather_weights()}
        for _ in range(3):
            worker.supervised_step(sequences, int(sequences.response_mask.sum()))
        return {name: each.cpu() - before[name] for name, each in worker._actor.gather_weights()}


def compare_heads(settings: Settings, model: str) -> Iterator[Figure]:
    """Compare model.castLmHeadToFp32 with the head in bfloat16."""
    sequences = build_sequences(rows=4, length=24)
    found = []
    for cast in (False, True):
        fields = {"castLmHeadToFp32": cast}
        config = build_config(settings.device, settings.folder / f"head-{cast}", model, model=fields)
        with train_worker(config) as worker:
            found.append(worker._actor.log_probs(sequences)[0][sequences.response_mask])
    difference = float((found[0] - found[1]).abs().mean())
    yield Figure(
        "float32 head: mean difference of log-probabilities",
        difference,
        "nats",
        passed=0 < difference < MAX_HEAD_DIFFERENCE,
        note=f"above 0, at most {MAX_HEAD_DIFFERENCE}",
    )
