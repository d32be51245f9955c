"""Which cluster and namespace: the options of kubectl."""

from __future__ import annotations

import shlex
from dataclasses import dataclass

from rlt.program import program_name


@dataclass(frozen=True)
class KubeContext:
    """The values of the options. None: kubectl's default."""

    namespace: str | None = None
    context: str | None = None
    kubeconfig: str | None = None

    def command_line(self, arguments: str) -> str:
        """`rlt ARGUMENTS` with the same options, for the user to copy."""
        given = {"-n": self.namespace, "--context": self.context, "--kubeconfig": self.kubeconfig}
        options = [f"{option} {shlex.quote(value)}" for option, value in given.items() if value]
        return " ".join([program_name(), arguments, *options])
