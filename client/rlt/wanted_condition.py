"""The condition to wait for, in the forms of `kubectl wait --for`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rlt.errors import UnknownConditionError
from rlt.job_state import Job, can_become_true, get_condition, is_true, summarize
from rlt.program import program_name
from rlt_api.findings.spelling import find_nearest_word
from rlt_api.status.conditions import ConditionType

DELETION = "delete"
"""The value of --for that waits until the job no longer exists."""
STATUSES = ("True", "False", "Unknown")


@dataclass(frozen=True)
class WantedCondition:
    """A condition of a job and its status."""

    type: str
    status: str = "True"

    def __str__(self) -> str:
        return self.type if self.status == "True" else f"{self.type}={self.status}"

    def is_met(self, job: Job) -> bool:
        """Whether the condition has the status for the current generation of the spec."""
        if self.status == "True":
            return is_true(job, self.type)
        found = get_condition(job, self.type) or _build_absent(job, self.type)
        observed = found.get("observedGeneration", 0) >= job["metadata"].get("generation", 0)
        return found.get("status") == self.status and observed

    def can_be_met(self, job: Job) -> bool:
        """Whether it can have the status later: the conditions of an ended job no longer change."""
        if self.status == "True":
            return can_become_true(job, self.type)
        return not any(is_true(job, final) for final in ("Succeeded", "Failed"))

    def explain(self, job: Job) -> str:
        """The state of a job that cannot meet the condition any more, on one line."""
        found = get_condition(job, self.type)
        state = f"{self.type} is {found['status']}: {found['message']}" if found else ""
        return f"{summarize(job)} {state}".strip()


def _build_absent(job: Job, type: str) -> Mapping[str, Any]:
    """A condition that the job does not have: False, if it exists only from the first time on that it is True."""
    if type not in ("Succeeded", "Failed", "Suspended", "Stalled"):
        return {}
    return {"status": "False", "observedGeneration": job.get("status", {}).get("observedGeneration", 0)}


def parse_wanted_condition(text: str) -> WantedCondition:
    """Parse `Succeeded`, `condition=Succeeded` or `condition=Suspended=False`, in any case as kubectl does.

    Raises UnknownConditionError.
    """
    name, _, status = text.removeprefix("condition=").partition("=")
    types = {str(each).lower(): str(each) for each in ConditionType}
    statuses = {each.lower(): each for each in STATUSES}
    found = types.get(name.lower())
    listed = f"{program_name()} wait NAME --for {'|'.join(types.values())}"
    if found is None:
        nearest = find_nearest_word(name.lower(), types, max_distance=2)
        hint = f"did you mean {types[nearest]}?" if nearest else f"use one of {', '.join(types.values())}."
        raise UnknownConditionError(f"No job has a condition {name!r}: {hint}", next=listed)
    if status and status.lower() not in statuses:
        raise UnknownConditionError(f"A condition is not {status!r}: use {', '.join(STATUSES)}.", next=listed)
    return WantedCondition(found, statuses.get(status.lower(), "True"))
