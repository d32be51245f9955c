"""The program in a launch script: without srun, ray, docker and the other commands that start it elsewhere."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from rlt.convert.draft import ConvertError, Draft
from rlt.convert.environment import apply_environment
from rlt.convert.shell import Command, Script, read_script
from rlt.convert.text import UNQUOTED, is_known, mark_plain, reveal, show
from rlt.convert.wrappers import WRAPPERS, Wrapper, get_kind, is_working_directory

__all__ = ["Launch", "apply_environment", "find_inner_script", "list_launches", "unwrap"]

SHELLS = ("bash", "sh", "zsh", "dash")
MAX_DEPTH = 8
"""Maximum number of scripts inside each other."""


@dataclass
class Launch:
    """A program, and how the script starts it."""

    words: tuple[str, ...]
    command: Command
    line: int
    environment: dict[str, str] = field(default_factory=dict)
    """The variables before the program."""
    exported: dict[str, str] = field(default_factory=dict)
    """The exported variables of the script."""
    lines: dict[str, int] = field(default_factory=dict)
    options: list[tuple[str, str, str]] = field(default_factory=list)
    """Command, option and value of each wrapper, such as docker run, --shm-size, 64g."""
    wrappers: list[Wrapper] = field(default_factory=list)
    image: str | None = None
    directory: str = ""
    inner: bool = False
    """Whether its program is a script that was read: its commands are other launches."""

    @property
    def plain(self) -> tuple[str, ...]:
        """The words without the marks of expansions."""
        return tuple(map(mark_plain, self.words))


def unwrap(command: Command) -> Launch:
    """Remove the wrappers of a command."""
    launch = Launch(
        command.words, command, command.line, dict(command.environment), dict(command.exported), dict(command.lines),
        directory=command.directory,
    )  # fmt: skip
    while (wrapper := _find_wrapper(launch.words)) is not None:
        words = list(launch.words[len(wrapper.name.split()) :])
        launch.wrappers.append(wrapper)
        module = False
        directory = ""
        while words and _is_option(words[0], wrapper) and words[0] != "--":
            if wrapper.name in ("uv run", "coverage run") and words[0] in ("-m", "--module"):
                module = True
                launch.options.append((wrapper.name, words.pop(0), ""))
                break
            option, equals, value = words.pop(0).partition("=")
            if not option.startswith("-"):
                if equals:
                    launch.environment[option] = value
                else:
                    launch.options.append((wrapper.name, option, ""))
                continue
            if not equals and not re.fullmatch(wrapper.flags, option) and words:
                option, value = _split_short(option) or (option, words.pop(0))
            launch.options.append((wrapper.name, option, value))
            if is_working_directory(get_kind(wrapper.name), option) and reveal(value).startswith("/"):
                directory = reveal(value)
        if words[:1] == ["--"]:
            launch.options.append((wrapper.name, words.pop(0), ""))
        elif wrapper.target and words:
            target = words.pop(0)
            if wrapper.target == "image":
                launch.image = target
                launch.directory = "" if "docker" in wrapper.name or "podman" in wrapper.name else launch.directory
            else:
                launch.options.append((wrapper.name, target, ""))
        launch.directory = directory or launch.directory
        if words[:1] == ["--"]:
            words.pop(0)
        if wrapper.name in ("uv run", "coverage run") and words:
            if words[0].endswith(".py") and not module:
                launch.options.append((wrapper.name, words[0], ""))
            words = _start_python(words, module)
        launch.words = tuple(words)
    return launch


def _is_option(word: str, wrapper: Wrapper) -> bool:
    if wrapper.name in ("env", "sudo") and re.match(r"[A-Za-z_]\w*=", word):
        return True
    return word.startswith("-") or (word.startswith(f"{UNQUOTED}$") and not wrapper.target)


def _split_short(option: str) -> tuple[str, str] | None:
    """-N2 as -N and 2."""
    match = re.fullmatch(r"(-[A-Za-z])([\d/.].*)", option)
    return (match[1], match[2]) if match else None


def _start_python(words: list[str], module: bool) -> list[str]:
    if module:
        return ["python", "-m", *words]
    return ["python", *words] if words[0].endswith(".py") else words


def _find_wrapper(words: Sequence[str]) -> Wrapper | None:
    if not words:
        return None
    first = words[0].rpartition("/")[2]
    text = " ".join((first, *words[1:3]))
    for each in WRAPPERS:
        if text == each.name or text.startswith(f"{each.name} "):
            return each
    if first == "docker" and words[1:2] == ("compose",):
        return None
    return None


def find_inner_script(words: Sequence[str]) -> str | None:
    """The script of `bash -c SCRIPT`."""
    if words and words[0].rpartition("/")[2] in SHELLS:
        for option, script in pairwise(words[1:]):
            if re.fullmatch(r"-[a-z]*c", option):
                return script
    return None


def list_launches(script: Script, depth: int = 0) -> list[Launch]:
    """Every program of the script, also in `bash -c`, containers, here-documents and what sbatch submits."""
    found = []
    for command in script.commands:
        launch = unwrap(command)
        found.append(launch)
        inner = _find_inner(launch, script) if depth < MAX_DEPTH else None
        if inner is None:
            continue
        text, first_line, positional = inner
        variables = {**launch.exported, **launch.environment}
        variables |= {name: value for name, value in script.variables.items() if name.startswith("SLURM_")}
        variables = {name: value for name, value in variables.items() if value}
        try:
            nested = read_script(text, variables, first_line, (), launch.directory, positional)
        except ConvertError:
            continue
        launch.inner = True
        script.notes += nested.notes
        script.skipped += nested.skipped
        for each in list_launches(nested, depth + 1):
            _inherit(each, launch)
            found.append(each)
    return found


def _inherit(launch: Launch, outer: Launch) -> None:
    """Add what starts the script around a program."""
    launch.environment = {**outer.environment, **launch.environment}
    launch.exported = {**outer.exported, **launch.exported}
    launch.lines = {**outer.lines, **launch.lines}
    launch.image = launch.image or outer.image
    launch.options = [*outer.options, *launch.options]
    launch.wrappers = [*outer.wrappers, *launch.wrappers]
    launch.line = outer.line if launch.command.line == 1 else launch.line


def _find_inner(launch: Launch, script: Script) -> tuple[str, int, Sequence[str]] | None:
    """The script that a command runs: its text, first line and arguments."""
    words = launch.plain
    line = launch.line
    text = find_inner_script(words)
    if text is not None:
        return reveal(text), line, ()
    if not words:
        return None
    name = words[0].rpartition("/")[2]
    arguments = [each for each in words[1:] if not each.startswith("-")]
    if name == "sbatch":
        return _find_submitted(launch, script)
    if name in SHELLS and launch.command.document is not None and not arguments:
        return launch.command.document, line + 1, ()
    path = arguments[0] if name in (*SHELLS, "source", ".") and arguments else words[0]
    if reveal(path) in script.files:
        return script.files[reveal(path)], line, arguments[1:]
    return None


def _find_submitted(launch: Launch, script: Script) -> tuple[str, int, Sequence[str]] | None:
    """What sbatch submits: --wrap, a here-document, a script of this script, or the COMMAND of NeMo-RL's ray.sub."""
    words = [reveal(each) for each in launch.words[1:]]
    for index, word in enumerate(words):
        if word.startswith("--wrap"):
            return word.partition("=")[2] or " ".join(words[index + 1 : index + 2]), launch.line, ()
    if launch.command.document is not None:
        return launch.command.document, launch.line + 1, ()
    for path in words:
        if path in script.files:
            return script.files[path], launch.line, ()
    command = launch.environment.get("COMMAND") or launch.exported.get("COMMAND")
    return (reveal(command), launch.line, ()) if command and any(each.endswith(".sub") for each in words) else None


