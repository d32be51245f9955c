"""The Jobs (batch/v1) that write a checkpoint as a model in Hugging Face format, or publish the model of a run. A user
creates them, not the operator.

Its pod has neither the label of the job, by which the operator selects the pods of an attempt, nor the volumes of an
attempt: the Secret with Ray's token ends with the attempt.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rlt_api.blocks.cluster import WorkerGroup
from rlt_api.frameworks.framework_type import Export
from rlt_api.frameworks.registry import get_framework
from rlt_api.schema.crd import GROUP, KIND, VERSION
from rlt_api.spec.job_spec import RLTrainingJobSpec
from rlt_api.spec.worker_groups import training_group
from rlt_core import names
from rlt_core.children.function_files import build_function_volumes
from rlt_core.children.placement import build_scheduling_labels
from rlt_core.children.pod_template import build_program_template
from rlt_core.children.program import find_working_directory
from rlt_core.children.ray_token import VOLUME, build_ray_token_env
from rlt_core.job import Job, Manifest

MANAGED_BY = "rlt"
"""Value of app.kubernetes.io/managed-by: the operator does not manage the Job."""
DEADLINE_S = 6 * 3600
"""Time for the pod to start and to write the model (activeDeadlineSeconds)."""
TTL_S = 24 * 3600
"""Time for which an ended Job and its log are kept (ttlSecondsAfterFinished)."""


def build_export_job(job: Job, spec: RLTrainingJobSpec, export: Export, step: int) -> Manifest:
    """Build the Job that runs the command of `export`.

    The builtin trainer exports on a node like the head's, without accelerators. The programs of verl and ROLL
    need the memory of a training worker, and one accelerator for Megatron.
    """
    group = training_group(spec) if get_framework(spec).exports_on_a_worker else None
    pod = build_single_pod(job, spec, group, "export", export.command)
    return _build_job(job, spec, names.export_job(job.name, step=step), export.directory, pod)


def build_publish_job(job: Job, spec: RLTrainingJobSpec, run_directory: str) -> Manifest:
    """Build the Job that publishes the exported model again, on a node like the head's, with the keys of publish."""
    pod = build_single_pod(job, spec, None, "publish", ("rlt-trainer", "publish", run_directory))
    return _build_job(job, spec, names.publish_job(job.name), f"{run_directory}/export", pod)


def _build_job(job: Job, spec: RLTrainingJobSpec, name: str, folder: str, template: Manifest) -> Manifest:
    """A Job that tries once. `folder`: of the model."""
    owner = {"apiVersion": f"{GROUP}/{VERSION}", "kind": KIND, "name": job.name, "uid": job.uid}
    labels = {names.JOB_LABEL: job.name, "app.kubernetes.io/managed-by": MANAGED_BY}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": name,
            "namespace": job.namespace,
            "labels": labels | build_scheduling_labels(job, spec),
            "annotations": {names.EXPORT_ANNOTATION: folder},
            "ownerReferences": [owner],
        },
        "spec": {
            "backoffLimit": 0,
            "activeDeadlineSeconds": DEADLINE_S,
            "ttlSecondsAfterFinished": TTL_S,
            "template": {**template, "spec": {**template["spec"], "restartPolicy": "Never"}},
        },
    }


def build_single_pod(
    job: Job, spec: RLTrainingJobSpec, group: WorkerGroup | None, name: str, command: Sequence[str]
) -> Manifest:
    """Build the template of a pod with one container, without what only pods of the Ray cluster have.

    It runs on a node like `group`'s, or like the head's. Further containers of the podTemplate are removed: a Job would
    not end before them.
    """
    template = build_program_template(job, spec, group)
    functions = {volume["name"] for volume in build_function_volumes(spec)}
    removed = {"training-config", VOLUME, *functions}
    token = build_ray_token_env(spec)
    pod: dict[str, Any] = {name: value for name, value in template["spec"].items() if name != "workloadRef"}
    container = dict(next(each for each in pod["containers"] if each["name"] in ("ray-head", "ray-worker")))
    container |= {
        "name": name,
        "command": list(command),
        "env": [each for each in container["env"] if each["name"] not in token],
        "volumeMounts": [each for each in container["volumeMounts"] if each["name"] not in removed],
    }
    container.pop("args", None)
    if directory := find_working_directory(spec):
        container["workingDir"] = directory
    pod |= {
        "containers": [container],
        "volumes": [each for each in pod["volumes"] if each["name"] not in removed],
    }
    metadata = template["metadata"]
    labels = {name: value for name, value in metadata["labels"].items() if name not in names.labels(job.name)}
    return {"metadata": {**metadata, "labels": labels}, "spec": pod}
