"""The arguments that a known program has, from a table that tools/program_keys.py writes from the program's sources.

The version of a program in an image is unknown, so that an argument that is not in the table is a warning.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources

from rlt_api.findings.finding import printable
from rlt_api.findings.spelling import find_nearest_word
from rlt_api.frameworks.arguments import Argument, Program
from rlt_api.frameworks.command.devices import COMMAND
from rlt_api.spec.job_spec import RLTrainingJobSpec

Kind = str | list[str]
"""int, float, bool, flag (it has no value), text (any value), open (it has keys below it), or the choices."""
ALL = "all"
"""The part of a table with the keys of all parts."""


@dataclass(frozen=True)
class KeyTable:
    """The arguments of one version."""

    version: str
    """The program with its version."""
    parts: Mapping[str, Mapping[str, Kind]]
    """Part of the program -> key -> kind."""

    def list_keys(self, part: str) -> Mapping[str, Kind]:
        """List the keys of a part. Empty for an unknown one."""
        return {**self.parts[ALL], **self.parts[part]} if part in self.parts else {}


@cache
def load_table(path: str) -> KeyTable:
    """Load a table, such as slime/keys.toml."""
    table = tomllib.loads(resources.files("rlt_api.frameworks").joinpath(path).read_text())
    return KeyTable(table.pop("version"), table)


def read_setting(argument: Argument) -> str | None:
    """The key of a setting KEY=VALUE. None for one that the user adds or removes."""
    return None if argument.prefix or "@" in argument.key or "/" in argument.key else argument.key


def read_option(argument: Argument) -> str | None:
    """The name of an option. None for a variable, the help, and a file of the config (--data @ FILE)."""
    return None if "$" in argument.option or argument.option == "help" or argument.value == "@" else argument.option


@dataclass(frozen=True)
class KeyCheck:
    """How the arguments of a program are compared with its table."""

    path: str
    """The file of the table."""
    then: str
    """What the program does with an unknown argument: "ignores it"."""
    read: Callable[[Argument], str | None]
    """An argument -> its key in the table. None: it is not compared."""
    choose: Callable[[Program], str] = lambda program: ALL
    """The part of the table. An unknown part has no keys: nothing is compared."""
    abbreviates: bool = False
    """Whether the program takes the beginning of a name that no other option has, as argparse does."""

    def warn(self, program: Program, spec: RLTrainingJobSpec) -> Iterator[str]:
        """Yield the warnings about the arguments of a program."""
        keys = load_table(self.path).list_keys(self.choose(program))
        for argument in program.arguments if keys else ():
            key = self.read(argument)
            if key is not None and (problem := self._describe(key, argument, keys)):
                dashes = "--" if argument.option else ""
                given = "" if argument.option and argument.value == "true" else f"={argument.value}"
                text = printable(f"{dashes}{argument.option or argument.key}{given}")
                yield f"{COMMAND}[{argument.index}]: {text}: {problem}"

    def _describe(self, key: str, argument: Argument, keys: Mapping[str, Kind]) -> str | None:
        if key in keys:
            return describe_value(argument, keys[key])
        if is_part(key, keys) or (self.abbreviates and sum(each.startswith(key) for each in keys) == 1):
            return None
        meant = find_nearest_word(key, keys, max_distance=max(2, len(key) // 8)) or find_same_end(key, keys)
        if meant and argument.option:
            meant = f"--{meant if '_' in argument.option else meant.replace('_', '-')}"
        hint = f"did you mean {meant}?" if meant else "remove it"
        return f"is not an argument of {load_table(self.path).version}, which {self.then}; {hint}"


def is_part(key: str, keys: Mapping[str, Kind]) -> bool:
    """Whether the key is below an open one, or above others."""
    names = key.split(".")
    above = (".".join(names[:count]) for count in range(1, len(names)))
    return any(keys.get(each) == "open" for each in above) or any(each.startswith(f"{key}.") for each in keys)


def find_same_end(key: str, keys: Mapping[str, Kind]) -> str | None:
    """Find the only key with the same last part in another place."""
    found = [each for each in keys if "." in each and each.rpartition(".")[2] == key.rpartition(".")[2]]
    return found[0] if len(found) == 1 else None


def describe_value(argument: Argument, kind: Kind) -> str | None:
    """Describe a value that an argument of this kind does not take."""
    value = argument.value.strip("'\"")
    is_missing = argument.option and value == "true"
    if not argument.is_known or is_missing or value.lower() in ("", "null", "none", "???"):
        return None
    if isinstance(kind, list):
        return None if value in kind else f"use {', '.join(kind)}"
    if kind == "int" and not re.fullmatch(r"[+-]?[0-9](_?[0-9])*", value):
        return "needs an integer"
    if kind == "float" and not re.fullmatch(r"[+-]?([0-9._]+(e[+-]?[0-9]+)?|inf|nan)", value, re.IGNORECASE):
        return "needs a number"
    return None
