"""Warnings about valid specs that are probably a mistake: for `rlt validate` and the webhook."""

from __future__ import annotations

from collections.abc import Iterator

from rlt_api.rules.memory import explain_missing_memory_check
from rlt_api.spec import RLTrainingJobSpec


def find_warnings(spec: RLTrainingJobSpec) -> Iterator[str]:
    """Yield one sentence for each warning, with the field and its value first."""
    yield from _warn_restarts_without_checkpoint(spec)
    yield from _warn_memory_not_validated(spec)


def _warn_restarts_without_checkpoint(spec: RLTrainingJobSpec) -> Iterator[str]:
    """A new attempt resumes only from a checkpoint that outlives the pods of the failed one."""
    restarts, checkpoint, storage = spec.failure_policy.max_restarts, spec.checkpoint, spec.storage
    if restarts == 0 or spec.framework.type != "builtin":
        return
    if checkpoint.resume == "never":
        reason, fix = "checkpoint.resume is never", "use checkpoint.resume: auto"
    elif checkpoint.save_freq < 1:
        reason, fix = f"checkpoint.saveFreq is {checkpoint.save_freq}", "set checkpoint.saveFreq to 1 or more"
    elif not storage.outlives_pods:
        reason = "checkpoints are deleted with the pods without storage.claimName or storage.storageClassName"
        fix = "set one of them"
    else:
        return
    yield f"spec.failurePolicy.maxRestarts: {restarts}: each attempt starts from step 0, because {reason}; {fix}"


def _warn_memory_not_validated(spec: RLTrainingJobSpec) -> Iterator[str]:
    """Without the size of model or accelerator, a job that runs out of memory is accepted."""
    if spec.framework.type == "builtin" and (missing := explain_missing_memory_check(spec)):
        field, fix = missing
        yield f"{field}: none: whether the job fits into the memory of its accelerators was not validated; {fix}"
