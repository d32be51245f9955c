"""The command `rlt-operator`."""

from __future__ import annotations

import argparse
import asyncio
import importlib.metadata
import ipaddress
import sys
from collections.abc import Sequence
from pathlib import Path

from rlt_operator import logs


def main(arguments: Sequence[str] | None = None) -> None:
    """Parse the command line and run."""
    command = build_parser()
    options = command.parse_args(arguments)
    owns_certificate = options.webhook_secret and options.webhook_configuration
    if options.webhook_port and bool(owns_certificate) == bool(options.webhook_certificates):
        command.error("--webhook-port: give --webhook-certificates, or --webhook-secret and --webhook-configuration")
    if options.namespace and options.namespace_selector:
        command.error("--namespace-selector: give it without --namespace")
    logs.configure()
    from rlt_api.spec.runtime_policy import RuntimePolicy
    from rlt_core.children.network_policy import NetworkAccess  # not needed by --help
    from rlt_core.kubernetes.client import ApiError
    from rlt_operator.cache.watches import Selection
    from rlt_operator.leader_election import LeadershipLostError, LeaseLocation
    from rlt_operator.main import Webhook, run
    from rlt_operator.token_key import KeyLocation
    from rlt_operator.webhook.certificates import CertificateLocation

    lease = LeaseLocation(*options.leader_election_lease) if options.leader_election_lease else None
    webhook = None
    if options.webhook_port:
        certificates = options.webhook_certificates
        if owns_certificate:
            namespace, name = options.webhook_secret
            certificates = CertificateLocation(namespace, name, options.webhook_configuration)
        webhook = Webhook(options.webhook_port, certificates)
    access = None
    if options.network_policy:
        cidrs = tuple(options.client_cidr)
        access = NetworkAccess(options.network_policy, tuple(options.metrics_namespace), cidrs)
    try:
        asyncio.run(
            run(
                selection=Selection(tuple(options.namespace), options.namespace_selector),
                metrics_port=options.metrics_port,
                webhook=webhook,
                access=access,
                lease=lease,
                token_key=KeyLocation(*options.ray_token_key) if options.ray_token_key else None,
                runtimes=RuntimePolicy(options.default_runtime, options.require_runtime),
            )
        )
    except ApiError as error:
        sys.exit(f"rlt-operator: error: {error}. Are the CRDs and the roles of the chart installed?")
    except ValueError as error:
        sys.exit(f"rlt-operator: error: {error}")
    except LeadershipLostError as error:
        sys.exit(f"rlt-operator: error: {error}: this replica ends, and a restart puts it on standby")


def build_parser() -> argparse.ArgumentParser:
    """The command line."""
    command = argparse.ArgumentParser(prog="rlt-operator", description="Run RLTrainingJobs on KubeRay.")
    command.add_argument("--version", action="version", version=importlib.metadata.version("rlt-operator"))
    commands = command.add_subparsers(required=True)
    run = commands.add_parser(
        "run",
        help="reconcile RLTrainingJobs until SIGTERM",
        description="Connects with the pod's service account, or outside a cluster with KUBECONFIG.",
    )
    run.add_argument(
        "--namespace",
        action="append",
        default=[],
        metavar="NAMESPACE",
        help="reconcile this namespace only; can be repeated",
    )
    run.add_argument(
        "--namespace-selector",
        default="",
        metavar="LABELS",
        help="reconcile the namespaces with these labels only, such as rlt.dev/jobs=true; they may come and go",
    )
    run.add_argument(
        "--metrics-port", type=int, default=8080, help="port of /metrics, /healthz and /readyz (default 8080)"
    )
    run.add_argument(
        "--leader-election-lease",
        type=_namespaced,
        metavar="NAMESPACE/NAME",
        help="Lease that the leader of several replicas holds; without it this process always reconciles",
    )
    run.add_argument(
        "--ray-token-key",
        type=_namespaced,
        metavar="NAMESPACE/NAME",
        help="Secret with the key from which the tokens of jobs are derived, created if it does not exist; without it "
        "the heads of running jobs cannot be reached after a restart",
    )
    runtimes = run.add_argument_group(
        "RLRuntimes", "Labels of a namespace override these: rlt.dev/default-runtime, rlt.dev/require-runtime."
    )
    runtimes.add_argument("--default-runtime", metavar="NAME", help="RLRuntime of jobs without runtimeRef")
    runtimes.add_argument("--require-runtime", action="store_true", help="reject jobs without an RLRuntime")
    _add_network_policy_options(run)
    _add_webhook_options(run)
    return command


def _add_network_policy_options(run: argparse.ArgumentParser) -> None:
    policy = run.add_argument_group("network policies of the jobs")
    policy.add_argument(
        "--network-policy",
        metavar="NAMESPACE",
        help="create a NetworkPolicy for each job that admits the operator in this namespace (default: none)",
    )
    policy.add_argument(
        "--metrics-namespace",
        action="append",
        default=[],
        metavar="NAMESPACE",
        help="admit the pods of this namespace to the metrics of the jobs; can be repeated",
    )
    policy.add_argument(
        "--client-cidr",
        action="append",
        default=[],
        type=_cidr,
        metavar="CIDR",
        help="admit these addresses to Ray's job API and the driver, such as the API server's; can be repeated",
    )


def _add_webhook_options(run: argparse.ArgumentParser) -> None:
    webhook = run.add_argument_group("admission webhook")
    webhook.add_argument("--webhook-port", type=int, help="HTTPS port of the webhook; without it the webhook is off")
    webhook.add_argument(
        "--webhook-secret",
        type=_namespaced,
        metavar="NAMESPACE/NAME",
        help="Secret in which the operator stores its certificate",
    )
    webhook.add_argument(
        "--webhook-configuration", metavar="NAME", help="ValidatingWebhookConfiguration that trusts the certificate"
    )
    webhook.add_argument(
        "--webhook-certificates",
        type=Path,
        metavar="FOLDER",
        help="folder with tls.crt and tls.key that another program renews",
    )


def _cidr(text: str) -> str:
    try:
        return str(ipaddress.ip_network(text))
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{error}: use a range such as 10.0.0.0/24") from error


def _namespaced(text: str) -> tuple[str, str]:
    namespace, _, name = text.partition("/")
    if not namespace or not name:
        raise argparse.ArgumentTypeError(f"{text}: use NAMESPACE/NAME")
    return namespace, name


if __name__ == "__main__":
    main()
