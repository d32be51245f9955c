"""The warnings about the network of a job, of the commands with --nodes."""

from __future__ import annotations

from rlt_cli.output import print_message
from rlt_core.job import Job


def print_network_warnings(job: Job) -> None:
    """Print why the operator would hold the job, and the warnings about its network, on standard error."""
    network = job.status.network
    assert network
    rejected = [f"{network.rejection.code}: {network.rejection.message}"] if network.rejection else []
    for warning in (*rejected, *network.warnings):
        print_message(f"warning: {job.name}: {warning}")
