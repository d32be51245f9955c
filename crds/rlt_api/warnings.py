"""Warnings about valid specs that are probably a mistake: for `rlt validate` and the webhook."""

from __future__ import annotations

from collections.abc import Iterator

from rlt_api.spec import RLTrainingJobSpec


def find_warnings(spec: RLTrainingJobSpec) -> Iterator[str]:
    """Yield one sentence for each warning, with the field and its value first."""
    yield from _warn_restarts_without_checkpoint(spec)


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
