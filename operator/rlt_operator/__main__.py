"""The command `rlt-operator`."""

from __future__ import annotations

import argparse
import asyncio
import importlib.metadata
import sys
from collections.abc import Sequence
from pathlib import Path

from rlt_operator import logs


def main(arguments: Sequence[str] | None = None) -> None:
    """Parse the command line and run."""
    command = parser()
    options = command.parse_args(arguments)
    own = options.webhook_secret and options.webhook_configuration
    if options.webhook_port and bool(own) == bool(options.webhook_certificates):
        command.error("--webhook-port: give --webhook-certificates, or --webhook-secret and --webhook-configuration")
    logs.configure()
    from rlt_core.kubernetes.client import ApiError  # after the parser: --help needs no Kubernetes client
    from rlt_operator.main import Webhook, run
    from rlt_operator.webhook.certificates import Places

    webhook = None
    if options.webhook_port:
        certificates = options.webhook_certificates
        if own:
            namespace, name = options.webhook_secret
            certificates = Places(namespace, name, options.webhook_configuration)
        webhook = Webhook(options.webhook_port, certificates)
    try:
        asyncio.run(run(namespaces=options.namespace, metrics_port=options.metrics_port, webhook=webhook))
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
    webhook = run.add_argument_group("the admission webhook")
    webhook.add_argument("--webhook-port", type=int, help="serve it there, in HTTPS; off unless given")
    webhook.add_argument(
        "--webhook-secret", type=_namespaced, metavar="NAMESPACE/NAME", help="where the operator keeps its certificate"
    )
    webhook.add_argument(
        "--webhook-configuration", metavar="NAME", help="the ValidatingWebhookConfiguration that is to trust it"
    )
    webhook.add_argument(
        "--webhook-certificates", type=Path, metavar="FOLDER", help="tls.crt and tls.key that somebody else renews"
    )
    return command


def _namespaced(text: str) -> tuple[str, str]:
    namespace, _, name = text.partition("/")
    if not namespace or not name:
        raise argparse.ArgumentTypeError(f"{text}: write NAMESPACE/NAME")
    return namespace, name


if __name__ == "__main__":
    main()
