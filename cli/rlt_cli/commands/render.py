"""rlt render: show the manifests that the operator creates for a job."""

from __future__ import annotations

import click

from rlt_api.masking import mask_json
from rlt_cli.file_arguments import FILE, file_argument
from rlt_cli.file_validation import load_valid_jobs
from rlt_cli.network_page import read_nodes
from rlt_cli.offline_job import build_offline_job, detect_network
from rlt_cli.output import YAML, emit_manifests, output_option, print_message
from rlt_cli.runtime_options import runtime_options
from rlt_core.children.build import build_children
from rlt_core.children.network_policy import NetworkAccess
from rlt_core.fabric.nodes import parse_nodes
from rlt_core.job import Manifest
from rlt_core.network_status import blocks_start

DEFAULT_ACCESS = NetworkAccess("rlt-system", ("monitoring",))
"""The namespaces of the documented installation and of the chart's networkPolicy.metricsNamespaces."""


@click.command()
@file_argument
@runtime_options
@click.option("--nodes", type=FILE, metavar="FILE", help="Output of `kubectl get nodes -o yaml`.  [default: no nodes]")
@click.option("-n", "--namespace", help="The namespace of jobs that do not set one.  [default: default]")
@output_option(default=YAML)
def command(
    file: str,
    runtimes: tuple[str, ...],
    default_runtime: str | None,
    nodes: str | None,
    namespace: str | None,
    output: str,
) -> None:
    """Show the manifests that the operator creates for a job, without a cluster.

    FILE contains one or more jobs. The trainer's config is in the ConfigMap. The uid of each job is a placeholder,
    and the Secret has no token.
    Network settings and devices are those of the nodes in --nodes. The NetworkPolicy has the defaults of the Helm
    chart. Plain-text secrets are printed as ***. Exit code 1 if the operator would hold a job on these nodes: its
    manifests are not printed.
    """
    validated = load_valid_jobs(file, runtimes, default_runtime)
    parsed_nodes = parse_nodes(read_nodes(nodes)) if nodes else ()
    manifests: list[Manifest] = []
    held = False
    for manifest in validated.jobs():
        job = detect_network(build_offline_job(manifest, validated, namespace=namespace), parsed_nodes)
        assert job.spec
        if not nodes and any(group.accelerator for group in job.spec.cluster.workers):
            print_message(f"note: {job.name}: the network of the nodes is unknown: pass --nodes FILE")
        if nodes and job.status.network and job.status.network.refused and blocks_start(job.status.network, job.spec):
            refused = job.status.network.refused
            print_message(f"{job.name}: the operator holds this job: {refused.code}: {refused.message}")
            held = True
            continue
        manifests += build_children(job, job.spec, DEFAULT_ACCESS)
    emit_manifests([mask_json(manifest) for manifest in manifests], output)
    raise click.exceptions.Exit(held)
