"""The check `engine`: the engine of the job loads the model in a child process of a worker and generates a line."""

from __future__ import annotations

import json
import re
import sys
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from rlt_pod.preflight.result import Result, failed, passed
from rlt_pod.preflight.trial.child import run_child
from rlt_pod.preflight.trial.generate_line import ANSWER_PREFIX

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rlt_pod.preflight.expected import Engine

ENGINE_TIMEOUT_S = 1800.0
"""Time to load the model, also from a slow volume or the hub, and to generate."""
KEPT_LINES = 200
MAX_CHARACTERS = 80
ERROR = re.compile(r"(?:^|[\s:])((?:[a-z_]\w*\.)*[A-Z]\w*(?:Error|Exception|Exit)): *(\S.*)")
"""A line of Python with the name and the text of an error."""
PYDANTIC_ERROR = re.compile(r"^ *Value error, (\S.*?)(?: \[type=|$)")
"""The text of an error below pydantic's `ValidationError: 1 validation error for ModelConfig`."""
MAX_ERROR_CHARACTERS = 300
WRAPPERS = ("Engine core initialization failed", "Engine core proc", "EngineDeadError")
"""Texts of vLLM's errors whose cause is above."""
START = "import sys; sys.path.insert(0, {directory!r}); from rlt_pod.preflight.trial.generate_line import main; main()"
REMEDY = (
    "Correct the cause, which would also end the training: the model, the image's version of the engine, or the "
    "engine's memory and tensor parallel size. The log of the preflight has its last lines."
)


@dataclass(frozen=True)
class Answer:
    """What the engine generated."""

    pod: str
    seconds: float = 0.0
    """To load the model and to generate."""
    tokens: int = 0
    text: str = ""
    error: str | None = None
    last_lines: tuple[str, ...] = ()
    """The end of the engine's output."""


def ask_engine(engine: Engine, pod: str, directory: str, timeout_s: float = ENGINE_TIMEOUT_S) -> Answer:
    """Start the engine in a child process and generate a line. `directory` has the package rlt_core."""
    answers: list[dict[str, Any]] = []

    def read(line: str) -> None:
        if line.startswith(ANSWER_PREFIX):
            answers.append(json.loads(line[len(ANSWER_PREFIX) :]))

    program = [sys.executable, "-u", "-c", START.format(directory=directory), json.dumps(asdict(engine))]
    try:
        ended = run_child(program, timeout_s, lines=KEPT_LINES, on_line=read, own_session=True)
    except OSError as error:
        return Answer(pod, error=str(error))
    if answers:
        return Answer(pod, **answers[-1])
    if ended.code is None:
        error_text = f"it generated nothing within {timeout_s:.0f} s"
    else:
        error_text = find_error(ended.last_lines) or f"it exited with code {ended.code}"
    return Answer(pod, error=error_text, last_lines=ended.last_lines)


def find_error(lines: Sequence[str]) -> str | None:
    """Find the last error of Python in the lines, of those that do not report another one."""
    values = [match[1] for match in map(PYDANTIC_ERROR.search, lines) if match]
    if values:
        return f"ValueError: {values[-1]}"[:MAX_ERROR_CHARACTERS]
    found = [match for match in map(ERROR.search, lines) if match]
    causes = [match for match in found if not any(text in match[0] for text in WRAPPERS)]
    if not found:
        return None
    match = (causes or found)[-1]
    return f"{match[1].rpartition('.')[2]}: {match[2]}"[:MAX_ERROR_CHARACTERS]


def check_answer(engine: Engine, answer: Answer, timeout_s: float = ENGINE_TIMEOUT_S) -> Result:
    """The engine has generated at least one token."""
    limit = f"{timeout_s:.0f} s"
    name = f"{engine.name} with {engine.model} (tensor parallel size {engine.tensor_parallel_size})"
    if answer.error is not None:
        return failed("engine", None, f"{name} does not start: {answer.error}", REMEDY, [answer.pod], threshold=limit)
    value = f"{answer.seconds:.1f} s"
    if not answer.tokens:
        return failed("engine", value, f"{name} generated no token.", REMEDY, [answer.pod], threshold=limit)
    text = answer.text[:MAX_CHARACTERS]
    return passed("engine", value, f"{name} generated {answer.tokens} tokens: {text!r}.", threshold=limit)
