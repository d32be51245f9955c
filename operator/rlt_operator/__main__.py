"""The command `rlt-operator`."""

from __future__ import annotations

import argparse
import asyncio
import importlib.metadata
import ipaddress
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlt_core.shards import ALL, Shard, parse_shard
from rlt_operator import logs

if TYPE_CHECKING:
    from rlt_api.spec.runtime_policy import RuntimePolicy
    from rlt_operator.webhook.certificates import CertificateLocation

CONNECTION = "Connects with the pod's service account, or outside a cluster with KUBECONFIG."
TRUSTING = "ValidatingWebhookConfiguration that trusts the certificate"
Commands = Any
"""What ArgumentParser.add_subparsers returns: argparse has no public name for it."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Parse the command line and run."""
    command = build_parser()
    options = command.parse_args(arguments)
    if problem := _find_certificate_problem(options):
        command.error(problem)
    if options.command == "run" and options.namespace and options.namespace_selector:
        command.error("--namespace-selector: give it without --namespace")
    if options.command == "run" and options.shard.total > 1 and not options.leader_election_lease:
        command.error("--shard: give --leader-election-lease too, so that no other process reconciles the same jobs")
    logs.configure()
    from rlt_core.kubernetes.client import ApiError  # not needed by --help
    from rlt_operator.leader_election import LeadershipLostError

    try:
        asyncio.run(options.run(options))
    except ApiError as error:
        sys.exit(f"rlt-operator: error: {error}. Are the CRDs and the roles of the chart installed?")
    except ValueError as error:
        sys.exit(f"rlt-operator: error: {error}")
    except LeadershipLostError as error:
        sys.exit(f"rlt-operator: error: {error}: this replica ends, and a restart puts it on standby")
    except OSError as error:
        sys.exit(f"rlt-operator: error: {error}")


def _find_certificate_problem(options: argparse.Namespace) -> str | None:
    """Why the options for the webhook's certificate are incomplete; None if they are complete."""
    own = bool(options.secret), bool(options.configuration)
    if options.command == "run":
        return None if own[0] == own[1] else "give both --webhook-secret and --webhook-configuration, or neither"
    if any(own) != all(own) or all(own) == bool(options.certificates):
        return "give --certificates, or --secret and --configuration"
    if options.client_name and not options.client_ca:
        return "--client-name needs --client-ca"
    return None


async def _run_operator(options: argparse.Namespace) -> None:
    from rlt_core.children.network_policy import NetworkAccess
    from rlt_operator.cache.watches import Selection
    from rlt_operator.http_server import Ports
    from rlt_operator.leader_election import LeaseLocation
    from rlt_operator.main import run
    from rlt_operator.token_key import KeyLocation

    access = None
    if options.network_policy:
        cidrs = tuple(options.client_cidr)
        access = NetworkAccess(options.network_policy, tuple(options.metrics_namespace), cidrs)
    await run(
        selection=Selection(tuple(options.namespace), options.namespace_selector, options.shard),
        ports=Ports(options.metrics_port, options.secure_metrics_port),
        certificate=_locate_certificate(options),
        access=access,
        token_key=KeyLocation(*options.ray_token_key) if options.ray_token_key else None,
        lease=LeaseLocation(*options.leader_election_lease) if options.leader_election_lease else None,
        runtimes=_build_runtime_policy(options),
        usage_records=options.usage_records,
    )


async def _run_webhook(options: argparse.Namespace) -> None:
    from rlt_operator.http_server import Ports
    from rlt_operator.webhook.process import WebhookOptions, run
    from rlt_operator.webhook.tls import ClientCertificates

    certificates = _locate_certificate(options) or options.certificates
    clients = ClientCertificates(options.client_ca, options.client_name) if options.client_ca else None
    ports = Ports(options.metrics_port, options.secure_metrics_port)
    served = WebhookOptions(options.port, ports, certificates, clients)
    await run(served, _build_runtime_policy(options))


def _locate_certificate(options: argparse.Namespace) -> CertificateLocation | None:
    from rlt_operator.webhook.certificates import CertificateLocation

    if not options.secret:
        return None
    namespace, name = options.secret
    return CertificateLocation(namespace, name, options.configuration)


def _build_runtime_policy(options: argparse.Namespace) -> RuntimePolicy:
    from rlt_api.spec.runtime_policy import RuntimePolicy

    return RuntimePolicy(options.default_runtime, options.require_runtime)


