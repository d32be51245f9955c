"""Resources, accelerators, tolerations and variables of pods, in spec.cluster and in an RLRuntime's node pools."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, StringConstraints

from rlt_api.model import ApiModel, EnvName, ObjectName, Quantity, cel

LabelValue = Annotated[str, StringConstraints(max_length=63)]
NodeSelector = Annotated[dict[str, LabelValue], Field(max_length=32)]


class Resources(ApiModel):
    """Resources of one pod. Requests equal limits."""

    model_config = cel(
        (
            "!has(self.sharedMemory) || quantity(string(self.sharedMemory)).isLessThan(quantity(string(self.memory)))",
            "sharedMemory must be less than memory, which contains it",
        ),
    )

    cpu: Quantity
    """Number of CPUs, such as 4 or 500m."""
    memory: Quantity
    """Memory including /dev/shm, such as 64Gi."""
    shared_memory: Quantity | None = None
    """Size of /dev/shm, a memory volume that counts as part of memory. Default: a quarter of memory, or more if
    accelerators and model need it."""


class Accelerator(ApiModel):
    """The accelerators of one pod."""

    resource_name: Annotated[str, StringConstraints(pattern=r"^[a-z0-9.-]+/[A-Za-z0-9_.-]+$", max_length=253)]
    """The extended resource of the device plugin, such as nvidia.com/gpu or amd.com/gpu."""
    count: Annotated[int, Field(ge=1, le=1024)]
    """Number of accelerators in one pod."""
    memory: Quantity | None = None
    """Memory of one accelerator, such as 80Gi, for the memory estimate of the validation. Default: not validated, with
    a warning."""


class Toleration(ApiModel):
    """A toleration, as in a pod's spec."""

    key: Annotated[str, StringConstraints(max_length=316)] | None = None
    """Key of the taint. Default: every key, with operator Exists."""
    operator: Literal["Exists", "Equal"] = "Equal"
    """Equal compares the value. Exists accepts every value."""
    value: Annotated[str, StringConstraints(max_length=63)] | None = None
    """Value of the taint, for operator Equal."""
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"] | None = None
    """Effect of the taint. Default: every effect."""


Tolerations = Annotated[list[Toleration], Field(max_length=16)]


class KeyReference(ApiModel):
    """One key of a Secret or ConfigMap in the job's namespace."""

    name: ObjectName
    """Name of the Secret or ConfigMap."""
    key: Annotated[str, StringConstraints(pattern=r"^[-._a-zA-Z0-9]+$", max_length=253)]
    """The key."""


class EnvVar(ApiModel):
    """An environment variable. One of spec.cluster.env overrides the operator's value."""

    model_config = cel(
        (
            "[has(self.value), has(self.secretKeyRef), has(self.configMapKeyRef)].exists_one(given, given)",
            "must have exactly one of value, secretKeyRef and configMapKeyRef",
        ),
    )

    name: EnvName
    """Name of the variable, such as NCCL_DEBUG."""
    value: Annotated[str, StringConstraints(max_length=32768)] | None = None
    """Value of the variable."""
    secret_key_ref: KeyReference | None = None
    """Reads the value from a Secret. The operator does not read it."""
    config_map_key_ref: KeyReference | None = None
    """Reads the value from a ConfigMap."""
