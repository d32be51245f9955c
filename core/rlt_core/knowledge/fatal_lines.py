"""Lines with which programs that are not Python report a failure: NCCL, CUDA, the kernel, Slurm, containers, events."""

from __future__ import annotations

import re
from dataclasses import dataclass

from rlt_core.knowledge.lines import MAX_LENGTH, parse_line

NEEDLES = (
    b"NCCL WARN", b"error", b"Error", b"ERROR", b"Xid", b"fatal", b"FATAL", b"Fatal", b"failure", b"panic", b"segfault",
    b"Check failed", b"Assertion", b"Warning ", b".go:", b"what():",
    b"general protection",
)  # fmt: skip
"""A fatal line contains one of these."""
MAX_LINES = 2000
"""Maximum number of lines of a chunk that are read: the last ones."""
FATAL = re.compile(
    r"""(?:
        .{0,120}\bNCCL\ WARN\ .
      | .{0,200}\bNVRM:\ Xid\b(?!\ \([^)]{1,60}\):\ (?:43|45|63|92)\b)     # not the Xids at the end of a program
      | .{0,200}(?:\bCuda\ failure\b|\b(?:CUDA|Cuda|HIP)\ error\b|\bCUDA_ERROR_[A-Z])
      | (?:\[\s{0,9}\d{1,9}\.\d{1,9}\]|.{0,80}\bkernel:)\ .{0,200}
        (?:\bsegfault\ at\b|\bgeneral\ protection\b|\bI/O\ error\b)
      | (?:srun|sbatch|salloc|slurmstepd|slurmd|scontrol):\ (?:error|fatal):\ .
      | (?:docker|podman|nerdctl|apptainer|singularity|enroot|enroot-\w{1,20}|kubelet|containerd):\ .{0,40}
        \b(?:[Ee]rror|ERROR|FATAL|permission\ denied)\b
      | .{0,60}\bError\ response\ from\ daemon:\ .
      | \s{0,9}(?:\S{1,20}\s{1,9})?Warning\s{1,9}[A-Z]\w{2,60}\s{1,9}\S   # an event, as kubectl prints it
      | \[[\d-]{10}\ [\d:,]{8,15}\ [CF]\ \d{1,9}\ \d{1,9}\]                # Ray
      | .{0,200}(?:\bCheck\ failed:|\bAssertion\ failed:|\bAssertion\ `[^`']{1,200}'\ failed\b).
      | terminate\ called\ after\ throwing | \s{0,9}what\(\):\ \ ? | Fatal\ Python\ error: | panic:\ .
      | (?:[\w./-]{1,60}:\ (?:line\ \d{1,9}:\ )?)?(?:error|fatal|fatal\ error|FATAL|ERROR|FATAL\ ERROR|Error):\ {1,9}\S
    )""",
    re.VERBOSE,
)
EFFECT = re.compile(
    r"""(?:Exited\ with\ exit\ code|task\s[\d,-]{1,40}:\ (?:Killed|Terminated|Aborted)|STEP\ .{0,80}CANCELLED
      |Job\ step\ aborted|Fatal\ Python\ error|Preempted|Terminating|launch\ failed:\ Plugin
      |Warning\s{1,9}(?:BackOff|Unhealthy|FailedScheduling|NodeNotReady|Killing|DNSConfigForming)
      |unusual\ entrypoint|start\ failed\ with|printing\ \w|failed\ to\ import|child\ \d+\ failed|Plugin\ stack
      |Failed\ to\ invoke\ spank|couldn't\ start\ container|spank:\ required\ plugin
      |\b0\ errors?\b|\bERROR:\ 0\b|error:\ (?:None|null)\b|what\(\):\s{0,9}$)""",
    re.VERBOSE,
)
"""Lines that follow from another failure, or do not end a program."""
KLOG_ERROR = re.compile(r"[EF]\d{4} \d\d:\d\d:\d\d\.\d{1,9} ")


@dataclass(frozen=True)
class FatalLine:
    """The last line of a log that reports a failure."""

    raw: str
    text: str
    line: int
    process: str


def find_fatal_line(text: bytes, start: int, number: int) -> FatalLine | None:
    """The last fatal line of a chunk from the position `start`, whose number is `number`."""
    for line_start in sorted(_find_lines(text, start), reverse=True)[:MAX_LINES]:
        end = text.find(b"\n", line_start)
        raw = text[line_start : min(end if end >= 0 else len(text), line_start + MAX_LENGTH)].decode("utf-8", "replace")
        line = parse_line(raw)
        fatal = FATAL.match(line.text) or FATAL.match(raw) or KLOG_ERROR.match(raw)
        if fatal and "NCCL INFO" not in raw and not EFFECT.search(line.text):
            return FatalLine(raw, line.text.strip(), number + text.count(b"\n", start, line_start), line.process)
    return None


def _find_lines(text: bytes, start: int) -> set[int]:
    starts = set[int]()
    for needle in NEEDLES:
        position = len(text)
        for _ in range(MAX_LINES):
            position = text.rfind(needle, start, position)
            if position < 0:
                break
            position = max(text.rfind(b"\n", start, position) + 1, start)
            starts.add(position)
    return starts
