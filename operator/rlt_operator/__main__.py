"""The command `rlt-operator`."""

from __future__ import annotations

import argparse
import asyncio
import importlib.metadata
import sys
from collections.abc import Sequence

from rlt_operator import logs


def main(arguments: Sequence[str] | None = None) -> None:
    """Parse the command line and run."""
    options = parser().parse_args(arguments)
    logs.configure()
    from rlt_operator.kubernetes_api import ApiError  # after the parser: --help needs no Kubernetes client
    from rlt_operator.main import run

    try:
        asyncio.run(run(namespaces=options.namespace, metrics_port=options.metrics_port))
    except ApiError as error:
        sys.exit(f"rlt-operator: error: cannot list RLTrainingJobs: {error}. Are the CRD and the role installed?")


def parser() -> argparse.ArgumentParser:
    """The command line."""
    command = argparse.ArgumentParser(prog="rlt-operator", description="Runs RLTrainingJobs on KubeRay.")
    command.add_argument("--version", action="version", version=importlib.metadata.version("rlt-operator"))
    commands = command.add_subparsers(required=True)
    run = commands.add_parser(
        "run",
        help="serve RLTrainingJobs until SIGTERM",
        description="By the pod's service account, or outside a cluster by KUBECONFIG.",
    )
    run.add_argument(
        "--namespace", action="append", default=[], metavar="NAMESPACE", help="serve this one only; may be repeated"
    )
    run.add_argument("--metrics-port", type=int, default=8080, help="port of /metrics, /healthz and /readyz (8080)")
    return command


if __name__ == "__main__":
    main()
