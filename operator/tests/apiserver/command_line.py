"""Runs `rlt` as a process in a namespace of the API server."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from rlt_e2e.forked_programs import run_rlt_forked

RLT = (sys.executable, "-m", "rlt_cli.main")


@dataclass(frozen=True)
class Rlt:
    """Runs `rlt` with a kubeconfig in a namespace."""

    kubeconfig: Path
    namespace: str

    def __call__(self, *arguments: str, expected: int = 0) -> subprocess.CompletedProcess[str]:
        """Run the command until it exits, and assert its exit code."""
        done = run_rlt_forked([*arguments, "--namespace", self.namespace], self._environment)
        assert done.returncode == expected, (done.args, done.stdout, done.stderr)
        return done

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        """Start the command in the background."""
        return subprocess.Popen(
            [*RLT, *arguments, "--namespace", self.namespace],
            env=self._environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    @property
    def _environment(self) -> dict[str, str]:
        return {**os.environ, "KUBECONFIG": str(self.kubeconfig)}
