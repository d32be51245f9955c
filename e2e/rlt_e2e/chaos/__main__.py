"""`make chaos`: one undisturbed job, then a job for each fault; writes out/chaos.json and docs/reliability.md.

make chaos FAULTS=rank,drain
"""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict

from rlt_e2e.chaos.faults import FAULTS, Fault
from rlt_e2e.chaos.measure import Outcome, Result, measure, run_job
from rlt_e2e.chaos.table import RESULTS, describe_outcome, write_page
from rlt_e2e.cluster import Cluster
from rlt_e2e.cluster.layout import Layout
from rlt_e2e.cluster.stages import exit_with_message
from rlt_e2e.installation import install_operator

NODES = 3
"""The pods of the job fit on two of them: the third replaces one that is lost or drained."""
CLUSTER = 4
"""Number of the embedded cluster. The clusters of the tests have lower numbers."""


def main() -> None:
    """Run the selected faults. Raises ValueError if a job did not end with the result of the undisturbed one."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--faults", default="", help="names separated by commas; all by default")
    parser.add_argument("--cluster", type=int, default=CLUSTER, help="number of the embedded cluster")
    arguments = parser.parse_args()
    faults = select(arguments.faults)
    layout = Layout.numbered(arguments.cluster, nodes=NODES)
    cluster = Cluster.up(nodes=NODES, state=layout.state, first_port=layout.first_port, subnet=layout.subnet)
    install_operator(cluster)
    undisturbed: dict[bool, Result] = {}
    """By whether the engines have their own pods. Their number does not change the result."""
    failed = []
    RESULTS.parent.mkdir(exist_ok=True)
    for fault in faults:
        pods = fault.rollout_pods
        is_separate = pods > 0
        if is_separate not in undisturbed:
            name = "undisturbed-separate" if is_separate else "undisturbed"
            _, undisturbed[is_separate] = run_job(cluster, name, None, rollout_pods=pods)
        try:
            run, result = run_job(cluster, fault.name, fault, rollout_pods=pods)
            outcome = measure(fault, run, result, undisturbed[is_separate])
        except (ValueError, TimeoutError) as error:
            print(f"{fault.name:12} ended with an error: {error}", flush=True)
            failed.append(fault.name)
            continue
        print(describe_outcome(outcome), flush=True)
        record(outcome)
        if not outcome.is_survived:
            failed.append(fault.name)
    write_page()
    if failed:
        raise ValueError(f"not survived: {', '.join(failed)}")


def select(names: str) -> list[Fault]:
    """Return the faults of these names. Raises ValueError for a name that does not exist."""
    known = {fault.name: fault for fault in FAULTS}
    wanted = names.split(",") if names else list(known)
    if unknown := [name for name in wanted if name not in known]:
        raise ValueError(f"FAULTS={names}: no fault is named {', '.join(unknown)}: use {', '.join(known)}")
    return [known[name] for name in wanted]


def record(outcome: Outcome) -> None:
    """Replace the outcome of the fault in out/chaos.json."""
    known = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    RESULTS.write_text(json.dumps({**known, outcome.fault: asdict(outcome)}, indent=2) + "\n")


if __name__ == "__main__":
    with exit_with_message():
        main()
