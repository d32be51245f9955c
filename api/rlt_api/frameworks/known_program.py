"""The record of a program that command jobs start: how it is recognized, and what its arguments request.

Each framework has one in its folder (`program.py`), and known_programs.py lists them. A part that a program does not
have is empty.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from rlt_api.findings.finding import Finding
from rlt_api.frameworks.arguments import Program, Word
from rlt_api.spec.job_spec import RLTrainingJobSpec
from rlt_pod.preflight.expected import Engine, NotPossible

OPERATORS = frozenset("();<>|&")


@dataclass(frozen=True)
class Call:
    """One start of a known program in a command."""

    entry: str
    """The word that names it: a module, a script or a command."""
    subcommand: str
    """The word after it that also names it, such as grpo after trl. Empty if there is none."""
    launcher: tuple[str, ...]
    """The words of the same command before it."""
    words: tuple[Word, ...]
    """Its arguments."""


Rule = Callable[[Program, RLTrainingJobSpec], Iterator[Finding]]
Warn = Callable[[Program, RLTrainingJobSpec], Iterator[str]]
Recognizer = Callable[[Sequence[str], int], int | None]
"""All words, and a position in them -> the position of the first argument, if the word there starts the program."""


@dataclass(frozen=True)
class Demand:
    """The accelerators that the arguments of a program request."""

    training: int
    """Accelerators of the training, in all pods."""
    engines: int = 0
    """Further accelerators for the engines. 0 if the engines run on the accelerators of the training."""
    per_pod: int | None = None
    """Accelerators that the training needs in each pod. None if any distribution is possible."""
    keys: tuple[str, ...] = ()
    """The arguments that determine it, as a user writes them. The first one is named in messages."""

    @property
    def total(self) -> int:
        return self.training + self.engines

    def divide(self, size: int = 8) -> tuple[int, int]:
        """Divide the accelerators into equal pods: their number, and the accelerators of each. `size`: of a machine."""
        if self.per_pod and self.total % self.per_pod == 0 and not self.engines:
            return self.total // self.per_pod, self.per_pod
        each = size if self.total % size == 0 else min(size, self.total)
        return -(-self.total // each), each


Shortened = tuple[list[str], list[str] | None] | NotPossible
"""Arguments for one step, and for a second start that resumes after it. None: the program loads no checkpoint."""


def _has_none(program: Program) -> None:
    return None


def _has_no_folder(program: Program) -> None:
    return None


def _never(program: Program) -> bool:
    return False


def _find_nothing(program: Program, spec: RLTrainingJobSpec) -> Iterator[Finding]:
    return iter(())


def _warn_nothing(program: Program, spec: RLTrainingJobSpec) -> Iterator[str]:
    return iter(())


@dataclass(frozen=True)
class KnownProgram:
    """A program of command jobs whose arguments are read. Arguments are named by their keys (Argument.key)."""

    name: str
    title: str
    """Its name in messages."""
    recognize: Recognizer
    read: Callable[[Call], Program]
    count_devices: Callable[[Program], Demand | None] = _has_none
    """The accelerators that the arguments request. None if they are unknown."""
    models: tuple[str, ...] = ()
    """The arguments with a model, the policy's first: a folder, or a name on the hub."""
    prompts: tuple[str, ...] = ()
    """The arguments with prompts: a file, or a list of files in brackets or between commas."""
    other_hubs: tuple[str, ...] = ()
    """Flags that select another hub than Hugging Face's."""
    checkpoints: str = ""
    """The argument with the folder of the checkpoints."""
    find_checkpoints: Callable[[Program], str | None] = _has_no_folder
    """The folder of the checkpoints, if no argument has it as such."""
    resume: Mapping[str, str] | None = None
    """Argument -> the value with which a new attempt resumes from the latest checkpoint, for documentation. Empty if
    the program resumes by itself."""
    rollouts: str = ""
    """The argument with a folder of responses as verl writes them."""
    chat_template: str = ""
    """The argument with the text of a chat template."""
    uses_bfloat16: Callable[[Program], bool] = _never
    """Whether the engine computes in bfloat16. False if that is unknown."""
    validate: Rule = _find_nothing
    """Arguments that do not fit the job."""
    warn: Warn = _warn_nothing
    """Arguments that are probably a mistake."""
    build_engine: Callable[[Program], Engine | NotPossible] | None = None
    """The engine of the preflight check `engine`."""
    shorten: Callable[[Program, str], Shortened] | None = None
    """The arguments that shorten the training to the steps of the preflight check, in a folder."""

    @property
    def policy(self) -> str:
        """The argument with the policy. Empty if there is none."""
        return self.models[0] if self.models else ""


def all_rules(*rules: Rule) -> Rule:
    """Join rules."""

    def validate(program: Program, spec: RLTrainingJobSpec) -> Iterator[Finding]:
        for each in rules:
            yield from each(program, spec)

    return validate


def all_of(*warns: Warn) -> Warn:
    """Join warnings."""

    def warn(program: Program, spec: RLTrainingJobSpec) -> Iterator[str]:
        for each in warns:
            yield from each(program, spec)

    return warn


def by_module(*modules: str) -> Recognizer:
    """Recognize a program by the end of its Python module, or of the script's path: verl/trainer/main_ppo.py."""

    def recognize(words: Sequence[str], position: int) -> int | None:
        module = words[position].removesuffix(".py").replace("/", ".")
        found = any(module == name or module.endswith(f".{name}") for name in modules)
        return position + 1 if found else None

    return recognize


def by_script(pattern: str, *options: str) -> Recognizer:
    """Recognize a program by its script, a regular expression of the path, and one of the options that it has."""

    def recognize(words: Sequence[str], position: int) -> int | None:
        if not re.fullmatch(pattern, words[position]):
            return None
        given = {word.partition("=")[0] for word in words[position + 1 :]}
        return position + 1 if not options or given & set(options) else None

    return recognize


def by_command(name: str, *subcommands: str) -> Recognizer:
    """Recognize a program by its command and the word after it, such as trl grpo."""

    def recognize(words: Sequence[str], position: int) -> int | None:
        found = words[position].rpartition("/")[2] == name and words[position + 1 : position + 2]
        return position + 2 if found and found[0] in subcommands else None

    return recognize


def any_of(*recognizers: Recognizer) -> Recognizer:
    """Recognize a program by any of these."""

    def recognize(words: Sequence[str], position: int) -> int | None:
        return next((found for each in recognizers if (found := each(words, position)) is not None), None)

    return recognize


def find_call(recognize: Recognizer, words: Sequence[Word], position: int) -> Call | None:
    """Find the call of a program whose name is the word at this position."""
    texts = [text for _, text in words]
    start = recognize(texts, position)
    if start is None:
        return None
    rest: list[Word] = []
    for index, text in words[start:]:
        if text and set(text) <= OPERATORS:  # the end of the command in a script
            break
        rest.append((index, text))
    if rest and rest[-1][1].isdigit() and len(words) > start + len(rest):
        rest.pop()  # the file descriptor of 2>&1
    first = max((index + 1 for index, text in enumerate(texts[:position]) if set(text) <= OPERATORS), default=0)
    subcommand = texts[position + 1] if start > position + 1 else ""
    return Call(texts[position], subcommand, tuple(texts[first:position]), tuple(rest))
