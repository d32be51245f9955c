"""The arguments of a program, read from a command: Hydra's settings, and options with dashes. Pure."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

from pydantic import JsonValue

SHELLS = ("bash", "sh", "dash", "zsh")
CONFIG_OPTIONS = {
    "--config-name": "name", "--config-path": "path", "--config-dir": "folder", "-cn": "name", "-cp": "path",
    "-cd": "folder",
}  # fmt: skip
"""Hydra's options that select another config -> what they give."""

Word = tuple[int, str]
"""The item of framework.command that contains a word, and the word."""


@dataclass(frozen=True)
class Argument:
    """One setting in the arguments of a program."""

    key: str
    value: str
    index: int
    """The item of framework.command."""
    prefix: str = ""
    """Hydra's + (adds a key), ++ (adds or replaces it) or ~ (removes it)."""
    option: str = ""
    """An option as it is written, without dashes before it: actor.num_nodes for the key actor_num_nodes."""

    @property
    def is_known(self) -> bool:
        """Whether the value is in the command: not a variable or a command of the shell, or an interpolation."""
        return "$" not in self.value and "`" not in self.value


@dataclass(frozen=True)
class Program:
    """A known program with its arguments."""

    name: str
    """Its name in PROGRAMS of known_programs.py, such as verl."""
    arguments: tuple[Argument, ...]
    own_config: bool = False
    """Whether it reads another config than main_ppo's, so that its other keys and its defaults are unknown."""
    part: str = ""
    """The part of the program that runs, if there are several: grpo of trl, orchestrator of prime-rl."""
    separate: bool = False
    """Whether the engines have their own devices: rollout.nnodes times rollout.n_gpus_per_node."""
    in_script: bool = False
    """Whether the arguments are part of a script, one item of framework.command."""
    launcher: tuple[str, ...] = ()
    """The words before it that start it, such as accelerate launch --num_processes 8."""

    @cached_property
    def values(self) -> Mapping[str, JsonValue]:
        """Key -> its value, the last one that is given. Without unknown values."""
        return {each.key: parse_value(each.value) for each in self.arguments if each.is_known and each.prefix != "~"}

    @cached_property
    def given(self) -> Mapping[str, Argument]:
        """Key -> its last argument."""
        return {each.key: each for each in self.arguments}


def read_words(command: Sequence[str]) -> list[Word]:
    """Return the words of the command, or of the script after bash -c, each with the item of the command."""
    shell = next((index for index, word in enumerate(command) if word.rpartition("/")[2] in SHELLS), len(command))
    for index in range(shell + 1, len(command) - 1):
        if re.fullmatch(r"-[a-z]*c", command[index]):
            return [(index + 1, word) for word in _split_script(command[index + 1])]
    return list(enumerate(command))


def parse_value(text: str) -> JsonValue:
    """Parse a value as Hydra does: numbers, true, false, null, and quoted or plain text. Lists and objects are text."""
    if len(text) > 1 and text[0] == text[-1] and text[0] in "'\"":
        return text[1:-1]
    lower = text.lower()
    if lower in ("true", "false", "null"):
        return {"true": True, "false": False, "null": None}[lower]
    try:
        value: JsonValue = json.loads(text.replace("_", ""))
    except ValueError:
        return text
    return value if isinstance(value, int | float) else text


def _split_script(script: str) -> list[str]:
    """Split a script of a shell into words and operators. Returns nothing for one that does not parse."""
    lexer = shlex.shlex(script.replace("\\\n", " "), posix=True, punctuation_chars="();<>|&\n")
    lexer.whitespace = " \t\r"
    lexer.whitespace_split = True
    try:
        return [";" if set(word) == {"\n"} else word for word in lexer]
    except ValueError:
        return []


def parse_overrides(overrides: Sequence[str]) -> tuple[Argument, ...]:
    """Parse overrides of Hydra; the index is the override's. Other texts are left out."""
    return parse_hydra(enumerate(overrides))


def read_config_options(words: Sequence[Word]) -> dict[str, Word]:
    """Read Hydra's options that select another config: name, path or folder -> the value, with its item."""
    found = {}
    for (_, word), (index, following) in pairwise([*words, (0, "")]):
        option, equals, value = word.partition("=")
        if option in CONFIG_OPTIONS:
            found[CONFIG_OPTIONS[option]] = (index, value if equals else following)
    return found


def parse_hydra(words: Iterable[Word]) -> tuple[Argument, ...]:
    """Parse settings as KEY=VALUE, with Hydra's +, ++ and ~. Other words are left out."""
    arguments = []
    for index, word in words:
        match = re.fullmatch(r"(\+\+|\+|~|)([A-Za-z_][\w./@-]*)(?:=(.*))?", word, re.DOTALL)
        if match and (match[3] is not None or match[1] == "~"):
            arguments.append(Argument(match[2], match[3] or "", index, match[1]))
    return tuple(arguments)


def parse_flags(words: Sequence[Word]) -> Iterator[Argument]:
    """Parse options as --name value, --name=value or --name."""
    for position, (index, word) in enumerate(words):
        if not word.startswith("--"):
            continue
        name, equals, value = word[2:].partition("=")
        following = words[position + 1][1] if position + 1 < len(words) else "--"
        if not equals:
            value = "true" if following.startswith("--") else following
        yield Argument(build_option_key(name), value, index, option=name)


def build_option_key(option: str) -> str:
    """Build the key of an option: dots and dashes count as underscores."""
    return option.replace(".", "_").replace("-", "_")
