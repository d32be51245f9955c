"""The worker pods of each role, and the processes in them: one for each device, or one for each pod without devices."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from rlt_api.spec.training_config import ROLLOUT_RESOURCE, TRAIN_RESOURCE, TrainingConfig
from rlt_pod.report.phase_seconds import Devices

Role = Literal["train", "rollout"]


@dataclass(frozen=True)
class Pods:
    """The worker pods of one role."""

    role: Role
    count: int
    devices: int
    """Accelerators per pod. 0: one process on the CPU."""
    cpus: int
    """CPUs per pod."""
    resource: str | None
    """The custom Ray resource that only these pods offer."""

    @property
    def processes(self) -> int:
        """Processes per pod."""
        return max(1, self.devices)

    @property
    def threads(self) -> int:
        """Threads per process."""
        return max(1, self.cpus // self.processes)

    def bundle(self) -> dict[str, float]:
        """The Ray resources of one pod."""
        bundle: dict[str, float] = {"CPU": self.cpus}
        if self.devices:
            bundle["GPU"] = self.devices
        if self.resource:
            bundle[self.resource] = 1
        return bundle


def training_pods(config: TrainingConfig) -> Pods:
    """Return the pods of the train workers."""
    resource = TRAIN_RESOURCE if config.rollout_workers else None
    return Pods("train", config.workers, config.devices_per_worker, config.cpus_per_worker, resource)


def rollout_pods(config: TrainingConfig) -> Pods:
    """Return the pods of the rollout workers (rollout.mode separate)."""
    count = config.rollout_workers
    devices = config.rollout_devices_per_worker
    cpus = config.rollout_cpus_per_worker
    return Pods("rollout", count, devices, cpus, ROLLOUT_RESOURCE)


def count_train_workers(config: TrainingConfig) -> int:
    """Return the number of train workers."""
    pods = training_pods(config)
    return pods.count * pods.processes


def list_accelerators(config: TrainingConfig) -> Devices | None:
    """Return the accelerators of the pods that train and of those that only generate; None without accelerators."""
    train = training_pods(config)
    rollout = rollout_pods(config)
    devices = Devices(train.count * train.devices, rollout.count * rollout.devices)
    return devices if devices.train else None


def count_devices(config: TrainingConfig) -> int:
    """Return the number of devices of all pods, where a pod without devices counts as one."""
    pods = rollout_pods(config)
    return count_train_workers(config) + pods.count * pods.processes
