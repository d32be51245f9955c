"""rlt render --target: the files of a job for a target without Kubernetes."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import click

from rlt.offline_job import build_offline_job, compute_content_id
from rlt.program import program_name
from rlt.validation import ValidatedFiles
from rlt.yaml_text import to_yaml
from rlt_cli.failure import Failure
from rlt_cli.network_warnings import print_network_warnings
from rlt_cli.output import print_message
from rlt_core.fabric.nodes import Node
from rlt_core.job import Job
from rlt_core.network_status import blocks_start
from rlt_core.targets.compose import PROGRAMS_PATH, build_compose_file
from rlt_core.targets.docker import build_docker_script
from rlt_core.targets.dstack import build_fleet, build_task, name_programs_file
from rlt_core.targets.launch import Launch, build_launch, decide_host_network
from rlt_core.targets.left_out import find_left_out
from rlt_core.targets.ray import build_ray_script
from rlt_core.targets.slurm import SlurmOptions, build_slurm_script

TARGETS: Mapping[str, Callable[[Launch, SlurmOptions], Mapping[str, str]]] = {
    "ray": lambda launch, _: {f"{launch.name}.ray.sh": build_ray_script(launch)},
    "docker": lambda launch, _: {f"{launch.name}.docker.sh": build_docker_script(launch)},
    "compose": lambda launch, _: {f"{launch.name}.compose.yaml": to_yaml(build_compose_file(launch))},
    "dstack": lambda launch, _: {
        f"{launch.name}.fleet.dstack.yml": to_yaml(build_fleet(launch)),
        f"{launch.name}.dstack.yml": to_yaml(build_task(launch)),
        name_programs_file(launch): f"{launch.programs}\n",
    },
    "slurm": lambda launch, options: {f"{launch.name}.sbatch": build_slurm_script(launch, options)},
}
"""Target -> name and text of each file."""
IMAGE_FILES = ("apptainer", "enroot")
"""Container runtimes that start a file."""
SHARED_MACHINES = ("ray", "slurm")
"""Targets whose machines run several jobs at the same time."""


def render_target(
    target: str,
    file: str,
    validated: ValidatedFiles,
    nodes: Sequence[Node],
    *,
    storage: str | None,
    slurm: SlurmOptions,
) -> dict[str, str]:
    """Render the one job in a file. Fields without effect are named on standard error and in the files.

    Raises Failure.
    """
    jobs = validated.jobs()
    if len(jobs) > 1:
        message = f"{file}: contains {len(jobs)} jobs; --target accepts one."
        raise Failure(message, next=f"{program_name()} render {file}")
    job = build_offline_job(jobs[0], validated, uid=compute_content_id(jobs[0], validated))
    job = decide_host_network(job, nodes)
    reject_unknown_storage(storage)
    reject_held_job(job, file)
    if nodes:
        print_network_warnings(job)
    left_out = list(find_left_out(job, target))
    for warning in left_out:
        print_message(f"warning: {warning}")
    programs = {"programs": PROGRAMS_PATH} if target == "compose" else {}
    try:
        launch = build_launch(job, storage=storage, any_port=target in SHARED_MACHINES, **programs)
        files = TARGETS[target](launch, slurm)
    except ValueError as error:
        raise Failure(f"{job.name}: {error}", next=f"{program_name()} render --help") from error
    archive = name_programs_file(launch)
    return {name: text if name == archive else add_comments(text, left_out) for name, text in files.items()}


def add_comments(text: str, comments: Sequence[str]) -> str:
    """The text of a script or a YAML file with comments at its beginning."""
    first, rest = text.split("\n", 1) if text.startswith("#!") else ("", text)
    return "\n".join([*([first] if first else []), *(f"# {comment}" for comment in comments), rest])


def reject_unknown_storage(storage: str | None) -> None:
    """Raise a usage error for a path that is not absolute: the machines have other working directories."""
    if storage is not None and not os.path.isabs(storage):
        raise click.UsageError(f"--storage {storage}: use an absolute path, which all machines share")


def reject_unknown_image(image_file: str | None, runtime: str | None) -> None:
    """Raise a usage error for a path that is not absolute, or that the container runtime does not read."""
    if image_file is not None and runtime not in IMAGE_FILES:
        raise click.UsageError(f"--image-file requires --container-runtime {' or '.join(IMAGE_FILES)}")
    if image_file is not None and not os.path.isabs(image_file):
        raise click.UsageError(f"--image-file {image_file}: use an absolute path, which is the same on all nodes")


def reject_held_job(job: Job, file: str) -> None:
    """Raise Failure if the nodes do not have what the job requires."""
    network = job.status.network
    assert job.spec
    if network and network.rejection and blocks_start(network, job.spec):
        message = f"{job.name}: the nodes do not fit: {network.rejection.code}: {network.rejection.message}"
        raise Failure(message, next=f"{program_name()} explain network {file} --nodes FILE")


def write_files(files: Mapping[str, str], directory: Path) -> None:
    """Write all files or none: into a folder beside the directory, which is then renamed. Raises Failure."""
    try:
        directory.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=directory.parent, prefix=f".{directory.name}-") as temporary:
            written = Path(temporary, "files")
            written.mkdir()
            for name, text in files.items():
                (written / name).write_text(text)
            if directory.exists() and any(directory.iterdir()):
                raise FileExistsError(None, "the directory is not empty", str(directory))
            written.replace(directory)
    except OSError as error:
        raise Failure(f"{directory}: {error.strerror}.", next=f"ls -la {directory}") from error
    for name in files:
        print_message(str(directory / name))


def emit_files(files: Mapping[str, str]) -> None:
    """Print the files: as they are, or with their names if there are several."""
    for name, text in files.items():
        if len(files) > 1:
            click.echo(f"--- # {name}")
        click.echo(text, nl=False)
