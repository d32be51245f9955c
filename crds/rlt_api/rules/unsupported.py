"""Fields of a spec that another framework cannot take."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from rlt_api.finding import Finding, remove
from rlt_api.spec import RLTrainingJobSpec

TYPE = "spec.framework.type"
REMOVE = "remove it, or use framework.type: builtin"

Unsupported = tuple[str, bool, str, str]
"""Path of a field, whether the spec gives it, why the framework cannot take it, and what to do."""


def build_findings(spec: RLTrainingJobSpec, entries: Iterable[Unsupported]) -> Iterator[Finding]:
    """Build a finding for each field that the spec gives."""
    framework = spec.framework.type
    for field, is_given, reason, fix in entries:
        if is_given:
            message, edits = (
                f"is not supported by framework {framework}: {reason}",
                remove(field) if fix == REMOVE else (),
            )
            yield Finding(field, "given", message, fix, f"framework-{framework}", (TYPE,), edits)
