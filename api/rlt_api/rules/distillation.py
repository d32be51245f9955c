"""The teacher's most likely tokens (algorithm.distillation, lossMode forward_kl_topk): their number and memory."""

from __future__ import annotations

from collections.abc import Iterator

from rlt_api.findings.finding import Finding
from rlt_api.findings.kinds import above
from rlt_api.rules.head_memory import require_head_memory
from rlt_api.rules.memory_parts import count_top_tokens
from rlt_api.rules.model_shape import model_shape
from rlt_api.spec.job_spec import RLTrainingJobSpec

TOPK = "spec.algorithm.distillation.topk"
LOSS_MODE = "spec.algorithm.distillation.lossMode"
BYTES_IN_THE_HEAD = 16
"""Bytes for each of a token's most likely tokens: an int32 number and a float32 value, in the tensors of the step and
in their copies, the mini-batches (Experience in rlt_trainer/batches/sequences.py)."""


def validate_topk(spec: RLTrainingJobSpec) -> Iterator[Finding]:
    """distillation.topk must not be above the number of tokens in the vocabulary, if the model's is known."""
    topk = count_top_tokens(spec)
    shape = model_shape(spec.model) if spec.model else None
    if shape is not None and topk > shape.vocabulary:
        what = f"the {shape.vocabulary} tokens of the model's vocabulary"
        involved = (LOSS_MODE, "spec.model.path", "spec.model.fromSeed")
        yield above(TOPK, topk, shape.vocabulary, what, rule="distillation-topk", involved=involved)


def validate_head_memory(spec: RLTrainingJobSpec) -> Iterator[Finding]:
    """head.resources.memory must hold the teacher's distillation.topk tokens for all responses of a step, which the
    driver pads to the longest one: one response of maxResponseLength is enough for this size."""
    topk = count_top_tokens(spec)
    if topk == 0 or spec.data is None:
        return
    responses = spec.training.train_batch_size * spec.rollout.responses_per_prompt
    length = spec.data.max_response_length
    needed = BYTES_IN_THE_HEAD * responses * length * topk
    what = (
        f"the teacher's log-probabilities: {responses} responses x {length} tokens x distillation.topk {topk} x "
        f"{BYTES_IN_THE_HEAD} bytes"
    )
    yield from require_head_memory(spec, needed, what, lower="a lower topk", involved=(TOPK, LOSS_MODE))


RULES = (validate_topk, validate_head_memory)
