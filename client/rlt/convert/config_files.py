"""The config files that the program of a source reads: their content in a step of framework.prepare, or a note.

A relative path is in the working directory, which is in the image. The frameworks' images have their own examples.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

from rlt.convert.draft import Draft
from rlt.convert.framework_configs import CONFIGS
from rlt.convert.preparation import MAX_STEPS
from rlt.convert.text import SECRET_VALUE
from rlt_api.frameworks.arguments import Program
from rlt_api.frameworks.known_programs import find_program
from rlt_api.frameworks.roll.script import find_roll_script

Read = Callable[[str], str | None]
"""A path as the source writes it -> the content. None if it cannot be read."""
MAX_CONTENT = 32_768
"""Characters of a file that a job carries."""
EXTENDS = re.compile(r"^(defaults|hydra)\s*:", re.MULTILINE)
"""Keys with which a config reads others, relative to it."""
END = "END_OF_CONFIG"
HYDRA_OPTIONS = {"roll": ("--config_path", "--config_name"), "verl": ("--config-path", "--config-name")}
"""Program -> the options with the folder and the name of its config."""


@dataclass(frozen=True)
class ConfigFile:
    """A file in the words of a command."""

    path: str
    words: Mapping[int, str]
    """Position of a word -> the word, with {folder}, {name} or {path} of the file that replaces it."""


def carry_config_files(draft: Draft, read: Read) -> list[str]:
    """Put the config files that the program reads into the job. Return what must be filled in for the others."""
    command = draft.get("framework.command") or []
    missing = []
    for file in list_config_files(command):
        if file.path.startswith("/mnt/rlt/") or "$" in file.path:
            continue
        content = read(file.path)
        steps = draft.get("framework.prepare") or []
        step_name = _name_step(file.path, steps)
        is_taken = any(each["name"] == _name_step(file.path, []) for each in steps)
        name = step_name.removeprefix("config-") if is_taken else PurePosixPath(file.path).stem
        target = f"{CONFIGS}/{name}{PurePosixPath(file.path).suffix}"
        rejection = _explain_rejection(content, steps)
        if content is None or rejection:
            if note := _name_missing(draft, file.path, target, rejection):
                missing.append(note)
        elif EXTENDS.search(content):
            why = f"it reads other configs, relative to it: put all of them into {CONFIGS} on the volume of the job"
            draft.leave_out(f"the file {file.path}", why)
            missing.append(f"the file {file.path}: {why}")
        else:
            script = f"mkdir -p {CONFIGS} && cat > {shlex.quote(target)} <<'{END}'\n{content.rstrip()}\n{END}\n"
            step = {"name": step_name, "command": ["bash", "-c", script]}
            draft.put("framework.prepare", [*steps, step])
            for position, form in file.words.items():
                command[position] = form.format(folder=CONFIGS, name=name, path=target)
            draft.leave_out(f"the file {file.path}", f"a step of spec.framework.prepare writes its content to {target}")
    return missing


def list_config_files(command: Sequence[str]) -> Iterator[ConfigFile]:
    """List the config files in the words of a command: of ROLL, verl, NeMo-RL, TRL and prime-rl."""
    program = find_program(command)
    if program and program.in_script:
        return
    if program is None and find_roll_script(list(command)):
        yield from _list_hydra(command, *HYDRA_OPTIONS["roll"])
    elif program and program.name == "verl" and program.own_config:
        yield from _list_hydra(command, *HYDRA_OPTIONS["verl"])
    elif program and program.name in ("nemo-rl", "trl"):
        for position, value, form in _find_option(command, "--config"):
            yield ConfigFile(value, {position: form.format("{path}")})
    elif program and program.name == "prime-rl":
        yield from _list_toml(command, program)


def _list_toml(command: Sequence[str], program: Program) -> Iterator[ConfigFile]:
    """@ FILE and @FILE."""
    for position, word in enumerate(command):
        if word == "@" and position + 1 < len(command):
            yield ConfigFile(command[position + 1], {position + 1: "{path}"})
        elif word.startswith("@") and len(word) > 1:
            yield ConfigFile(word[1:], {position: "@{path}"})


def _list_hydra(command: Sequence[str], folder: str, name: str) -> Iterator[ConfigFile]:
    folders = list(_find_option(command, folder))
    names = list(_find_option(command, name))
    if folders and names:
        path = f"{folders[-1][1].rstrip('/')}/{names[-1][1].removesuffix('.yaml')}.yaml"
        position, _, form = folders[-1]
        yield ConfigFile(path, {position: form.format("{folder}"), names[-1][0]: names[-1][2].format("{name}")})


def _find_option(command: Sequence[str], option: str) -> Iterator[tuple[int, str, str]]:
    """The position of the word with the value, the value, and the word with {} in its place."""
    for position, word in enumerate(command):
        if word == option and position + 1 < len(command):
            yield position + 1, command[position + 1], "{}"
        elif word.startswith(f"{option}="):
            yield position, word.partition("=")[2], f"{option}={{}}"


def _explain_rejection(content: str | None, steps: Sequence[object]) -> str:
    """Why the job does not carry a file. Empty if it does."""
    if content is not None and SECRET_VALUE.search(content):
        return "it has a secret"
    too_long = content is not None and (len(content) > MAX_CONTENT or END in content)
    return "it is too large for the job" if too_long or len(steps) >= MAX_STEPS else ""


def _name_missing(draft: Draft, path: str, target: str, rejection: str) -> str | None:
    """Note a file that the job does not have. Return what must be filled in; None for an example of the framework."""
    how = f"put it into {CONFIGS} on the volume of the job, and use {target} in the command"
    if rejection:
        draft.leave_out(f"the file {path}", f"the program reads it, and {rejection}: {how}")
    elif path.startswith("examples/"):
        draft.leave_out(f"the file {path}", f"the program reads it: if the image does not have it, {how}")
        return None
    else:
        why = f"the program reads it, and it is not beside the source: {how}, or use an image that has it"
        draft.leave_out(f"the file {path}", why)
    return f"the file {path}: the program reads it; {how}"


def _name_step(name: str, steps: Sequence[Mapping[str, object]]) -> str:
    stem = re.sub(r"[^a-z0-9]+", "-", PurePosixPath(name).stem.lower()).strip("-")[:40] or "file"
    taken = {each["name"] for each in steps}
    names = (f"config-{stem}", *(f"config-{stem}-{number}" for number in range(2, MAX_STEPS + 2)))
    return next(each for each in names if each not in taken)
