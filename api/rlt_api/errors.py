"""The base class of errors that the user can act on, and the error of a block that is built in Python."""

from __future__ import annotations


class RltError(Exception):
    """The base class. `message` is what is wrong, `next` the command line that helps."""

    def __init__(self, message: str, *, next: str) -> None:
        super().__init__(f"{message}\nnext: {next}")
        self.message = message
        self.next = next


class InvalidBlockError(RltError, ValueError):
    """A block has an unknown or invalid field."""
