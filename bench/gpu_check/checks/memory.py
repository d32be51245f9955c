"""The memory rule against the device's counters, and the memory that the trainer releases for an engine."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Sequence

from gpu_check.figures import Figure, NotRun
from gpu_check.models import build_shape
from gpu_check.runs import measure_step, process_group
from gpu_check.settings import Settings
from rlt_api.rules.memory_parts import list_activations, list_gradients, list_states
from rlt_api.rules.model_size import model_size
from rlt_api.spec.job_spec import RLTrainingJobSpec

GIB = 2**30
MAX_ERROR = 0.15
"""Of the rule, as in trainer/tests/test_policy_memory_estimate.py."""
SHAPES: tuple[tuple[str, int, Sequence[str]], ...] = (
    ("0.6B", 16_384, ()),
    ("1.7B", 16_384, ("--gradient-checkpointing",)),
    ("4B", 8_192, ("--gradient-checkpointing",)),
)
"""Shape, tokens of the one packed sequence, and options of bench/train_step.py."""
OTHER_GB = 40
"""What another process takes, in GB: an engine with half of an H100."""


def run(settings: Settings) -> Iterator[Figure]:
    """Measure each shape, and then the release. A rehearsal only runs the steps."""
    with process_group(settings.device):
        for name, tokens, options in SHAPES:
            yield from compare_with_rule(settings, name, tokens, options)
        if settings.rehearse:
            raise NotRun("the comparison with the rule and the release need CUDA")
        yield from take_released_memory()


def compare_with_rule(settings: Settings, name: str, tokens: int, options: Sequence[str]) -> Iterator[Figure]:
    """Compare the peak of an optimizer step on two packed sequences, one after the other, with the sum of the rule.

    The rule adds gradients and activations. Both exist in the backward pass of the second one.
    """
    checkpointing = "--gradient-checkpointing" in options
    if settings.rehearse:
        words = ["--config", "tiny", "--tokens", "512", "--sequence", "256"]
    else:
        words = ["--config", f"qwen3-{name.lower()}", "--tokens", str(2 * tokens), "--sequence", str(tokens)]
    predicted = predict(name, tokens, checkpointing=checkpointing)
    if not settings.rehearse and predicted > 0.9 * read_device_memory():
        yield Figure(f"{name}: not measured", predicted / GIB, "GiB", note="by the rule above 90 % of the device")
        return
    result = measure_step([*words, *options, "--micro-batches", "2", "--steps", "1"], settings.device)
    peak = float(result["peak_memory_gib"])
    if settings.rehearse:
        yield Figure(f"tiny, in place of {name}: peak memory of the process", peak, "GiB")
        return
    yield Figure(f"{name}, 2 x {tokens:,} tokens: allocated at the peak", peak, "GiB")
    yield Figure(f"{name}: reserved at the peak", result["reserved_memory_gib"], "GiB")
    error = predicted / GIB / peak - 1
    yield Figure(
        f"{name}: error of the rule",
        100 * error,
        "%",
        passed=abs(error) <= MAX_ERROR,
        note=f"{predicted / GIB:.2f} GiB predicted; at most {100 * MAX_ERROR:.0f} % apart",
    )


def predict(name: str, tokens: int, *, checkpointing: bool) -> float:
    """Return the bytes of an update with Qwen3-`name` on one packed sequence, by the rules of the API."""
    spec = RLTrainingJobSpec.model_validate(
        {
            "model": {
                "path": f"Qwen3-{name}",
                "dtype": "bfloat16",
                "parameters": f"{build_parameters(name)}",
                "useRemovePadding": True,
                "enableGradientCheckpointing": checkpointing,
            },
            "data": {"preset": "arithmetic", "maxPromptLength": 1, "maxResponseLength": tokens - 1},
            "algorithm": {"klLossCoef": 0},
            "training": {"totalSteps": 1, "trainBatchSize": 1, "ppoMicroBatchSizePerDevice": 1},
            "rollout": {"responsesPerPrompt": 1},
            "cluster": {"workers": [{"accelerator": {"resourceName": "nvidia.com/gpu", "count": 1, "memory": "80Gi"}}]},
        }
    )
    assert spec.model is not None
    size = model_size(spec.model)
    assert size is not None
    states = [state.part for state in list_states(spec, spec.model, size)]
    return sum(
        part.bytes for part in [*states, *list_gradients(spec, spec.model, size), *list_activations(spec, spec.model)]
    )


def build_parameters(name: str) -> int:
    """Return the exact number of parameters of Qwen3-`name`: the lower bound from a name is 5 % below it."""
    import torch
    from transformers import Qwen3ForCausalLM

    with torch.device("meta"):
        model = Qwen3ForCausalLM(build_shape(name))  # type: ignore[no-untyped-call]
    return sum(parameter.numel() for parameter in model.parameters())


def read_device_memory() -> int:
    """Return the memory of the GPU in bytes."""
    import torch

    return torch.cuda.mem_get_info()[1]


def take_released_memory() -> Iterator[Figure]:
    """Take about half of the device in another process, before and after the trainer releases its cache."""
    import torch
    from train_step import build_training_step, parse_arguments

    from rlt_trainer.telemetry.device_memory import release_memory

    whole = read_device_memory()
    other = min(OTHER_GB * 10**9, whole // 2)
    tokens = 4096
    while predict("0.6B", 2 * tokens, checkpointing=False) < 0.85 * whole:
        tokens *= 2
    arguments = parse_arguments(["--tokens", str(tokens), "--sequence", str(tokens), "--micro-batches", "1"])
    step = build_training_step(build_shape("0.6B"), arguments, "cuda", 1, rows=1, length=tokens, dtype=torch.bfloat16)
    step()
    torch.cuda.synchronize()
    yield Figure("reserved after an update", torch.cuda.memory_reserved() / GIB, "GiB")
    yield Figure("allocated after an update", torch.cuda.memory_allocated() / GIB, "GiB")
    name = f"another process takes {other / 1e9:.0f} GB"
    yield Figure(f"{name} before the release", str(can_take(other)), note="expected: False, the reason for the release")
    release_memory(torch.device("cuda"))
    reserved = torch.cuda.memory_reserved()
    allocated = torch.cuda.memory_allocated()
    excess = (reserved - allocated) / GIB
    yield Figure("reserved minus allocated after the release", excess, "GiB", passed=excess <= 1, note="at most 1 GiB")
    taken = can_take(other)
    yield Figure(f"{name} after the release", str(taken), passed=taken)


def can_take(size: int) -> bool:
    """Return whether another process can allocate `size` bytes of the device."""
    program = f"import torch; torch.empty({size}, dtype=torch.uint8, device='cuda'); torch.cuda.synchronize()"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    if done.returncode and "out of memory" not in done.stderr:
        raise RuntimeError(done.stderr[-2000:])
    return not done.returncode
