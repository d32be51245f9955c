"""Runs `rlt` as a process in a namespace of the API server."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

RLT = (sys.executable, "-m", "rlt_cli.main")


@dataclass(frozen=True)
class Rlt:
    """Runs `rlt` with a kubeconfig in a namespace."""

    kubeconfig: Path
    namespace: str

    def __call__(self, *arguments: str, expected: int = 0) -> subprocess.CompletedProcess[str]:
        """Run the command until it exits, and assert its exit code."""
        done = subprocess.run(
            self._command(arguments), env=self._environment, capture_output=True, text=True, timeout=120
        )
        assert done.returncode == expected, (done.args, done.stdout, done.stderr)
        return done

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        """Start the command in the background."""
        return subprocess.Popen(
            self._command(arguments),
            env=self._environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def _command(self, arguments: tuple[str, ...]) -> list[str]:
        return [*RLT, *arguments, "--namespace", self.namespace]

    @property
    def _environment(self) -> dict[str, str]:
        return {**os.environ, "KUBECONFIG": str(self.kubeconfig)}
