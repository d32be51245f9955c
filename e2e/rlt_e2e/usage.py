"""Whether status.usage has what the pods held: accelerators times seconds, by the times of the pods.

The nodes advertise GPUs as a device plugin does, and each worker pod has one. Programs find none: the driver trains on
CPUs and reports its phases as on GPUs.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from rlt_e2e.api_objects import create_object, read_objects
from rlt_e2e.cluster import Cluster
from rlt_e2e.jobs import Job

GPU = "nvidia.com/gpu"
ON_CPUS = "on-cpus"
"""Name of the ConfigMap with DRIVER, and of its volume."""
ENDED = ("Succeeded", "Failed")
MAX_ERROR = 0.01
DRIVER = """
with open("/proc/self/cmdline") as command:
    is_driver = "/rlt-trainer\\0run" in command.read()
if is_driver:
    from rlt_trainer import __main__ as program
    from rlt_trainer.cluster import pods
    read = program.read_config
    count = pods.list_accelerators
    def read_config(path):
        config = read(path)
        pods.list_accelerators = lambda _: count(config)
        return config.model_copy(update={"devices_per_worker": 0, "rollout_devices_per_worker": 0})
    program.read_config = read_config
"""
"""A sitecustomize.py: the workers have no devices, and the driver counts the devices in the spec."""


@dataclass
class Held:
    """What the worker pods held, in accelerator seconds."""

    bound: dict[str, float] = field(default_factory=dict)
    """Uid of a pod -> when it got its node, in Unix seconds."""
    ended: dict[str, float] = field(default_factory=dict)
    """When it ended, or when it was missing first."""

    @property
    def seconds(self) -> float:
        """Accelerator seconds of the pods that have ended."""
        return sum(end - self.bound[uid] for uid, end in self.ended.items())

    def observe(self, cluster: Cluster, namespace: str, job: str, now: float) -> None:
        """Record the pods of the job. Without an answer of the API server, nothing is recorded."""
        selector = f"ray.io/cluster={job},ray.io/node-type=worker"
        with suppress(ValueError):
            found = read_objects(cluster, namespace, "pod", labelSelector=selector)
            alive = {each["metadata"]["uid"] for each in found if each["status"].get("phase") not in ENDED}
            bound = {each["metadata"]["uid"]: _find_bound(each) for each in found}
            self.bound |= {uid: time for uid, time in bound.items() if time is not None}
            for uid in self.bound.keys() - alive - self.ended.keys():
                self.ended[uid] = now


def reserve(cluster: Cluster, namespace: str, job: Job) -> None:
    """Let each worker pod of the job reserve a GPU, and its driver train without it.

    The settings are the defaults of a job without GPUs.
    """
    for node in cluster.nodes():
        cluster.set_extended_resource(node, GPU, 8)
    data = {"sitecustomize.py": DRIVER}
    create_object(
        cluster, namespace, {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": ON_CPUS}, "data": data}
    )
    spec: dict[str, Any] = job["spec"]
    spec["model"] |= {"dtype": "float32", "enableGradientCheckpointing": False, "useRemovePadding": False}
    spec["training"] |= {"useTorchCompile": False}
    spec["rollout"] |= {"freeCacheEngine": False}
    for group in spec["cluster"]["workers"]:
        group["accelerator"] = {"resourceName": GPU, "count": 1}
    container = {
        "name": "ray-head",
        "env": [{"name": "PYTHONPATH", "value": f"/{ON_CPUS}"}],
        "volumeMounts": [{"name": ON_CPUS, "mountPath": f"/{ON_CPUS}"}],
    }
    volume = {"name": ON_CPUS, "configMap": {"name": ON_CPUS}}
    spec["cluster"]["head"]["podTemplate"] = {"spec": {"containers": [container], "volumes": [volume]}}


def is_released(job: Job) -> bool:
    """Whether the usage is complete: the pods hold nothing."""
    return bool(job["status"].get("usage", {}).get("accelerators") == 0)


def compute_error(job: Job, held: Held) -> float:
    """The difference between status.usage and what the pods held, as a share of it.

    Raises ValueError if the parts of the usage do not add up to its total.
    """
    usage = job["status"]["usage"]
    total: int = usage["acceleratorSeconds"]
    days = sum(sum(day["by"].values()) for day in usage["days"])
    parts = sum(usage["by"].values())
    if not total == parts == days:
        raise ValueError(f"status.usage: {total} accelerator seconds, {parts} in `by`, {days} in `days`")
    return (total - held.seconds) / held.seconds


def _find_bound(pod: dict[str, Any]) -> float | None:
    conditions = pod["status"].get("conditions", [])
    times = (each["lastTransitionTime"] for each in conditions if each["type"] == "PodScheduled")
    time = next(times, None) if pod["spec"].get("nodeName") else None
    return datetime.fromisoformat(time).timestamp() if time else None
