"""What happened, why, and what to do: findings from logs, the best first."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import BinaryIO

from rlt_api.findings.masking import mask_text
from rlt_core.knowledge.collectives import describe_late_ranks
from rlt_core.knowledge.entries import SEVERITIES, load_entries
from rlt_core.knowledge.fallback import EXCEPTION, FATAL_LINE, UNKNOWN
from rlt_core.knowledge.scan import Match, scan_log

MAX_EFFECT = 25
"""Maximum priority of an error that an earlier one can cause: timeouts, lost connections, wrappers of NCCL."""
MAX_EVIDENCE_LENGTH = 500
"""Maximum number of characters of the evidence."""


@dataclass(frozen=True)
class LogFinding:
    """One known failure that a log shows."""

    code: str
    severity: str
    """error, warning, or wrapper."""
    message: str
    """What happened, and why."""
    evidence: str
    """The line of the log, with its secrets masked."""
    remedy: str
    source: str
    """URL of the explanation."""
    log: int
    """Index of the log with the evidence."""
    line: int
    """Number of its line, from 1."""
    rank: int | None
    """The rank that printed the line, if known."""
    process: str
    """The process in the prefix of the line, as Ray prints it. Empty without one."""
    node: str
    """Address or name of the node that the line names. Empty without one."""


def diagnose_logs(streams: Iterable[BinaryIO], *, expects_rdma: bool = False, failed: bool = False) -> list[LogFinding]:
    """Search logs, opened in binary mode, for failures. The best explanation is first.

    `expects_rdma`: whether the nodes have RDMA that the job uses. Otherwise, variables in the logs show it.
    `failed`: whether the program is known to have failed. Otherwise, errors before its last step count only if another
    failure follows.
    """
    entries = load_entries()
    logs = [
        scan_log(stream, entries, index, expects_rdma=expects_rdma, failed=failed)
        for index, stream in enumerate(streams)
    ]
    matches = [match for log in logs for match in log.matches]
    last_lines = {rank: line for log in logs for rank, line in log.ranks.last.items()}
    world_size = max((log.world_size for log in logs), default=0)
    late = describe_late_ranks(matches, world_size, last_lines, sum(log.ranks.folded for log in logs))
    return [_build_finding(match, late) for match in rank_matches(_weigh_unknown(_keep_first(matches)))]


def rank_matches(matches: Sequence[Match]) -> list[Match]:
    """Order matches of different entries: causes before their effects.

    Errors precede warnings and wrappers, a higher priority precedes a lower one, an earlier line a later one. Times
    compare lines of several logs if all have one; otherwise the order of the logs does.
    """
    timed = all(match.time for match in matches)

    def sort_key(match: Match) -> tuple[int, int, str, int, int]:
        time = match.time if timed and match.time else ""
        return SEVERITIES.index(match.entry.severity), -match.entry.priority, time, match.log, match.line

    return sorted(matches, key=sort_key)


def _weigh_unknown(matches: Sequence[Match]) -> list[Match]:
    """Keep one unknown failure. It precedes the effects that follow it."""
    unknown = next((each for code in (EXCEPTION, FATAL_LINE) for each in matches if each.entry.code == code), None)
    kept = [each for each in matches if each is unknown or each.entry.code not in UNKNOWN]
    effects = [each for each in kept if each.entry.severity == "error" and each.entry.priority <= MAX_EFFECT]
    if unknown is None or any((each.log, each.line) < (unknown.log, unknown.line) for each in effects):
        return kept
    cause = replace(unknown, entry=replace(unknown.entry, priority=MAX_EFFECT + 1))
    return [cause if each is unknown else each for each in kept]


def _keep_first(matches: Iterable[Match]) -> list[Match]:
    """The first match of each entry."""
    first: dict[str, Match] = {}
    for match in matches:
        first.setdefault(match.entry.code, match)
    return list(first.values())


def _build_finding(match: Match, late: str) -> LogFinding:
    entry = match.entry
    message = " ".join(filter(None, [entry.message, match.detail, late if entry.compares_ranks else ""]))
    evidence = mask_text(match.evidence)
    if len(evidence) > MAX_EVIDENCE_LENGTH:
        evidence = evidence[: MAX_EVIDENCE_LENGTH - 1] + "…"
    return LogFinding(
        entry.code,
        entry.severity,
        message,
        evidence,
        entry.remedy,
        entry.source,
        match.log,
        match.line,
        match.rank,
        "" if match.process == str(match.rank) else match.process,
        match.node,
    )
