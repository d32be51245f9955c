"""The file with what the preflight checks expect of the job's cluster (rlt_pod/preflight/expected.py)."""

from __future__ import annotations

from typing import Literal

from rlt_api.blocks.cluster import WorkerGroup
from rlt_api.frameworks.known_programs import find_program, get_record
from rlt_api.frameworks.preflight import reject_engine
from rlt_api.frameworks.registry import get_framework
from rlt_api.model import quantity_value
from rlt_api.rules.shared_memory import size_shared_memory, size_worker_shared_memory
from rlt_api.rules.volume_size import checkpoint_bytes, count_checkpoints, export_bytes
from rlt_api.spec.job_spec import RLTrainingJobSpec
from rlt_core import names
from rlt_core.children.preflight_inputs import (
    list_data_files,
    list_model_folders,
    list_object_paths,
    list_repositories,
)
from rlt_core.children.program import build_command
from rlt_core.job import Job
from rlt_pod.preflight.expected import Bucket, Engine, Expected, Group, NotPossible, Trial

NOT_DOWNLOADED = "is in a bucket, and is not downloaded with preflight.only."
IN_THE_JOB = "Use preflight.level full in the job itself."
TRIAL_DIRECTORY = ".preflight-trial"
"""Folder of the stage training, in the run directory."""


def get_level(spec: RLTrainingJobSpec) -> Literal["none", "basic", "full"]:
    """Return preflight.level. Its default is basic with preflight.only."""
    return spec.preflight.level or ("basic" if spec.preflight.only else "none")


def has_preflight(spec: RLTrainingJobSpec) -> bool:
    """Whether the checks run before the program of the job."""
    return get_level(spec) != "none"


def has_trial(spec: RLTrainingJobSpec) -> bool:
    """Whether the checks train for some steps."""
    return get_level(spec) == "full"


def build_expected(job: Job, spec: RLTrainingJobSpec) -> Expected:
    """Build the expectations. The pods are built from the same values."""
    level = get_level(spec)
    head = spec.cluster.head.resources
    bandwidth = spec.preflight.min_bus_bandwidth
    framework = get_framework(spec)
    run_directory = names.run_directory(job.name, uid=job.uid, spec=spec)
    engine, trial = _plan_full(job, spec, run_directory) if level == "full" and not framework.trial else (None, None)
    objects = list_object_paths(spec)
    if level == "full" and framework.trial and objects:
        trial = NotPossible("training-step", "training", f"{objects[0].field} {NOT_DOWNLOADED}", IN_THE_JOB)
    return Expected(
        level=level,
        head=Group("headgroup", 1, 0, 0, size_shared_memory(head).size),
        workers=[_build_group(spec, group) for group in spec.cluster.workers],
        head_service=names.head_service(job.name),
        run_directory=run_directory,
        shared_storage=spec.storage.outlives_pods,
        require_rdma=spec.network.require == "rdma",
        models=list_model_folders(spec),
        data_files=list_data_files(spec),
        repositories=list_repositories(spec),
        chat_template_of=_find_template_folder(spec),
        chat_template=_find_template(spec),
        checkpoint_bytes=checkpoint_bytes(spec),
        export_bytes=export_bytes(spec),
        checkpoints=count_checkpoints(spec),
        min_bus_bandwidth=bandwidth * 1e9 if bandwidth is not None else None,
        bfloat16=uses_bfloat16(spec),
        trial=[*framework.trial] if level == "full" and framework.trial and not objects else None,
        engine=engine if isinstance(engine, Engine) else None,
        framework_trial=trial if isinstance(trial, Trial) else None,
        bucket=_build_bucket(job, spec),
        objects=objects,
        endpoint=spec.storage.endpoint,
        not_possible=[each for each in (engine, trial) if isinstance(each, NotPossible)],
    )


def _build_bucket(job: Job, spec: RLTrainingJobSpec) -> Bucket | None:
    url = names.run_url(job.name, uid=job.uid, spec=spec)
    if url is None:
        return None
    endpoint = spec.storage.endpoint
    command = ["rlt-trainer", "bucket", "--url", url, *(["--endpoint", endpoint] if endpoint else [])]
    groups = [group.name for group in spec.cluster.workers if group.name != spec.rollout.worker_group]
    return Bucket(url, command, groups)


def _plan_full(
    job: Job, spec: RLTrainingJobSpec, run_directory: str
) -> tuple[Engine | NotPossible | None, Trial | NotPossible]:
    """The engine and the trial of a framework other than rlt's trainer, or the reasons why there is none."""
    if spec.preflight.only and spec.framework.prepare:
        reason = "The steps of framework.prepare, whose files it may need, do not run with preflight.only."
        engine, trial = (
            NotPossible(name, stage, reason, IN_THE_JOB)
            for name, stage in (("engine", "services"), ("training-step", "training"))
        )
        return engine, trial
    framework = get_framework(spec)
    command = build_command(job, spec)
    assert framework.build_trial
    started = _limit_engine(framework.build_engine(spec, command), spec)
    return started, framework.build_trial(spec, command, f"{run_directory}/{TRIAL_DIRECTORY}")


def _limit_engine(engine: Engine | NotPossible | None, spec: RLTrainingJobSpec) -> Engine | NotPossible | None:
    """The engine, if a pod has its accelerators."""
    largest = max((each.accelerator.count for each in spec.cluster.workers if each.accelerator), default=1)
    if isinstance(engine, Engine) and engine.tensor_parallel_size > largest:
        size = engine.tensor_parallel_size
        return reject_engine(f"Its tensor parallel size {size} is larger than the {largest} accelerators of a pod.")
    return engine


def uses_bfloat16(spec: RLTrainingJobSpec) -> bool:
    """Whether the engine computes in bfloat16: of a command, verl's default. False for other programs, which may use
    any type."""
    if spec.model is not None:
        return spec.model.dtype == "bfloat16"
    program = find_program(spec.framework.command or [])
    return program is not None and get_record(program).uses_bfloat16(program)


def _find_template_folder(spec: RLTrainingJobSpec) -> str | None:
    """The folder of the policy, of which prompts have the chat template."""
    model = spec.model.path if spec.model and spec.data else None
    if not get_framework(spec).reads_fields:
        program = find_program(spec.framework.command or [])
        model = str(program.values.get(get_record(program).policy, "")) if program and not program.in_script else None
    return model if model and model.startswith("/") and not _find_template(spec) else None


def _find_template(spec: RLTrainingJobSpec) -> str | None:
    """The chat template in the job."""
    if get_framework(spec).reads_fields:
        return spec.data.chat_template if spec.data else None
    program = find_program(spec.framework.command or [])
    template = program.values.get(get_record(program).chat_template) if program else None
    return template if isinstance(template, str) else None


def _build_group(spec: RLTrainingJobSpec, group: WorkerGroup) -> Group:
    assert group.resources
    accelerator = group.accelerator
    return Group(
        name=group.name,
        replicas=group.max_replicas or group.replicas,
        cpus=group.num_cpus or max(1, int(quantity_value(group.resources.cpu))),
        devices=accelerator.count if accelerator else 0,
        shared_memory=size_worker_shared_memory(spec, group).size,
        device_memory=int(quantity_value(accelerator.memory)) if accelerator and accelerator.memory else 0,
        min_replicas=group.min_replicas,
    )
