"""What a shell script contains: its commands, variables and files, and what is not followed."""

from __future__ import annotations

from dataclasses import dataclass, field

from rlt.convert.grammar import Node
from rlt.convert.scope import Assignment, Scope


@dataclass(frozen=True)
class Command:
    """A simple command with expanded words, and the variables before it."""

    words: tuple[str, ...]
    line: int
    environment: dict[str, str] = field(default_factory=dict)
    text: str = ""
    """The command with its variables, redirections and here-documents, for comments."""
    exported: dict[str, str] = field(default_factory=dict)
    """The exported variables at this place."""
    lines: dict[str, int] = field(default_factory=dict)
    """Name of an exported variable -> line."""
    directory: str = ""
    """The working directory, if the script sets it."""
    document: str | None = None
    """The standard input."""
    redirects: str = ""
    background: bool = False
    piped: bool = False
    """Whether it reads the output of another command."""
    loop: tuple[str, str, int] | None = None
    """The variable of the loop around it, its value, and its line."""


@dataclass(frozen=True)
class Skipped:
    """A part of a script that is not followed."""

    node: Node
    line: int
    text: str
    why: str


@dataclass
class Script:
    """What a script contains."""

    scope: Scope = field(default_factory=Scope)
    exported: dict[str, int] = field(default_factory=dict)
    """Name of an exported variable -> line."""
    commands: list[Command] = field(default_factory=list)
    skipped: list[Skipped] = field(default_factory=list)
    notes: list[tuple[str, str, int]] = field(default_factory=list)
    """Parts of the script with the reason why the job does not have them, and lines."""
    assignments: list[Assignment] = field(default_factory=list)
    files: dict[str, str] = field(default_factory=dict)
    """Path -> the content that the script writes with a here-document."""

    @property
    def variables(self) -> dict[str, str]:
        """The values at the end of the script."""
        return self.scope.variables