def build_parser() -> argparse.ArgumentParser:
    """The command line."""
    command = argparse.ArgumentParser(prog="rlt-operator", description="Run RLTrainingJobs on KubeRay.")
    command.add_argument("--version", action="version", version=importlib.metadata.version("rlt-operator"))
    commands = command.add_subparsers(required=True, dest="command")
    _add_run(commands)
    _add_webhook(commands)
    return command


def _add_run(commands: Commands) -> None:
    run = commands.add_parser(
        "run",
        help="reconcile RLTrainingJobs until SIGTERM",
        description=CONNECTION,
    )
    run.set_defaults(run=_run_operator)
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
        "--shard",
        type=_shard,
        default=ALL,
        metavar="I/N",
        help="reconcile shard I, from 0 to N-1, of N shards of the namespaces; needs --leader-election-lease",
    )
    _add_metrics_options(run)
    run.add_argument(
        "--leader-election-lease",
        type=_namespaced,
        metavar="NAMESPACE/NAME",
        help="Lease that the leader of several replicas holds, with --shard all leaders together and each one NAME-I; "
        "without it this process always reconciles",
    )
    run.add_argument(
        "--ray-token-key",
        type=_namespaced,
        metavar="NAMESPACE/NAME",
        help="Secret with the key from which the tokens of jobs are derived, created if it does not exist; without it "
        "the heads of running jobs cannot be reached after a restart",
    )
    run.add_argument(
        "--usage-records",
        metavar="NAMESPACE",
        help="store the usage of deleted jobs in ConfigMaps of this namespace, for rlt usage; without it their "
        "usage is deleted with them",
    )
    _add_runtime_options(run)
    _add_network_policy_options(run)
    certificate = run.add_argument_group("certificate of the admission webhook", "The leader creates and renews it.")
    certificate.add_argument(
        "--webhook-secret", dest="secret", type=_namespaced, metavar="NAMESPACE/NAME", help="Secret to store it in"
    )
    certificate.add_argument("--webhook-configuration", dest="configuration", metavar="NAME", help=TRUSTING)


def _add_webhook(commands: Commands) -> None:
    webhook = commands.add_parser(
        "webhook", help="validate jobs and runtimes for the API server until SIGTERM", description=CONNECTION
    )
    webhook.set_defaults(run=_run_webhook)
    webhook.add_argument("--port", type=int, default=9443, help="HTTPS port of /validate (default 9443)")
    _add_metrics_options(webhook)
    _add_runtime_options(webhook)
    certificate = webhook.add_argument_group("certificate")
    certificate.add_argument(
        "--secret", type=_namespaced, metavar="NAMESPACE/NAME", help="Secret in which the operator stores it"
    )
    certificate.add_argument("--configuration", metavar="NAME", help=TRUSTING)
    certificate.add_argument(
        "--certificates",
        type=Path,
        metavar="FOLDER",
        help="folder with tls.crt and tls.key that another program renews",
    )
    clients = webhook.add_argument_group("clients", "By default a client needs no certificate.")
    clients.add_argument(
        "--client-ca", type=Path, metavar="FILE", help="require a client certificate of these authorities (PEM)"
    )
    clients.add_argument("--client-name", metavar="NAME", help="require this common name in the client certificate")


def _add_metrics_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--metrics-port", type=int, default=8080, help="port of /metrics, /healthz and /readyz (default 8080)"
    )
    parser.add_argument(
        "--secure-metrics-port",
        type=int,
        help="HTTPS port of /metrics for tokens with the verb get on this path; the other port then has no metrics",
    )


def _add_runtime_options(parser: argparse.ArgumentParser) -> None:
    runtimes = parser.add_argument_group(
        "RLRuntimes", "Labels of a namespace override these: rlt.dev/default-runtime, rlt.dev/require-runtime."
    )
    runtimes.add_argument("--default-runtime", metavar="NAME", help="RLRuntime of jobs without runtimeRef")
    runtimes.add_argument("--require-runtime", action="store_true", help="reject jobs without an RLRuntime")


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


def _cidr(text: str) -> str:
    try:
        return str(ipaddress.ip_network(text))
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{error}: use a range such as 10.0.0.0/24") from error


def _shard(text: str) -> Shard:
    try:
        return parse_shard(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def _namespaced(text: str) -> tuple[str, str]:
    namespace, _, name = text.partition("/")
    if not namespace or not name:
        raise argparse.ArgumentTypeError(f"{text}: use NAMESPACE/NAME")
    return namespace, name


if __name__ == "__main__":
    main()
