"""Print the known failures in a program's log.

    python3 rlt_pod.pyz diagnose LOG

The archive of `rlt render --target` has the knowledge in its folder `knowledge`. For pods, the operator has it.
"""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path

MAX_FINDINGS = 3
"""Maximum number of findings: the first one is the cause, if it is known."""
MIN_PYTHON = (3, 10)
"""The knowledge needs it. The other programs run with 3.8."""


def main(arguments: list[str]) -> int:
    """Print the findings, the best first."""
    if sys.version_info < MIN_PYTHON:
        print(f"rlt: diagnose the log on a machine with rlt: rlt diagnose --log {arguments[0]}", flush=True)
        return 1
    sys.path.insert(0, f"{Path(__file__).absolute().parents[2]}/knowledge")
    try:
        diagnosis = import_module("rlt_core.knowledge.diagnosis")
    except ModuleNotFoundError as error:  # in the archive of a pod
        print(
            f"rlt: use `rlt diagnose --log {arguments[0]}`, because this archive has no knowledge: {error}", flush=True
        )
        return 1
    with open(arguments[0], "rb") as log:
        findings = diagnosis.diagnose_logs([log])
    if not findings:
        print("rlt: the diagnosis found no known failure in the log", flush=True)
    for each in findings[:MAX_FINDINGS]:
        print(f"rlt: {each.severity} {each.code}: {each.message}")
        print(f"rlt:   evidence, line {each.line}: {each.evidence}")
        print(f"rlt:   remedy: {each.remedy}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
