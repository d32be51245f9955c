"""rlt render: what the operator makes of a job, without a cluster."""

from __future__ import annotations

import click

from rlt_operator.children.config_map import config_map
from rlt_operator.children.raycluster import ray_cluster
from rlt_operator.cli.offline_job import offline_job
from rlt_operator.cli.output import JSON, emit
from rlt_operator.cli.readable_files import FILE, right_jobs
from rlt_operator.observation import Job, Manifest


@click.command()
@click.argument("file", type=FILE)
@click.option("--runtime", "runtimes", multiple=True, type=FILE, metavar="FILE", help="RLRuntimes that the jobs name.")
@click.option("-n", "--namespace", help="For jobs that name none.  [default: default]")
@click.option("-o", "--output", type=click.Choice(["yaml", "json"]), default="yaml", show_default=True)
def command(file: str, runtimes: tuple[str, ...], namespace: str | None, output: str) -> None:
    """Show every manifest that the operator would make for the jobs in FILE.

    The trainer's config is in the ConfigMap. What only a cluster knows, a job's uid, is made up.
    """
    validated = right_jobs(file, runtimes)
    jobs = [offline_job(job, validated, namespace=namespace) for job in validated.jobs()]
    manifests = [manifest for job in jobs for manifest in children(job)]
    if output == JSON:
        emit({"apiVersion": "v1", "kind": "List", "items": manifests}, JSON)
    else:
        click.echo(as_yaml(manifests), nl=False)


def children(job: Job) -> list[Manifest]:
    """The job's children, as `plan` creates them."""
    assert job.spec
    return [config_map(job, job.spec), ray_cluster(job, job.spec)]


def as_yaml(manifests: list[Manifest]) -> str:
    """One document each, with texts of several lines as blocks."""
    import yaml

    class Dumper(yaml.CSafeDumper):
        def ignore_aliases(self, data: object) -> bool:
            return True

    Dumper.add_representer(
        str,
        lambda dumper, text: dumper.represent_scalar(
            "tag:yaml.org,2002:str", text, style="|" if "\n" in text else None
        ),
    )
    return str(yaml.dump_all(manifests, Dumper=Dumper, sort_keys=False, allow_unicode=True, width=120))
