"""What a value of spec.framework.type means: everything that the operator, the CLI and the client ask about it.

Each framework has one in its folder (`framework.py`), and registry.py lists them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from rlt_api.blocks.cluster import WorkerGroup
from rlt_api.findings.finding import Finding
from rlt_api.frameworks.roll.values import Settings
from rlt_api.frameworks.run import Run
from rlt_api.spec.job_spec import RLTrainingJobSpec
from rlt_pod.preflight.expected import Engine, NotPossible, Trial

Rule = Callable[[RLTrainingJobSpec], Iterator[Finding]]
Warn = Callable[[RLTrainingJobSpec], Iterator[str]]


@dataclass(frozen=True)
class Export:
    """The model in Hugging Face format, and the program that writes it."""

    directory: str
    """Folder of the model in the pods."""
    command: tuple[str, ...] = ()
    """The program, in which {step} stands for the step of the latest checkpoint. Empty if the framework writes the
    model itself."""


def _build_no_engine(spec: RLTrainingJobSpec, command: list[str]) -> None:
    return None


def _build_no_files(spec: RLTrainingJobSpec, run: Run) -> dict[str, str]:
    return {}


def _list_no_variables(spec: RLTrainingJobSpec) -> dict[str, str]:
    return {}


def _list_no_worker_variables(spec: RLTrainingJobSpec, group: WorkerGroup) -> dict[str, str]:
    return {}


def _export_nothing_at_the_end(spec: RLTrainingJobSpec, run: Run, on_a_worker: bool) -> None:
    return None


def _export_no_checkpoint(spec: RLTrainingJobSpec, run: Run, step: int) -> None:
    return None


def _find_working_directory(spec: RLTrainingJobSpec) -> str | None:
    return spec.framework.working_directory


def _count_steps(spec: RLTrainingJobSpec) -> int | None:
    return spec.framework.total_steps


def _find_checkpoints(spec: RLTrainingJobSpec, run: Run) -> str | None:
    return run.checkpoints


@dataclass(frozen=True)
class FrameworkType:
    """What a framework reads from a spec, and how its program runs. `Run` is the job and its place in the pods."""

    name: str
    """The value of spec.framework.type."""
    title: str
    """Its name in messages."""

    build_command: Callable[[RLTrainingJobSpec, Run], list[str]]
    """The command line of the program that trains."""
    files: tuple[str, ...] = ()
    """Names of the files in CONFIG_DIRECTORY that the program reads."""
    build_files: Callable[[RLTrainingJobSpec, Run], dict[str, str]] = _build_no_files
    """Name of each file -> its text."""
    build_config: Callable[[RLTrainingJobSpec, Run], Settings] | None = None
    """The content of the first file, for `rlt render --command`."""
    list_variables: Callable[[RLTrainingJobSpec], dict[str, str]] = _list_no_variables
    """Environment variables of all pods."""
    list_worker_variables: Callable[[RLTrainingJobSpec, WorkerGroup], dict[str, str]] = _list_no_worker_variables
    """Environment variables that only the pods of a worker group have."""
    find_working_directory: Callable[[RLTrainingJobSpec], str | None] = _find_working_directory
    """The working directory of the program. None for Ray's."""
    count_steps: Callable[[RLTrainingJobSpec], int | None] = _count_steps
    """The number of steps, if the program does not print it."""
    reports_progress: bool = False
    """Whether the program itself serves its progress, from its start on. Otherwise run-command reads its output."""
    takes_lease: bool = False
    """Whether the program has the options --attempt and --holder, and stops when a later attempt holds the lease of the
    run directory. Otherwise failurePolicy.restartPolicy cannot be InPlace."""
    roles_as_resources: bool = False
    """Whether custom resources of Ray distinguish the pods that train from those that generate. The program continues
    when it loses one of the latter."""

    options: tuple[str, ...] = ()
    """Fields of spec.framework that it uses, and not every type."""
    reads_fields: bool = True
    """Whether it reads the fields of the training: model, data, algorithm, training, rollout, checkpoint, rewards."""
    rules: tuple[Rule, ...] = ()
    """Its rules. The rules of all jobs apply too."""
    warnings: tuple[Warn, ...] = ()

    trial: tuple[str, ...] = ()
    """Its own program for level full of the preflight checks. Empty: `build_engine` and `build_trial` apply."""
    build_engine: Callable[[RLTrainingJobSpec, list[str]], Engine | NotPossible | None] = _build_no_engine
    """The engine for the check `engine`, from the spec or its command line. None: the check does not apply."""
    build_trial: Callable[[RLTrainingJobSpec, list[str], str], Trial | NotPossible] | None = None
    """The trial of its command line in a folder."""
    trial_files: tuple[str, ...] = ()
    """Names of the files in CONFIG_DIRECTORY that the trial reads."""
    build_trial_files: Callable[[RLTrainingJobSpec, Run], dict[str, str]] = _build_no_files
    """Name of each of these files -> its text. The run is the trial's."""

    step_folder: str = "step-"
    """Name of a checkpoint's folder before the step."""
    find_checkpoints: Callable[[RLTrainingJobSpec, Run], str | None] = _find_checkpoints
    """The folder of the checkpoints. None if it is unknown."""
    keeps_exactly: bool = False
    """Whether checkpoint.maxToKeep and saveFreq determine which checkpoints exist."""
    export_at_the_end: Callable[[RLTrainingJobSpec, Run, bool], Export | None] = _export_nothing_at_the_end
    """The model after the training. The last argument: in a Ray job on a worker, else without Ray."""
    export_checkpoint: Callable[[RLTrainingJobSpec, Run, int], Export | None] = _export_no_checkpoint
    """The model of the checkpoint at a step, for a pod outside of the Ray cluster. None if its format is unknown."""
    exports_on_a_worker: bool = True
    """Whether that program needs the resources of a worker pod. If not, the head's resources are enough."""