def list_submissions(words: Sequence[str]) -> list[tuple[str, str]]:
    """The options of sbatch in a command, each with its value."""
    found = []
    rest = list(words[1:])
    while rest and rest[0].startswith("-"):
        option, equals, value = rest.pop(0).partition("=")
        if short := _split_short(option):
            option, value = short
        elif not equals and rest and not rest[0].startswith("-") and len(rest) > 1:
            value = rest.pop(0)
        found.append((option, value))
    return found


def describe_wrapper(launch: Launch, wrapper: Wrapper, used: Sequence[tuple[str, str]]) -> str:
    """A wrapper with the options that the job does not have."""
    parts = [wrapper.name]
    for name, option, value in launch.options:
        if name == wrapper.name and (option, value) not in used:
            parts.append(f"{show(option)}{' ' if value else ''}{show(value)}")
    return " ".join(parts)


def merge_lines(launches: Sequence[Launch]) -> Mapping[str, int]:
    """The lines of the exported variables."""
    return {name: line for each in launches for name, line in each.lines.items()}


def note_wrappers(draft: Draft, launch: Launch, used: Sequence[tuple[str, str]]) -> None:
    """Name each wrapper with its options that no field has."""
    for wrapper in launch.wrappers:
        draft.leave_out(describe_wrapper(launch, wrapper, used), wrapper.why, launch.line)


def is_image_file(image: str) -> bool:
    """Whether the image is a file of Apptainer or Enroot."""
    return re.search(r"\.(sif|sqsh|squashfs|simg|tar)$", image) is not None or image.startswith(("/", "./", "../"))


def is_resolved(text: str) -> bool:
    """Whether the text has no unknown part."""
    return is_known(text)
