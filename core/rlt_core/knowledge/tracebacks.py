"""Exceptions of Python in a log of several processes, whose lines are mixed, prefixed and folded.

Of a chain of exceptions the first one counts: the others follow from it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field

from rlt_core.knowledge.lines import split_tag
from rlt_core.knowledge.neighbors import parse_at, read_above, read_continuation

NEEDLES = (b'File "', b"Traceback (most", b"above exception", b"Error", b"Exception", b"Exit", b"Interrupt", b"Timeout")
"""A line that belongs to an exception contains one of these."""
MAX_INCIDENTS = 100
"""Maximum number of exceptions that are kept: the first ones."""
MAX_PROCESSES = 500
"""Maximum number of processes with an open traceback."""
MAX_TEXT = 1000
"""Maximum number of characters of an exception."""
GROUP = re.compile(r"[ |+-]{1,40}(?=\w)")
"""The frame around the exceptions of a group."""
FOLDED = re.compile(r" \[repeated \d{1,9}x across cluster\].*")
FRAME = re.compile(r'\s*File "(?P<file>[^"]{1,400})", line (?P<line>\d{1,9})(?:, in (?P<function>\S{1,200}))?')
EXCEPTION = re.compile(
    r"(?:[A-Za-z_]\w{0,80}\.){0,12}(?P<name>(?:[A-Za-z_]\w{0,80})?(?:Error|Exception|Exit|Interrupt|Timeout|Failure))"
    r"(?P<rest>:(?: .*)?|\([^)\w].*\)|)$"
)
INLINE = re.compile(r"(?<![\w.(])(?P<name>[A-Z]\w{0,80}(?:Error|Exception)): (?P<rest>\S.*)")
"""An exception in a line of a logger, which has a level or another sign of a failure before it."""
FAILED = re.compile(r"(?:\b(?:ERROR|CRITICAL|FATAL|Unhandled)\b|\b(?:[Ff]ailed|[Ff]ailure)\b|\bException in\b)")
NO_FAILURE = re.compile(r"\b(?:WARNING|WARN|INFO|DEBUG)\b|[ \[][DIWE] \d{1,9} \d{1,9}\] ")
"""Levels before an exception in a line of a logger. Of Ray's own processes, errors do not show a failure either."""
HANDLED = re.compile(
    r"(?:ignored in|\bWARN(?:ING)?\b|[Rr]etry|[Ss]kipp|[Ff]all(?:ing)? ?back|[Nn]on-fatal|\bcontinu(?:e|ing)\b"
    r"|not available|metrics server|\bDEBUG\b|\bignor(?:ed|ing)\b)"
)
"""The line before a traceback, if the program continues."""
WRAPPERS = re.compile(
    r"""(?:RayTaskError|ActorDiedError|RayActorError|ActorUnavailableError|EngineDeadError|ChildFailedError
      |ProcessRaisedException|ProcessExitedException|CalledProcessError|WorkerCrashedError|TaskCancelledError
      |KeyboardInterrupt|SystemExit|CancelledError|GeneratorExit|BrokenPipeError|ChildProcessError|JobFailedError
      |Engine[ ]core[ ]initialization[ ]failed|[Ee]ngine[ ]process[ ]failed[ ]to[ ]start
      |Cancelled[ ]by|Worker[ ]failed[ ]with[ ]error[ ]''|Failed[ ]to[ ]unpickle[ ]serialized[ ]exception)""",
    re.VERBOSE,
)
"""Exceptions that report the exception of another process, or the end of the program."""
NAMED_CAUSE = re.compile(r"RayTaskError\((\w{1,80})\)")
LOOKUPS = ("KeyError", "IndexError", "StopIteration", "AttributeError", "StopAsyncIteration")
"""Exceptions that programs handle in passing: what was raised meanwhile is the cause."""
OPEN_ENDED = re.compile(r"(?:validation errors? for|:\s*$|following (?:error|exception|reason))")
"""A message that is continued on the next lines."""
LIBRARIES = re.compile(
    r"""(?:/ray/(?!rllib|tune)|/asyncio/|/concurrent/futures/|<frozen|<string>|/importlib/|/contextlib\.py|/runpy\.py|/hydra/
      |/torch/(?:utils|nn/modules|_dynamo|_inductor|distributed)/|/threading\.py|/multiprocessing/|uvloop|/fire/|/click/
      |/bin/|/pydantic|/omegaconf/|/site-packages/(?:requests|httpx|urllib3|aiohttp|anyio|starlette|uvicorn)/)""",
    re.VERBOSE,
)
"""Files that are on the way to the code that failed."""
CLEANUP = "/multiprocessing/resource_tracker.py:"
"""Place of exceptions of a process that only removes what others left behind."""


@dataclass
class Incident:
    """One exception, with those that follow from it."""

    name: str
    """Of the class, without its module."""
    text: str
    """Class and message, as in the log."""
    raw: str
    line: int
    """Number of its line, from 1."""
    process: str
    frame: str = ""
    """`function (file:line)` of user or framework code; empty without a traceback."""
    handled: bool = False
    """Whether the line before the traceback shows that the program continues."""
    named: bool = False
    """Whether a wrapper names its class."""


