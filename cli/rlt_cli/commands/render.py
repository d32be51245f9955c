"""rlt render: show the manifests that the operator creates for a job."""

from __future__ import annotations

import shlex
from pathlib import Path

import click

from rlt.offline_job import build_offline_job, detect_network, place_earlier_checkpoint, render_children
from rlt.validation import ValidatedFiles
from rlt.yaml_text import to_yaml
from rlt_api.findings.masking import mask_json, mask_text
from rlt_api.frameworks.registry import get_framework
from rlt_api.spec.training_config import CONFIG_DIRECTORY
from rlt_cli.file_arguments import FILE, file_argument
from rlt_cli.file_validation import load_valid_jobs
from rlt_cli.network_warnings import print_network_warnings
from rlt_cli.output import YAML, emit_manifests, output_option, print_message
from rlt_cli.pages.network import read_nodes
from rlt_cli.render_target import TARGETS, emit_files, reject_unknown_image, render_target, write_files
from rlt_cli.runtime_options import runtime_options
from rlt_core.children.program import build_command, build_run
from rlt_core.earlier_job import waits_for_earlier_job
from rlt_core.fabric.nodes import Node, parse_nodes
from rlt_core.job import Job, Manifest
from rlt_core.network_status import blocks_start
from rlt_core.targets.slurm import SlurmOptions
from rlt_core.targets.slurm_containers import RUNTIMES, ContainerRuntime


@click.command()
@file_argument
@runtime_options
@click.option(
    "--nodes",
    type=FILE,
    metavar="FILE",
    help="Output of `kubectl get nodes -o yaml`, or a list of machines.  [default: no nodes]",
)
@click.option("-n", "--namespace", help="The namespace of jobs that do not set one.  [default: default]")
@click.option("--command", "command_only", is_flag=True, help="Show the command of the program instead.")
@click.option("--target", type=click.Choice(sorted(TARGETS)), help="Render for this target instead of Kubernetes.")
@click.option(
    "--storage",
    metavar="DIR",
    help="With --target: the folder that all machines share, instead of storage.mountPath.",
)
@click.option(
    "--directory",
    type=click.Path(file_okay=False, path_type=Path),
    help="With --target: write the files into this new directory.  [default: print them]",
)
@click.option(
    "--container-runtime",
    type=click.Choice(RUNTIMES),
    help="With --target slurm: what runs cluster.image on the nodes. none runs the processes of the nodes.  "
    "[default: none]",
)
@click.option(
    "--image-file",
    metavar="PATH",
    help="With --container-runtime apptainer or enroot: an image on the nodes, such as /shared/verl.sif, instead of "
    "cluster.image.",
)
@click.option("--partition", help="With --target slurm: the partition.")
@click.option("--account", help="With --target slurm: the account.")
@output_option(default=YAML)
def command(
    file: str,
    runtimes: tuple[str, ...],
    default_runtime: str | None,
    nodes: str | None,
    namespace: str | None,
    command_only: bool,
    target: str | None,
    storage: str | None,
    directory: Path | None,
    container_runtime: ContainerRuntime | None,
    image_file: str | None,
    partition: str | None,
    account: str | None,
    output: str,
) -> None:
    """Show the manifests that the operator creates for a job, without a cluster.

    FILE contains one or more jobs. The trainer's config is in the ConfigMap. The uid of each job is a placeholder,
    and the Secret has no token.
    Network settings and devices are for the nodes in --nodes. The NetworkPolicy has the defaults of the Helm
    chart. Plain-text secrets are printed as ***. The steps of framework.prepare are notes. Exit code 1 if the operator
    would hold a job on these nodes: its manifests are not printed.

    With --target, FILE contains one job, and the result is what starts it on Ray, Docker, Docker Compose, Slurm or
    dstack. Fields that the target does not carry out are named on standard error and in the files.
    """
    if target is None and (storage or directory):
        raise click.UsageError("--storage and --directory require --target")
    if target != "slurm" and (container_runtime or partition or account):
        raise click.UsageError("--container-runtime, --partition and --account require --target slurm")
    reject_unknown_image(image_file, container_runtime)
    validated = load_valid_jobs(file, runtimes, default_runtime)
    if command_only:
        jobs = [build_offline_job(manifest, validated, namespace=namespace) for manifest in validated.jobs()]
        click.echo("\n\n".join(_format_command(job) for job in jobs))
        return
    parsed_nodes = parse_nodes(read_nodes(nodes)) if nodes else ()
    if target:
        slurm = SlurmOptions(container_runtime or "none", partition, account, image_file)
        files = render_target(target, file, validated, parsed_nodes, storage=storage, slurm=slurm)
        if directory:
            write_files(files, directory)
        else:
            emit_files(files)
        return
    manifests, held = _render_jobs(validated, namespace, parsed_nodes if nodes else None)
    emit_manifests(manifests, output)
    raise click.exceptions.Exit(held)


def _render_jobs(
    validated: ValidatedFiles, namespace: str | None, nodes: tuple[Node, ...] | None
) -> tuple[list[Manifest], bool]:
    """The manifests of the jobs that the operator does not hold, and whether it holds one. Prints notes.

    nodes: None if they are unknown.
    """
    manifests: list[Manifest] = []
    held = False
    for manifest in validated.jobs():
        job = detect_network(build_offline_job(manifest, validated, namespace=namespace), nodes or ())
        assert job.spec
        if nodes is None and any(group.accelerator for group in job.spec.cluster.workers):
            print_message(f"note: {job.name}: the network of the nodes is unknown: pass --nodes FILE")
        network = job.status.network
        if nodes is not None and network and network.rejection and blocks_start(network, job.spec):
            rejection = network.rejection
            print_message(f"{job.name}: the operator holds this job: {rejection.code}: {rejection.message}")
            held = True
            continue
        if nodes is not None:
            print_network_warnings(job)
        if waits_for_earlier_job(job.spec):
            other = job.spec.checkpoint.resume_from_job
            print_message(f"note: {job.name}: the path of {other}'s checkpoint is a placeholder")
        for step in mask_json(job.spec.framework.to_json()).get("prepare", []):
            print_message(f"note: {job.name}: step {step['name']} runs before: {shlex.join(step['command'])}")
        manifests += render_children(job)
    return manifests, held


def _format_command(job: Job) -> str:
    """The command for a shell, each setting in its own line, and the config that it reads."""
    job = place_earlier_checkpoint(job)
    assert job.spec
    words = [shlex.quote(mask_text(word)) for word in build_command(job, job.spec)]
    line = "".join(f" \\\n  {word}" if "=" in word or word.startswith("--") else f" {word}" for word in words).lstrip()
    framework = get_framework(job.spec)
    if framework.build_config is None:
        return line
    config = mask_json(framework.build_config(job.spec, build_run(job, job.spec)))
    return f"{line}\n\n# {CONFIG_DIRECTORY}/{framework.files[0]}\n{to_yaml(config)}".rstrip()
