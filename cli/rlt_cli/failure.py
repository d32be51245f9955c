"""An error that the user can act on: one sentence on standard error and the next command."""

from __future__ import annotations

from typing import IO, Any

import click


class Failure(click.ClickException):
    """Ends the command, with exit code 1 by default."""

    def __init__(self, message: str, *, next: str, exit_code: int = 1) -> None:
        """`next` is the command line that helps, with the names that the user gave."""
        super().__init__(message)
        self.next = next
        self.exit_code = exit_code  # type: ignore[misc] # click reads it from the instance

    def show(self, file: IO[Any] | None = None) -> None:
        """Write it to standard error."""
        click.echo(f"error: {self.message}", err=True)
        click.echo(f"next: {self.next}", err=True)
