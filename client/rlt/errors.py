"""Errors that the user can act on: a sentence, and the command line that helps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rlt_api.errors import InvalidBlockError, RltError

if TYPE_CHECKING:
    from rlt_api.findings.finding import Finding


__all__ = ["InvalidBlockError", "RltError"]


class InvalidJobError(RltError):
    """The job is invalid. `findings` has field, value, message and fix of each problem."""

    def __init__(self, message: str, *, next: str, findings: Sequence[Finding] = ()) -> None:
        super().__init__(message, next=next)
        self.findings = tuple(findings)


class ClusterError(RltError):
    """No connection to the cluster, or the API server rejects the request. `status`: the HTTP status, or 0."""

    def __init__(self, message: str, *, next: str, status: int = 0) -> None:
        super().__init__(message, next=next)
        self.status = status


class NotFoundError(RltError):
    """The job or pod does not exist, or the job was deleted."""


class FieldConflictError(RltError):
    """Other field managers own fields that the request changes. `owners`: path of each field -> its manager."""

    def __init__(self, name: str, owners: Mapping[str, str], *, next: str) -> None:
        self.owners = owners
        super().__init__(f"{name}: other field managers changed fields that the job sets: {self.fields}.", next=next)

    @property
    def fields(self) -> str:
        """The fields and their managers."""
        return ", ".join(f"{field} (set by {owner})" for field, owner in self.owners.items())


class UnavailableError(RltError):
    """The state of the job does not allow the request: its program does not run, or it has ended."""


class UnknownConditionError(RltError):
    """No job has the condition."""


class JobFailedError(RltError):
    """The condition cannot become True: the job has ended, or was deleted. `job`: the object, None if deleted."""

    def __init__(self, message: str, *, next: str, job: Mapping[str, Any] | None) -> None:
        super().__init__(message, next=next)
        self.job = job


class WaitTimeoutError(RltError, TimeoutError):
    """The condition did not become True in time. `job`: the object, None if it was not read."""

    def __init__(self, message: str, *, next: str, job: Mapping[str, Any] | None) -> None:
        super().__init__(message, next=next)
        self.job = job


class MissingExtraError(RltError, ImportError):
    """An optional package is not installed."""
