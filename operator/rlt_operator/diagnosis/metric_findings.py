"""Findings for the rules over the metrics that a running program reports as broken. Pure."""

from __future__ import annotations

from rlt_api.spec.training_config import ProgressReport
from rlt_api.status.job_status import FailureFinding
from rlt_core.knowledge.entries import load_entries
from rlt_operator.conditions import METRIC_CODES


def find_broken_rules(report: ProgressReport | None) -> tuple[FailureFinding, ...]:
    """One finding for each broken rule of the report, the one that damages the policy most first: the status keeps a
    limited number. Rules of a newer program are ignored."""
    if report is None or not report.broken_rules:
        return ()
    broken = {each.rule[:1].upper() + each.rule[1:]: each.evidence for each in report.broken_rules}
    entries = [entry for entry in load_entries() if entry.code in METRIC_CODES & broken.keys()]
    return tuple(
        FailureFinding(
            code=entry.code,
            severity=entry.severity,
            message=entry.message,
            evidence=broken[entry.code],
            remedy=entry.remedy,
            source=entry.source,
        )
        for entry in sorted(entries, key=lambda each: -each.priority)
    )
