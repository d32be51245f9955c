"""What a first job is asked for, and why there may be none."""

from __future__ import annotations

from dataclasses import dataclass

from rlt.first_job.gpus import GPUS, GpuKind

PRESETS = ("gsm8k", "math")


@dataclass(frozen=True)
class Request:
    """Model, data and hardware of a first job."""

    model: str
    """Name on the hub, a folder in the pods, or a prefix of a bucket (s3://)."""
    gpu: str = "h100"
    """A name of GPUS."""
    per_node: int | None = None
    """GPUs of a node. None: as the usual node has."""
    nodes: int = 1
    data: str = "gsm8k"
    """A preset, a name on the hub, or a file in the pods or a bucket."""
    lora: bool = False
    """Whether only adapters are trained."""
    parameters: str | None = None
    """Number of parameters such as 7B, if the name does not have it."""
    image: str | None = None
    """The trainer's image. None: a placeholder."""
    storage_class: str | None = None
    """StorageClass of the volume. None: the default of the cluster."""

    @property
    def kind(self) -> GpuKind:
        """The kind of GPU."""
        return GPUS[self.gpu]

    @property
    def gpus_of_a_node(self) -> int:
        """The number of GPUs of a worker pod."""
        return self.per_node or self.kind.per_node

    @property
    def runtime(self) -> str:
        """Name of the runtime and its node pool."""
        return self.gpu


class NoFirstJobError(Exception):
    """No settings fit. The message is a sentence with the reason and what to change."""
