"""What pods ask for and where they may run: parts of spec.cluster and of an RLRuntime's node pools."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, StringConstraints

from rlt_api.model import ApiModel, EnvName, ObjectName, Quantity, cel

LabelValue = Annotated[str, StringConstraints(max_length=63)]
NodeSelector = Annotated[dict[str, LabelValue], Field(max_length=32)]


class Resources(ApiModel):
    """What one pod asks for. Requests equal limits, so that nothing is taken away later."""

    model_config = cel(
        (
            "!has(self.sharedMemory) || quantity(self.sharedMemory).isLessThan(quantity(self.memory))",
            "sharedMemory is part of memory and must be less",
        ),
    )

    cpu: Quantity
    """Processors, such as 4 or 500m."""
    memory: Quantity
    """Memory with /dev/shm in it, such as 64Gi."""
    shared_memory: Quantity | None = None
    """Size of /dev/shm, a memory volume that counts as part of memory. Default: a quarter of memory, or more where
    accelerators and model need it."""


class Accelerator(ApiModel):
    """The accelerators of one pod."""

    resource_name: Annotated[str, StringConstraints(pattern=r"^[a-z0-9.-]+/[A-Za-z0-9_.-]+$", max_length=253)]
    """The extended resource that the device plugin advertises, such as nvidia.com/gpu or amd.com/gpu."""
    count: Annotated[int, Field(ge=1, le=1024)]
    """How many of them one pod gets."""
    memory: Quantity | None = None
    """Memory of one accelerator, such as 80Gi, for the memory arithmetic before the start. Default: not checked."""


class Toleration(ApiModel):
    """A taint that the pods accept, as in a pod's spec."""

    key: Annotated[str, StringConstraints(max_length=316)] | None = None
    """The taint's key. Default: every key, with operator Exists."""
    operator: Literal["Exists", "Equal"] = "Equal"
    """Whether the value is compared."""
    value: Annotated[str, StringConstraints(max_length=63)] | None = None
    """The taint's value, for Equal."""
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"] | None = None
    """The taint's effect. Default: every effect."""


Tolerations = Annotated[list[Toleration], Field(max_length=16)]


class KeyReference(ApiModel):
    """One key of a Secret or ConfigMap in the job's namespace."""

    name: ObjectName
    """Name of the Secret or ConfigMap."""
    key: Annotated[str, StringConstraints(pattern=r"^[-._a-zA-Z0-9]+$", max_length=253)]
    """The key in it."""


class EnvVar(ApiModel):
    """An environment variable of all pods. It wins over what the operator would set."""

    model_config = cel(
        (
            "[has(self.value), has(self.secretKeyRef), has(self.configMapKeyRef)].exists_one(given, given)",
            "give exactly one of value, secretKeyRef and configMapKeyRef",
        ),
    )

    name: EnvName
    """Its name, such as NCCL_DEBUG."""
    value: Annotated[str, StringConstraints(max_length=32768)] | None = None
    """Its value."""
    secret_key_ref: KeyReference | None = None
    """Its value is in a Secret, which the operator itself never reads."""
    config_map_key_ref: KeyReference | None = None
    """Its value is in a ConfigMap."""
