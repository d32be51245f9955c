"""The manifests of a first job: an RLRuntime with the node pool, the volume, and the job."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil
from typing import Any

from rlt.first_job.request import PRESETS, NoFirstJobError, Request
from rlt.first_job.settings import fit_job
from rlt.yaml_text import to_yaml
from rlt_api.blocks.model import Model
from rlt_api.model import quantity_value
from rlt_api.rules.device_memory import list_moments
from rlt_api.rules.engine_memory import cache_share, read_trained
from rlt_api.rules.memory_parts import GIB
from rlt_api.rules.model_shape import model_shape
from rlt_api.rules.volume_size import list_volume_parts
from rlt_api.schema.crd import GROUP, KIND, RUNTIME_KIND, VERSION
from rlt_api.spec.job_spec import RLTrainingJobSpec
from rlt_api.spec.objects import SCHEME
from rlt_api.spec.worker_groups import training_group
from rlt_api.validation.validate import validate_job

CLAIM = "rlt-runs"
"""Name of the PVC, as in the examples."""
REGISTRY = "registry.example.com"
"""The placeholder of the examples."""
SPARE = 1.25
"""Size of the volume as a multiple of what the job keeps: for logs, rollouts, data, and names that are rounded down."""
LENGTHS = {"gsm8k": (512, 1024), "math": (1024, 3072)}
"""Preset -> maxPromptLength and maxResponseLength."""
OTHER_LENGTHS = (1024, 2048)
STEPS = 200
SAVE_FREQ = 20
MAX_TO_KEEP = 2
PROMPTS_PER_WORKER = 8
"""Prompts in a mini-batch for each train worker; a batch has two mini-batches."""
MIN_BATCH = 32
COMMENT_WIDTH = 110
ATTENTION = ["q_proj", "k_proj", "v_proj", "o_proj"]
"""The layers with adapters in a mixture of experts: experts and routers have none."""


@dataclass(frozen=True)
class FirstJob:
    """The three manifests, and the sums behind them."""

    runtime: dict[str, Any]
    volume: dict[str, Any]
    job: dict[str, Any]
    comments: Mapping[str, Sequence[str]]
    """Kind of a manifest -> paragraphs about it."""

    @property
    def manifests(self) -> list[dict[str, Any]]:
        """In the order in which they are created."""
        return [self.runtime, self.volume, self.job]

    def to_text(self) -> str:
        """YAML documents with comments."""
        texts = []
        for manifest in self.manifests:
            lines = [part for line in self.comments[manifest["kind"]] for part in textwrap.wrap(line, COMMENT_WIDTH)]
            texts.append("".join(f"# {line}\n" for line in lines) + to_yaml(manifest))
        return "---\n".join(texts)


def build_first_job(request: Request, name: str | None = None) -> FirstJob:
    """Build the manifests. Raises NoFirstJobError if no settings fit."""
    runtime = _build_runtime(request)
    _require_model(request, runtime["spec"])
    fitted = fit_job(request, _draft_job(request), runtime["spec"])
    job = {
        "apiVersion": f"{GROUP}/{VERSION}",
        "kind": KIND,
        "metadata": {"name": name or _name_job(request)},
        "spec": fitted.spec,
    }
    volume = _build_volume(request, fitted.resolved)
    comments = {
        RUNTIME_KIND: _explain_runtime(request),
        volume["kind"]: _explain_volume(request, fitted.resolved),
        KIND: _explain_job(request, fitted.resolved),
    }
    return FirstJob(runtime, volume, job, comments)


def _build_runtime(request: Request) -> dict[str, Any]:
    kind = request.kind
    count = request.gpus_of_a_node
    target = "rocm" if kind.vendor == "amd" else "cuda"
    defaults: dict[str, Any] = {
        "cluster": {"head": {"resources": {"cpu": "4", "memory": "16Gi"}}},
        "storage": {"claimName": CLAIM},
    }
    if kind.vendor == "amd":
        defaults["security"] = {"supplementalGroups": [44, 110]}
    pool = {
        "name": request.runtime,
        "resources": {"cpu": str(kind.cpus * count), "memory": f"{kind.host_memory_gib * count}Gi"},
        "accelerator": {"resourceName": kind.resource, "count": count, "memory": kind.memory},
        "tolerations": [{"key": kind.resource, "operator": "Exists", "effect": "NoSchedule"}],
    }
    spec = {
        "images": {kind.vendor: request.image or f"{REGISTRY}/rlt-trainer:{target}"},
        "nodePools": [pool],
        "defaults": defaults,
    }
    metadata = {"name": request.runtime}
    return {"apiVersion": f"{GROUP}/{VERSION}", "kind": RUNTIME_KIND, "metadata": metadata, "spec": spec}


def _require_model(request: Request, runtime: Mapping[str, Any]) -> None:
    """Raises NoFirstJobError if the model's name or its number of parameters is invalid."""
    for finding in validate_job("first", {"model": _describe_model(request)}, runtime).findings:
        if finding.field in ("spec.model.path", "spec.model.parameters"):
            raise NoFirstJobError(str(finding))


