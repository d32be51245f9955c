"""Resources of other controllers: their metadata, and the converter of each kind."""

from __future__ import annotations

import re
from typing import Any

from rlt.convert.batch_manifests import convert_job, convert_job_set, convert_volcano_job
from rlt.convert.draft import Draft
from rlt.convert.kubeflow_manifests import convert_pytorch_job, convert_train_job
from rlt.convert.ray_manifests import convert_ray_cluster, convert_ray_job
from rlt.convert.reader import Json, Reader
from rlt_api.rules.queues import KUEUE_LABEL, QUEUE_LABELS

LABELS = {
    KUEUE_LABEL: "scheduling.queueName",
    **dict.fromkeys(QUEUE_LABELS.values(), "scheduling.queueName"),
    "ray.io/scheduler-name": "scheduling.schedulerName",
    "ray.io/priority-class-name": "scheduling.priorityClassName",
}
"""Label of a resource -> field of spec."""
GANG_LABEL = "ray.io/gang-scheduling-enabled"
KEPT = ("labels", "annotations")
OWN = re.compile(r"(^|\.)(ray\.io|kubectl\.kubernetes\.io|jobset\.sigs\.k8s\.io)/")
"""Labels and annotations of KubeRay, kubectl and JobSet, which belong to their own resources."""
CONVERTERS = {
    "RayCluster": (convert_ray_cluster, ("ray.io/v1", "ray.io/v1alpha1")),
    "RayJob": (convert_ray_job, ("ray.io/v1", "ray.io/v1alpha1")),
    "TrainJob": (convert_train_job, ("trainer.kubeflow.org/v1alpha1",)),
    "PyTorchJob": (convert_pytorch_job, ("kubeflow.org/v1",)),
    "JobSet": (convert_job_set, ("jobset.x-k8s.io/v1alpha2",)),
    "Job": (convert_job, ("batch/v1",)),
}
"""Kind -> its converter, and the versions of its API that the converter reads."""
VOLCANO = (convert_volcano_job, ("batch.volcano.sh/v1alpha1",))
"""The same for Volcano's Job."""


def convert_manifest(draft: Draft, manifest: Json) -> None:
    """Convert a resource of a supported kind."""
    kind = str(manifest["kind"])
    top = Reader(draft, manifest, "")
    top.take("kind")
    version = top.take("apiVersion")
    is_volcano = str(version).startswith("batch.volcano.sh/")
    converter, versions = VOLCANO if kind == "Job" and is_volcano else CONVERTERS[kind]
    if version not in versions:
        why = f"the fields are read as in {versions[0]}"
        draft.leave_out(f"apiVersion {version or 'none'}", why, draft.find_line("apiVersion"))
    _read_metadata(draft, top.child("metadata"))
    converter(draft, top.child("spec"))
    top.leave(("status",), "the controller of the source writes it")
    top.leave_rest()


def _read_metadata(draft: Draft, metadata: Reader) -> None:
    draft.name = str(metadata.take("name") or metadata.take("generateName") or draft.name)
    if namespace := metadata.take("namespace"):
        draft.metadata["namespace"] = namespace
    for part in KEPT:
        reader = metadata.child(part)
        for label, path in LABELS.items():
            if part == "labels":
                reader.move(label, path)
        if reader.left.get(GANG_LABEL) is not None:
            draft.put("scheduling.gang", str(reader.take(GANG_LABEL)).lower() == "true")
        reader.leave(
            tuple(key for key in reader.left if OWN.search(str(key))), "it belongs to the resource of the source"
        )
        if reader.left:
            draft.metadata[part] = reader.left
    metadata.leave_rest("the API server sets it")


def list_kinds() -> str:
    """The supported kinds, for a message."""
    return ", ".join(CONVERTERS)


def is_manifest(document: Any) -> bool:
    """Whether a document is a resource of a supported kind."""
    return isinstance(document, dict) and str(document.get("kind")) in CONVERTERS
