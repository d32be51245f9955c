"""Lines of logs: their text without colors and prefixes, and the process, rank and time in the prefixes."""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass
from functools import cache
from importlib import resources

COLOR_BYTES = re.compile(rb"\x1b(?:\[[0-9;?]*[ -/]*[@-~]|\][^\x07\x1b\n]*(?:\x07|\x1b\\)?)")
"""Escape sequences of terminals (ECMA-48: CSI and OSC)."""
PREFIXES = re.compile(
    r"""\s*(?:
        \((?P<process>(?:[\w.:<>/ =-]+(?:\([\w-]+\))?[ ]pid=\d+|raylet|gcs_server|pid=\w+)
          (?:,[ ]ip=[^)\s]+)?)\)                                             # Ray, vLLM
      | (?P<host>[a-z\d][\w.-]*):[ ](?=\[rank\d)                           # DeepSpeed's launcher
      | [A-Z][a-z]{2}[ ]{1,2}\d{1,2}[ ]\d\d:\d\d:\d\d[ ][\w.-]+[ ][\w./@-]+\[\d+\]:  # syslog
      | \[rank(?P<rank>\d+)\]:?                                             # torch
      | \[(?:pod/)?(?P<pod>[a-z0-9][\w.-]*(?:/[\w.-]+)+)\]                  # kubectl logs --prefix
      | \[?\d{4}-\d\d-\d\d[T\ ,]\d\d:\d\d:\d\d[.,\d]*(?:Z|[+-]\d\d:?\d\d)?\]?:?(?:[ ]std(?:out|err)[ ][FP])?
      | \[?[IWEF]\d{4}[ ]\d\d:\d\d:\d\d\.\d+[ ]+(?:\d+[ ]+)?[\w./-]+:\d+\]  # glog
      | \[[IWEF]\d{3}[ ]\d\d:\d\d:\d\d\.\d+[ ][\w./-]+:\d+\]                # torch
      | (?:DEBUG|INFO|WARNING|ERROR|CRITICAL):?[ ]+\d\d-\d\d[ ]\d\d:\d\d:\d\d[ ]\[[\w./-]+:\d+\]  # vLLM
      | \[(?:repeated|\d+x).*?\]
    )""",
    re.VERBOSE,
)
TAG = re.compile(r"\s*\[(?P<tag>[A-Za-z][\w.:/@-]{0,60})\][: ]\s?")
"""The name of a process, as launchers print it."""
RANK = re.compile(r"\[[Rr]ank[ _]?(\d+)\]|\b(?:RANK|[Rr]ank)[ =:]+(\d+)\b")
WORKER = re.compile(
    r"""(?:\(pid=(?P<pid>\d{1,9}),[ ]ip=(?P<ip>[\w.:-]{1,255}))|Worker[ ]IP[ ]address:[ ](?P<address>[\w.:-]{1,255})[ ]
      Worker[ ]port:[ ]\d{1,9}[ ]Worker[ ]PID:[ ](?P<worker>\d{1,9})""",
    re.VERBOSE,
)
"""The process in a message of Ray about its end."""
NODE = re.compile(
    r"""[(,][ ]ip=(?P<ray>[\w.:-]{1,255})
      |^(?P<nccl>[\w.-]{1,255}):\d{1,9}:\d{1,9}[ ]\[\d{1,4}\][ ]
      |\bWorker[ ]IP[ ]address:[ ](?P<worker>[\w.:-]{1,255})
      |^(?:srun|slurmstepd):[ ]error:[ ](?P<slurm>[a-z][\w.-]{1,255}):[ ]task
      |^[A-Z][a-z]{2}[ ]{1,2}\d{1,2}[ ]\d\d:\d\d:\d\d[ ](?P<syslog>[\w.-]{1,255})[ ]""",
    re.VERBOSE,
)
"""Prefixes of Ray, NCCL and syslog, and messages of Ray and Slurm that name a node."""
TIME = re.compile(r"(?<!\d)(\d{4}-\d\d-\d\d)[T ](\d\d:\d\d:\d\d(?:[.,]\d+)?)")
MAX_LENGTH = 4000
"""Maximum number of characters of a line that are searched on each side of a word."""


@dataclass(frozen=True)
class Line:
    """One line of a log."""

    raw: str
    text: str
    """Without prefixes."""
    process: str
    """What the prefixes name: Ray's process, torch's rank, a pod. Empty if they name none."""
    starts_message: bool
    """Whether the prefixes contain a time or a level, so that the line does not continue another one."""


def clean_bytes(data: bytes) -> bytes:
    """Remove colors, carriage returns and the zeros of UTF-16, and add translations. The number of lines stays."""
    if b"\0" in data:
        data = data.translate(None, b"\0")
    if b"\x1b" in data:
        data = COLOR_BYTES.sub(b"", data)
    if b"\r" in data:
        data = data.replace(b"\r\n", b"\n").replace(b"\r", b" ")
    if not data.isascii():
        for text, translation in _load_translations():
            data = data.replace(text, translation)
    return data


@cache
def _load_translations() -> tuple[tuple[bytes, bytes], ...]:
    """Messages in other languages, and the same messages followed by the English ones."""
    table = tomllib.loads((resources.files(__package__) / "translations.toml").read_text(encoding="utf-8"))
    return tuple((text.encode(), f"{text} ({english})".encode()) for text, english in table.items())


def parse_line(raw: str) -> Line:
    """Read the prefixes of a line without colors."""
    end = 0
    processes = []
    starts_message = False
    while (match := PREFIXES.match(raw, end)) and match.end() > end:
        processes += [value for value in match.groups() if value]
        starts_message |= not match.lastgroup
        end = match.end()
    text = raw[end:].removeprefix(" ") if end else raw
    return Line(raw, text, " ".join(processes), starts_message)


def split_tag(line: Line) -> tuple[str, str]:
    """The process of a line and its text. A launcher's tag counts as a process where the prefixes name none."""
    tag = None if line.process else TAG.match(line.text)
    return (tag["tag"], line.text[tag.end() :]) if tag else (line.process, line.text)


def find_rank(raw: str) -> int | None:
    """The rank that the line names."""
    match = RANK.search(raw)
    return int(match[1] or match[2]) if match else None


def find_node(raw: str) -> str:
    """The address or the name of the node that the line names; empty without one."""
    match = NODE.search(raw[:MAX_LENGTH])
    return next(filter(None, match.groups()), "") if match else ""


def find_process(raw: str) -> str:
    """The process of another log that the line is about, such as `1530113 on 10.0.0.3`; empty without one."""
    worker = WORKER.search(raw)
    return f"{worker['pid'] or worker['worker']} on {worker['ip'] or worker['address']}" if worker else ""


def find_time(raw: str) -> str | None:
    """The date and time in a line, in a form that sorts. None without both."""
    match = TIME.search(raw[:200])
    return f"{match[1]} {match[2].replace(',', '.')}" if match else None
