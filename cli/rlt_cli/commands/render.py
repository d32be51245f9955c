"""rlt render: what the operator makes of a job, without a cluster."""

from __future__ import annotations

import click

from rlt_cli.manifest_list import emit_manifests
from rlt_cli.network_page import nodes_in
from rlt_cli.offline_job import offline_job, with_network
from rlt_cli.output import YAML, output_option, say
from rlt_cli.readable_files import FILE, valid_jobs
from rlt_core.children.build import build_children
from rlt_core.fabric.nodes import parse_nodes
from rlt_core.job import Manifest


@click.command()
@click.argument("file", type=FILE)
@click.option("--runtime", "runtimes", multiple=True, type=FILE, metavar="FILE", help="RLRuntimes that the jobs name.")
@click.option("--nodes", type=FILE, metavar="FILE", help="What `kubectl get nodes -o yaml` prints.  [default: no node]")
@click.option("-n", "--namespace", help="For jobs that name none.  [default: default]")
@output_option(default=YAML)
def command(file: str, runtimes: tuple[str, ...], nodes: str | None, namespace: str | None, output: str) -> None:
    """Show every manifest that the operator would make for the jobs in FILE.

    The trainer's config is in the ConfigMap. What only a cluster knows, a job's uid, is made up; network and devices
    are those of the nodes in --nodes.
    """
    validated = valid_jobs(file, runtimes)
    seen = parse_nodes(nodes_in(nodes)) if nodes else ()
    manifests: list[Manifest] = []
    for manifest in validated.jobs():
        job = with_network(offline_job(manifest, validated, namespace=namespace), seen)
        assert job.spec
        if not nodes and any(group.accelerator for group in job.spec.cluster.workers):
            say(f"note: {job.name}: which network the nodes have is not known: give --nodes FILE")
        manifests += build_children(job, job.spec)
    emit_manifests(manifests, output)
