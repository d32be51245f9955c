"""The programs of command jobs whose arguments are validated: verl's trainers and OpenRLHF's."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from pydantic import JsonValue

PROGRAMS = {
    "verl.trainer.main_ppo": "verl",
    "fully_async_policy.fully_async_main": "verl",
    "one_step_off_policy.main_ppo": "verl",
    "openrlhf.cli.train_ppo_ray": "openrlhf",
}
"""End of a Python module -> program. A script is known by the same path: verl/trainer/main_ppo.py."""
SEPARATE = ("fully_async_policy.fully_async_main", "one_step_off_policy.main_ppo")
"""The modules of verl.experimental, earlier recipe, with their own configs and separate devices for the engines."""
SHELLS = ("bash", "sh", "dash", "zsh")
OPERATORS = frozenset("();<>|&")
ROLL_SCRIPT = re.compile(r"(?:.*/)?start_\w+_pipeline\.py")
"""The programs of ROLL, in its folder examples."""
CONFIG_OPTIONS = ("--config-name", "--config-path", "--config-dir", "-cn", "-cp", "-cd")
"""Hydra's options that select another config: its keys and defaults are unknown."""


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
    """OpenRLHF's option as it is written, without dashes before it: actor.num_nodes for the key actor_num_nodes."""

    @property
    def is_known(self) -> bool:
        """Whether the value is in the command: not a variable or a command of the shell, or an interpolation."""
        return "$" not in self.value and "`" not in self.value


@dataclass(frozen=True)
class Program:
    """A known program with its arguments."""

    name: str
    """verl or openrlhf."""
    arguments: tuple[Argument, ...]
    own_config: bool = False
    """Whether it reads another config than main_ppo's, so that its other keys and its defaults are unknown."""
    separate: bool = False
    """Whether the engines have their own devices: rollout.nnodes times rollout.n_gpus_per_node."""
    in_script: bool = False
    """Whether the arguments are part of a script, one item of framework.command."""

    @cached_property
    def values(self) -> Mapping[str, JsonValue]:
        """Key -> its value, the last one that is given. Without unknown values."""
        return {each.key: parse_value(each.value) for each in self.arguments if each.is_known and each.prefix != "~"}

    @cached_property
    def given(self) -> Mapping[str, Argument]:
        """Key -> its last argument."""
        return {each.key: each for each in self.arguments}


def find_program(command: Sequence[str]) -> Program | None:
    """Find the known program in a command: python3 [options] -m MODULE, a script, torchrun -m MODULE, ray job submit --
    COMMAND, env A=B COMMAND, or bash -c with any of these. None for other programs."""
    words = _read_words(command)
    for position, (_, word) in enumerate(words):
        module = word.removesuffix(".py").replace("/", ".")
        known = next((name for name in PROGRAMS if module == name or module.endswith(f".{name}")), None)
        if known is None:
            continue
        rest = []
        for index, each in words[position + 1 :]:
            if each and set(each) <= OPERATORS:  # the end of the command in a script
                break
            rest.append((index, each))
        if rest and rest[-1][1].isdigit() and len(words) > position + 1 + len(rest):
            rest.pop()  # the file descriptor of 2>&1
        found = _parse_hydra(rest) if PROGRAMS[known] == "verl" else Program("openrlhf", tuple(_parse_flags(rest)))
        separate = known in SEPARATE
        in_script = len({index for index, _ in words}) < len(words)
        return replace(found, own_config=found.own_config or separate, separate=separate, in_script=in_script)
    return None


def find_roll_script(command: Sequence[str]) -> tuple[int, str] | None:
    """Find the script of ROLL in a command: the item of the command, and the script."""
    return next(((index, word) for index, word in _read_words(command) if ROLL_SCRIPT.fullmatch(word)), None)


def _read_words(command: Sequence[str]) -> list[tuple[int, str]]:
    """The words of the command, or of the script after bash -c, each with the item of the command."""
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
    return _parse_hydra(enumerate(overrides)).arguments


def _parse_hydra(words: Iterable[tuple[int, str]]) -> Program:
    arguments = []
    own_config = False
    for index, word in words:
        own_config |= word.partition("=")[0] in CONFIG_OPTIONS
        match = re.fullmatch(r"(\+\+|\+|~|)([A-Za-z_][\w./@-]*)(?:=(.*))?", word, re.DOTALL)
        if match and (match[3] is not None or match[1] == "~"):
            arguments.append(Argument(match[2], match[3] or "", index, match[1]))
    return Program("verl", tuple(arguments), own_config)


def _parse_flags(words: Sequence[tuple[int, str]]) -> Iterator[Argument]:
    """Options as --name value, --name=value or --name."""
    for position, (index, word) in enumerate(words):
        if not word.startswith("--"):
            continue
        name, equals, value = word[2:].partition("=")
        following = words[position + 1][1] if position + 1 < len(words) else "--"
        if not equals:
            value = "true" if following.startswith("--") else following
        yield Argument(build_option_key(name), value, index, option=name)


def build_option_key(option: str) -> str:
    """Build the key of an OpenRLHF option: dots and dashes count as underscores."""
    return option.replace(".", "_").replace("-", "_")
