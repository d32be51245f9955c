"""What happened in the sandbox of a rollout. The agent's programs have written it: texts are quoted."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

MAX_LINES = 10
"""Maximum number of lines of an output: the last ones."""


def format_sandbox(sandbox: Any) -> Iterator[str]:
    """Yield the lines about a sandbox. None: the response has none, or its step was recorded without it."""
    if not isinstance(sandbox, Mapping):
        yield "sandbox   none recorded"
        return
    programs = _list_mappings(sandbox.get("programs"))
    yield f"sandbox   pod {sandbox.get('pod')}, {len(programs)} of {sandbox.get('num_programs')} programs:"
    for program in programs:
        problem = program.get("problem")
        how = str(problem) if problem else f"exit code {program.get('exit_code')}"
        yield f"  {str(program.get('command'))!r}: {how}"
        for line in str(program.get("output", "")).splitlines()[-MAX_LINES:]:
            yield f"    {line!r}"
    for file in _list_mappings(sandbox.get("files")):
        yield f"  file {str(file.get('path'))!r}, {file.get('size')} bytes"
    if end := sandbox.get("end"):
        yield f"  end: {end}"


def _list_mappings(given: Any) -> list[Mapping[str, Any]]:
    return [each for each in given if isinstance(each, Mapping)] if isinstance(given, list) else []
