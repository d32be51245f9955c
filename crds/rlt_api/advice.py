"""What is valid in a job and probably not what its user wants: told by `rlt validate` and when it is created."""

from __future__ import annotations

from collections.abc import Iterator

from rlt_api.spec import RLTrainingJobSpec


def advice(spec: RLTrainingJobSpec) -> Iterator[str]:
    """A sentence for each thing, field and value first."""
    yield from _restarts_that_start_anew(spec)


def _restarts_that_start_anew(spec: RLTrainingJobSpec) -> Iterator[str]:
    """Another attempt goes on from a checkpoint that the pods of the first have left behind."""
    restarts, checkpoint, storage = spec.failure_policy.max_restarts, spec.checkpoint, spec.storage
    if restarts == 0 or spec.framework.type != "builtin":
        return
    lacking = None
    if checkpoint.resume == "never":
        lacking = "checkpoint.resume is never"
    elif checkpoint.save_freq < 1:
        lacking = f"checkpoint.saveFreq is {checkpoint.save_freq}"
    elif not (storage.claim_name or storage.storage_class_name):
        lacking = "storage has neither claimName nor storageClassName, and checkpoints go with the pods"
    if lacking:
        yield f"spec.failurePolicy.maxRestarts: {restarts}: each attempt starts anew, since {lacking}"