def _describe_model(request: Request) -> dict[str, Any]:
    return {"path": request.model, **({"parameters": request.parameters} if request.parameters else {})}


def _draft_job(request: Request) -> dict[str, Any]:
    """The spec without the settings that depend on memory."""
    model = _describe_model(request)
    if request.lora:
        shape = model_shape(Model(path=request.model))
        has_experts = shape is not None and shape.experts > 1
        model["lora"] = {"rank": 32, "alpha": 64, **({"targetModules": ATTENTION} if has_experts else {})}
    prompt, response = LENGTHS.get(request.data, OTHER_LENGTHS)
    workers = request.nodes * request.gpus_of_a_node
    mini_batch = -(-max(MIN_BATCH, PROMPTS_PER_WORKER * workers) // workers) * workers
    return {
        "runtimeRef": {"name": request.runtime},
        "model": model,
        "data": {**_find_source(request.data), "maxPromptLength": prompt, "maxResponseLength": response},
        **({} if request.data in PRESETS else {"rewards": [{"name": "math"}]}),
        "algorithm": {"advEstimator": "grpo", "klLossCoef": 0.001},
        "training": {
            "totalSteps": STEPS,
            "trainBatchSize": 2 * mini_batch,
            "ppoMiniBatchSize": mini_batch,
            "learningRate": 2e-5 if request.lora else 1e-6,
        },
        "rollout": {"responsesPerPrompt": 8},
        "cluster": {"workers": [{"replicas": request.nodes, "pool": request.runtime}]},
        "checkpoint": {"saveFreq": SAVE_FREQ, "maxToKeep": MAX_TO_KEEP},
    }


def _find_source(data: str) -> dict[str, Any]:
    if data in PRESETS:
        return {"preset": data}
    return {"files": [data]} if data.startswith(("/", SCHEME)) else {"hub": {"name": data}}


def _name_job(request: Request) -> str:
    name = request.model.rstrip("/").rpartition("/")[2].lower().replace("_", "-").replace(".", "-")
    return f"{name[:30].strip('-')}-grpo"


def _build_volume(request: Request, spec: RLTrainingJobSpec) -> dict[str, Any]:
    needed = SPARE * sum(part.bytes for part in list_volume_parts(spec)) / GIB
    unit = 10 if needed < 1000 else 100
    claim: dict[str, Any] = {"accessModes": ["ReadWriteMany"]}
    if request.storage_class:
        claim["storageClassName"] = request.storage_class
    claim["resources"] = {"requests": {"storage": f"{ceil(needed / unit) * unit}Gi"}}
    return {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": CLAIM}, "spec": claim}


def _explain_runtime(request: Request) -> list[str]:
    nodes = f"nodes with {request.gpus_of_a_node} x {request.kind.product}"
    lines = [f"Image and node pool for {nodes}. CPUs and memory are of one pod: compare `kubectl describe node`."]
    if request.kind.vendor == "amd":
        lines.append("The groups 44 and 110 are video and render: `getent group render` on a node.")
    return lines


def _explain_volume(request: Request, spec: RLTrainingJobSpec) -> list[str]:
    parts = list_volume_parts(spec)
    total = sum(part.bytes for part in parts) / GIB
    lines = [f"The volume of all pods: {' + '.join(map(str, parts))} = {total:.4g} GiB, and a quarter more."]
    if request.storage_class is None:
        lines.append("The default StorageClass must allow ReadWriteMany. Otherwise add spec.storageClassName.")
    return lines


def _explain_job(request: Request, spec: RLTrainingJobSpec) -> list[str]:
    trained = read_trained(spec)
    accelerator = training_group(spec).accelerator
    assert trained
    assert accelerator
    assert accelerator.memory
    device = quantity_value(accelerator.memory)
    lines = [f"Memory of one GPU with {accelerator.memory}, by the estimate of `rlt validate`:"]
    for moment in list_moments(spec, *trained, device):
        parts = " + ".join(map(str, moment.parts))
        lines.append(f"- during the {moment.phase}: {parts} = {moment.bytes / GIB:.3g} GiB")
    lines.append(f"- KV cache of an engine: {(cache_share(spec) or 0) * device / GIB:.3g} GiB")
    if request.data not in PRESETS:
        lines.append("The columns of the data are data.promptKey (prompt) and data.answerKey (answer).")
    if any(each.startswith(SCHEME) for each in (request.model, request.data)):
        lines.append("For a bucket that is not on AWS, or has keys in a Secret: storage.endpoint, storage.secretName.")
    return lines
