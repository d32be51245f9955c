"""The programs for pods: `python3 rlt_pod.pyz PROGRAM ARGUMENTS`.

A program runs as `__main__`, so that Ray pickles its functions by value: the workers cannot import them.
"""

from __future__ import annotations

import runpy
import sys

PROGRAMS = {
    "run-command": "rlt_pod.command.run_command",
    "run-roll": "rlt_pod.command.run_roll",
    "hooks": "rlt_pod.hooks",
    "clear": "rlt_pod.clear",
    "dump-stacks": "rlt_pod.dump_stacks",
    "preflight": "rlt_pod.preflight.run",
    "supervise": "rlt_pod.supervise.supervise",
    "collect-logs": "rlt_pod.supervise.collect_logs",
    "diagnose": "rlt_pod.supervise.diagnose",
    "download": "rlt_pod.download.download",
    "sandbox": "rlt_pod.sandbox.serve",
}
"""Name -> module."""


def main() -> None:
    """Run the program that the first argument names."""
    name = sys.argv.pop(1) if len(sys.argv) > 1 else ""
    if name not in PROGRAMS:
        sys.exit(f"usage: rlt_pod.pyz {'|'.join(PROGRAMS)} ARGUMENTS")  # exit code 1
    runpy.run_module(PROGRAMS[name], run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
