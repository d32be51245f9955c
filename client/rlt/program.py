"""The name of the running program, for the command lines in messages."""

from __future__ import annotations

import sys
from pathlib import Path


def program_name() -> str:
    """`rlt`, or `kubectl rlt` if kubectl started the program as a plugin."""
    return "kubectl rlt" if Path(sys.argv[0]).name == "kubectl-rlt" else "rlt"
