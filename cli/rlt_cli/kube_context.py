"""The options -n, --context and --kubeconfig: which cluster and namespace a command uses."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import click

from rlt.kube_context import KubeContext


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
