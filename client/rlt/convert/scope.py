"""Variables, arrays and arguments at a place in a script."""

from __future__ import annotations

from dataclasses import dataclass, field

from rlt.convert.grammar import Function
from rlt.convert.text import SECRET


@dataclass
class Assignment:
    """A value that the script gives to a variable."""

    name: str
    what: str
    line: int
    is_read: bool = False
    value: str = ""
    """The value, if it is not as it is written."""


@dataclass
class Scope:
    """Variables, arrays and arguments at a place in a script."""

    variables: dict[str, str] = field(default_factory=dict)
    arrays: dict[str, list[str]] = field(default_factory=dict)
    unknown: dict[str, str] = field(default_factory=dict)
    """Name of a variable whose value is not in the script -> what sets it."""
    assignments: dict[str, Assignment] = field(default_factory=dict)
    """Name -> the assignment of its present value."""
    positional: list[str] = field(default_factory=list)
    """The arguments of the function. A script has none."""
    read: set[int] = field(default_factory=set)
    """The arguments that were read."""
    empty: list[tuple[str, int]] = field(default_factory=list)
    """Arguments of the script that an expansion needs, and their lines."""
    functions: dict[str, Function] = field(default_factory=dict)
    directory: str = ""
    """The working directory, if the script sets it to an absolute path."""
    folder: list[int] = field(default_factory=list)
    """Lines that use the folder of the script."""

    def get(self, name: str) -> str | None:
        """The value of a variable. None if the script does not give one."""
        if name in self.assignments:
            self.assignments[name].is_read = True
        if name == "PWD" and self.directory:
            return self.directory
        if name in self.arrays:
            return self.arrays[name][0] if self.arrays[name] else ""
        return None if name in self.unknown or SECRET.search(name) else self.variables.get(name)

    def get_items(self, name: str) -> list[str] | None:
        if name in self.assignments:
            self.assignments[name].is_read = True
        if name in self.arrays:
            return self.arrays[name]
        value = self.get(name)
        return None if value is None else [value]
