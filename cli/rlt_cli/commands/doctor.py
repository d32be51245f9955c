"""rlt doctor: what a cluster has and lacks for RL post-training."""

from __future__ import annotations

from dataclasses import asdict

import click

from rlt.kube_context import KubeContext
from rlt_cli.kube_context import kube_context_options
from rlt_cli.output import TABLE, emit, get_width, output_option
from rlt_cli.pages.doctor import MARKDOWN, format_markdown, format_page
from rlt_core.doctor.facts import ClusterFacts


@click.command()
@kube_context_options
@output_option(MARKDOWN)
def command(kube_context: KubeContext, output: str) -> None:
    """Show what the cluster has and lacks for RL post-training.

    It reads the API server alone and creates nothing: versions, KubeRay, operator, webhook, nodes, device plugins,
    labels, drivers, RDMA, storage, queues, quota and image pulls. What you may not read is a line with the missing
    right. -o markdown is for an issue.

    Exit codes: 0 no line is an error, 1 a line is.
    """
    from rlt_core.doctor.examine import examine, has_error

    lines = examine(_read(kube_context))
    if output == TABLE:
        click.echo(format_page(lines, get_width()))
    elif output == MARKDOWN:
        click.echo(format_markdown(lines))
    else:
        emit([{**asdict(line), "state": str(line.state)} for line in lines], output)
    raise click.exceptions.Exit(int(has_error(lines)))


def _read(kube_context: KubeContext) -> ClusterFacts:
    from rlt.cluster_facts import read_cluster_facts  # imports the Kubernetes client
    from rlt_cli.connection import connect, run

    async def read() -> ClusterFacts:
        async with connect(kube_context) as connection:
            return await read_cluster_facts(connection)

    return run(read())
