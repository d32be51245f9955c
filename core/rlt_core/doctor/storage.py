"""Storage for models, data and checkpoints: all pods of a job mount one volume."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from rlt_core.doctor.facts import ClusterFacts
from rlt_core.doctor.line import Line, error, explain_unread, join_names, ok, warning
from rlt_core.fabric.facts import Facts
from rlt_core.job import Manifest

DEFAULT_CLASS = "storageclass.kubernetes.io/is-default-class"
SHARED = re.compile(
    r"efs|fsx|filestore|lustre|(?:^|[./-])nfs|cephfs|azurefile|file\.csi\.azure|blob\.csi\.azure|gcsfuse|fss\.csi|"
    r"weka|vast|beegfs|juicefs|longhorn|spectrumscale|glusterfs|quobyte|portworx|pxd|trident|gpfs|ddn|purestorage",
    re.IGNORECASE,
)
"""Provisioners whose volumes can be ReadWriteMany. The API does not have it: from the documentation of the drivers."""
MANY = "ReadWriteMany"
PAGE = "docs/prepare-volume.md#create-it"
VOLUMES = {"h100": "nvidia", "mi300x": "amd", "l4": "nvidia"}
"""File in examples/volumes, by GPU model -> vendor. The first one of a vendor is for its other models."""
SMALLEST_VOLUME = "l4"


def inspect_storage_classes(facts: ClusterFacts) -> Iterator[Line]:
    """The classes, the default one, and which create ReadWriteMany volumes."""
    topic = "storage classes"
    if not facts.storage_classes.known:
        yield explain_unread(topic, facts.storage_classes)
        return
    classes = facts.storage_classes.items
    shared = [each["metadata"]["name"] for each in classes if SHARED.search(each["provisioner"])]
    default = [each["metadata"]["name"] for each in classes if _is_default(each)]
    if not classes:
        yield warning(topic, "The cluster has no StorageClass: volumes must be created by hand.", PAGE)
    elif not shared:
        known = join_names([f"{each['metadata']['name']} ({each['provisioner']})" for each in classes])
        message = f"No class is known for {MANY} volumes, which jobs on several nodes need: {known}."
        yield warning(topic, message, PAGE)
    else:
        yield ok(topic, f"{MANY} by provisioner: {join_names(shared)}; default: {join_names(default) or 'none'}")


def inspect_volume_claims(facts: ClusterFacts, found: Mapping[str, Facts]) -> Iterator[Line]:
    """The namespace's claims that all pods of a job can mount. `found`: the facts of each node."""
    topic = "volumes"
    if not facts.volume_claims.known:
        yield explain_unread(topic, facts.volume_claims)
        return
    shared = [each for each in facts.volume_claims.items if MANY in ((each.get("spec") or {}).get("accessModes") or ())]
    for each in shared:
        name = each["metadata"]["name"]
        phase = (each.get("status") or {}).get("phase")
        if phase == "Lost":
            yield error(topic, f"{name} has lost its volume.", f"kubectl describe pvc {name} -n {facts.namespace}")
        elif phase == "Bound":
            size = ((each.get("status") or {}).get("capacity") or {}).get("storage")
            yield ok(topic, f"{name}: {size}, {MANY}, class {each['spec'].get('storageClassName') or 'none'}")
        else:
            message = f"{name} is {phase}: no volume is bound, or its first pod has not started."
            yield warning(topic, message, f"kubectl describe pvc {name} -n {facts.namespace}")
    if not shared:
        message = f"Namespace {facts.namespace} has no {MANY} PersistentVolumeClaim for model, data and checkpoints."
        file = f"examples/volumes/{_choose_volume(found)}.yaml"
        command = f"kubectl apply -n {facts.namespace} -f {file}"
        yield warning(topic, message, f"set storageClassName in {file}, then {command}: docs/prepare-volume.md")


def _choose_volume(found: Mapping[str, Facts]) -> str:
    """The example for the GPU model, else for the vendor. Without GPUs, the smallest one."""
    products = {(each.product or "").lower() for each in found.values() if each.gpus}
    vendors = {each.vendor for each in found.values() if each.gpus}
    of_model = [name for name in VOLUMES if name in products]
    of_vendor = [name for name, vendor in VOLUMES.items() if vendor in vendors]
    return (of_model or of_vendor or [SMALLEST_VOLUME])[0]


def _is_default(storage_class: Manifest) -> bool:
    annotations = storage_class["metadata"].get("annotations") or {}
    return bool(annotations.get(DEFAULT_CLASS) == "true")
