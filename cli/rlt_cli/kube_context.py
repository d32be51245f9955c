"""The options -n, --context and --kubeconfig: which cluster and namespace a command uses."""

from __future__ import annotations

import functools
import shlex
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import click

from rlt_cli.program import program_name


@dataclass(frozen=True)
class KubeContext:
    """The values of the options. None: kubectl's default."""

    namespace: str | None
    context: str | None
    kubeconfig: str | None

    def command_line(self, arguments: str) -> str:
        """`rlt ARGUMENTS` with the same options, for the user to copy."""
        given = {"-n": self.namespace, "--context": self.context, "--kubeconfig": self.kubeconfig}
        options = [f"{option} {shlex.quote(value)}" for option, value in given.items() if value]
        return " ".join([program_name(), arguments, *options])


def kube_context_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add -n, --context and --kubeconfig to a command, which receives them as `kube_context`."""

    @functools.wraps(command)
    def with_kube_context(namespace: str | None, context: str | None, kubeconfig: str | None, **others: Any) -> Any:
        return command(kube_context=KubeContext(namespace, context, kubeconfig), **others)

    decorated: Callable[..., Any] = with_kube_context
    for option in (
        click.option("--kubeconfig", type=click.Path(), help="The kubeconfig.  [default: $KUBECONFIG, ~/.kube/config]"),
        click.option("--context", help="The context of the kubeconfig.  [default: its current context]"),
        click.option("-n", "--namespace", help="The namespace of the jobs.  [default: the context's]"),
    ):
        decorated = option(decorated)
    return decorated
