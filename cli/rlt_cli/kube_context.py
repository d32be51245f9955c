"""Where a command works: namespace, context and kubeconfig, as the user says."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import click

from rlt_cli.main import program

Command = TypeVar("Command", bound=Callable[..., Any])


@dataclass(frozen=True)
class KubeContext:
    """None is what kubectl would take."""

    namespace: str | None
    context: str | None
    kubeconfig: str | None

    def rlt(self, words: str) -> str:
        """The command line `rlt WORDS` for the same place, to be copied."""
        given = {"-n": self.namespace, "--context": self.context, "--kubeconfig": self.kubeconfig}
        options = [f"{option} {shlex.quote(value)}" for option, value in given.items() if value]
        return " ".join([program(), words, *options])


def kube_context_options(command: Command) -> Command:
    """-n, --context and --kubeconfig: the command is called with all three, for Place."""
    for option in (
        click.option("--kubeconfig", type=click.Path(), help="The kubeconfig.  [default: $KUBECONFIG, ~/.kube/config]"),
        click.option("--context", help="The kubeconfig's context.  [default: its current one]"),
        click.option("-n", "--namespace", help="The jobs' namespace.  [default: the context's]"),
    ):
        command = option(command)
    return command
