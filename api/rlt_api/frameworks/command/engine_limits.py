"""What the engine of a known program takes: its share of a device, and the lengths of the model."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rlt_api.frameworks.arguments import Program
from rlt_api.frameworks.command.problem import ALL, Problem
from rlt_api.rules.context_lengths import find_context_length
from rlt_api.rules.engine_memory import MAX_UTILIZATION


def list_share_problems(program: Program, key: str) -> Iterator[Problem]:
    """List the problems of the engine's share of a device, in the argument `key`."""
    share = program.values.get(key)
    if isinstance(share, int | float) and not 0 < share <= 1:
        yield Problem(key, "is a share of the device: it must be above 0 and at most 1", since=ALL)
    elif isinstance(share, int | float) and share > MAX_UTILIZATION:
        message = (
            f"leaves {1 - share:.0%} of the device to NCCL, CUDA and the training, so that the engine may run out of "
            f"memory; use {MAX_UTILIZATION} or less"
        )
        yield Problem(key, message)


def list_context_problems(
    program: Program, model_key: str, limit_key: str, lengths: Sequence[tuple[str, int]]
) -> Iterator[Problem]:
    """Compare the longest sequence, the sum of `lengths` (argument and tokens), with the engine's limit and with the
    context of a model whose name is known."""
    longest = sum(tokens for _, tokens in lengths)
    listed = " + ".join(f"{key} {tokens}" for key, tokens in lengths)
    limit = program.values.get(limit_key)
    if isinstance(limit, int) and limit < longest:
        yield Problem(limit_key, f"is less than {listed}; use {longest} or more")
    model = program.values.get(model_key)
    context = find_context_length(model) if isinstance(model, str) else None
    scaled = ("rope", "rotary_scaling", "hf_overrides", "yarn")
    if context is None or any(word in key for key in program.given for word in scaled):
        return
    if isinstance(limit, int) and limit > context:
        message = f"is more than the context of {context} tokens that {model} has; use {context} or less"
        yield Problem(limit_key, message)
    elif longest > context:
        total = f" = {longest}" if len(lengths) > 1 else ""
        message = f"{listed}{total} tokens, and {model} has a context of {context}; use less"
        given = [key for key, _ in lengths if key in program.given]
        yield Problem(given[-1] if given else model_key, message)