@dataclass
class Open:
    """A process's traceback, before its exception is printed."""

    frame: str = ""
    library_frame: str = ""
    handled: bool = False
    link: str = ""
    """How the next exception of the process follows from `last`: cause, context, or not at all."""
    last: Incident | None = None


@dataclass
class TracebackReader:
    """Collects the exceptions of a log, chunk by chunk."""

    incidents: list[Incident] = field(default_factory=list)
    failed: bool = False
    """Whether a wrapper was printed: a process has failed."""
    _earlier: list[Incident] = field(default_factory=list)
    """What was found before the program continued."""
    _open: dict[str, Open] = field(default_factory=dict)

    def read(self, text: bytes, lines: Iterable[int], start: int, number: int) -> None:
        """Read the lines of a chunk that begin at the positions `lines`; `number` is the line's at `start`."""
        position = start
        for line_start in lines:
            number += text.count(b"\n", position, line_start)
            position = line_start
            self._read_line(text, line_start, number)

    def forget(self) -> None:
        """Set aside what was found: the program has continued. It counts if a process fails without another reason."""
        self._earlier = self.incidents or self._earlier
        self.incidents = []
        self.failed = False
        self._open.clear()

    def choose(self) -> Incident | None:
        """The exception that explains the others; None without one."""
        found = [each for each in self.incidents if not each.handled]
        if self.failed:
            found = found or self.incidents or self._earlier
        ordered = sorted(found, key=lambda each: (not each.named, not each.frame, each.line))
        return ordered[0] if ordered else None

    def _read_line(self, text: bytes, start: int, number: int) -> None:
        raw, line = parse_at(text, start)
        process, content = split_tag(line)
        if process not in self._open and len(self._open) >= MAX_PROCESSES:
            return
        state = self._open.setdefault(process, Open())
        if frame := FRAME.match(content):
            place = f"{frame['function'] or '?'} ({frame['file']}:{frame['line']})"
            library = LIBRARIES.search(frame["file"])
            state.library_frame = place
            state.frame = state.frame if library else place
        elif content.startswith("Traceback (most"):
            above = next(read_above(text, start, process), "")
            state.frame = ""
            state.library_frame = ""
            state.handled = bool(HANDLED.search(above)) and not state.link
        elif "above exception" in content:
            state.link = "cause" if "direct cause" in content else "context"
        else:
            self._read_exception(text, start, number, raw, process, content, state)

    def _read_exception(
        self, text: bytes, start: int, number: int, raw: str, process: str, content: str, state: Open
    ) -> None:
        content = FOLDED.sub("", GROUP.sub("", content, count=1) if content[:1] in " |+" else content).strip()
        if cause := NAMED_CAUSE.search(content):
            self.failed = True
            self._name(cause[1])
        if WRAPPERS.search(content):
            self.failed |= "ignored" not in content
            return
        match = EXCEPTION.match(content) or INLINE.search(content)
        if match is None:
            return
        before = raw.partition(match[0])[0]
        if NO_FAILURE.search(before) or (match.start() and not FAILED.search(before)):
            return
        evidence = content
        code = next((each.strip() for each in read_above(text, start, process) if not set(each) <= set(" ^~")), "")
        if not match["rest"].strip(": ") or code.startswith("assert "):
            evidence = f"{evidence} {code}" if state.library_frame and not FRAME.match(code) else evidence
        elif OPEN_ENDED.search(evidence):
            evidence = f"{evidence} {read_continuation(text, start, process)}"
        frame = state.frame or state.library_frame
        if CLEANUP in frame:
            return
        found = Incident(match["name"], evidence[:MAX_TEXT], raw, number, process, frame, state.handled)
        self._add(found, state)

    def _add(self, found: Incident, state: Open) -> None:
        """Add an exception, unless it follows from the last one of its process or repeats another one."""
        last = state.last
        link = state.link
        state.link = ""
        state.frame = ""
        state.library_frame = ""
        follows = link and last is not None
        if follows and last is not None and link == "context" and last.name in LOOKUPS and last in self.incidents:
            self.incidents.remove(last)
            follows = False
        if follows:
            return
        state.last = found
        if len(self.incidents) < MAX_INCIDENTS and all(each.text != found.text for each in self.incidents):
            self.incidents.append(found)

    def _name(self, name: str) -> None:
        for each in self.incidents:
            each.named |= each.name == name


def find_exception_lines(text: bytes, start: int) -> list[int]:
    """The starts of the lines that may belong to an exception."""
    starts = set[int]()
    for needle in NEEDLES:
        position = text.find(needle, start)
        while position >= 0:
            starts.add(text.rfind(b"\n", start, position) + 1 or start)
            end = text.find(b"\n", position)
            position = text.find(needle, end) if end >= 0 else -1
    return sorted(starts)
