"""rlt preflight: run the preflight checks of a job without its training."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import click

from rlt.kube_context import KubeContext
from rlt.program import program_name
from rlt_api.schema.crd import KIND, MAX_NAME_LENGTH
from rlt_cli.commands.wait import SUCCEEDED, wait_for_condition
from rlt_cli.connection import connect, run
from rlt_cli.duration import Duration, parse_duration
from rlt_cli.failure import Failure
from rlt_cli.file_arguments import file_argument
from rlt_cli.file_validation import load_valid_submission
from rlt_cli.kube_context import kube_context_options
from rlt_cli.output import TABLE, emit, get_width, output_option
from rlt_cli.pages.job import format_checks
from rlt_core.job import Manifest
from rlt_core.kubernetes import api_paths

SUFFIX = "-preflight"


@click.command()
@file_argument
@click.option("--level", type=click.Choice(["basic", "full"]), help="The checks. Default: the job's level, or basic.")
@click.option(
    "--timeout",
    type=parse_duration,
    default="1h",
    show_default=True,
    metavar="DURATION",
    help="Maximum time, with the start of the pods, such as 30m or 1h30m.",
)
@kube_context_options
@output_option()
def command(file: str, level: str | None, timeout: Duration, kube_context: KubeContext, output: str) -> None:
    """Run the preflight checks of a job without its training.

    FILE contains one RLTrainingJob. It is submitted as NAME-preflight, on the nodes and with the pods of the training,
    and deleted afterwards. Files in its volumes are kept, also a PersistentVolumeClaim of storage.storageClassName.

    Exit codes: 0 no check failed, 1 a check or the job failed, 2 timeout.
    """
    jobs = [each for each in load_valid_submission([file]) if each["kind"] == KIND]
    if len(jobs) != 1:
        message = f"{file}: {len(jobs)} RLTrainingJobs, and the checks need one."
        raise Failure(message, next=f"{program_name()} validate {file}")
    code, job = run(_check(build_preflight_job(jobs[0], level), timeout, kube_context))
    checks = job.get("status", {}).get("preflight", []) if job else []
    if output != TABLE:
        emit(checks, output)
    elif checks:
        click.echo(format_checks(checks, get_width()))
    raise click.exceptions.Exit(code)


def build_preflight_job(manifest: Mapping[str, Any], level: str | None) -> Manifest:
    """Build the job of the checks: one attempt, without the training and without the job's queue of retries."""
    spec = manifest["spec"]
    metadata = manifest["metadata"]
    preflight = dict(spec.get("preflight") or {})
    chosen = level or preflight.get("level")
    preflight |= {"only": True, "level": chosen if chosen in ("basic", "full") else "basic"}
    name = metadata["name"][: MAX_NAME_LENGTH - len(SUFFIX)].rstrip("-.") + SUFFIX
    return {
        "apiVersion": manifest["apiVersion"],
        "kind": KIND,
        "metadata": {**metadata, "name": name},
        "spec": {
            **spec,
            "preflight": preflight,
            "suspend": False,
            "failurePolicy": {"maxRestarts": 0, "keepClusterSeconds": 0},
        },
    }


async def _check(manifest: Manifest, timeout: Duration, kube_context: KubeContext) -> tuple[int, Manifest | None]:
    """Submit the job, wait for its end, and delete it, also after Ctrl-C."""
    async with connect(kube_context) as connection:
        stored = (await connection.apply(connection.with_namespace(manifest), force=False))["metadata"]
        own = replace(kube_context, namespace=stored["namespace"])
        try:
            return await wait_for_condition(stored["name"], SUCCEEDED, timeout, own)
        finally:
            await connection.api.delete(api_paths.job(stored["namespace"], stored["name"]), uid=stored["uid"])
