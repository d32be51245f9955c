"""spec.storage: volumes that all pods share."""

from __future__ import annotations

from typing import Annotated

from pydantic import StringConstraints

from rlt_api.model import AbsolutePath, ApiModel, ObjectName, Quantity, Url, cel


class ModelCache(ApiModel):
    """A volume with model files that jobs share."""

    claim_name: ObjectName
    """An existing PersistentVolumeClaim in the job's namespace that several nodes can mount."""
    mount_path: AbsolutePath = "/mnt/models"
    """Mount path in the pods."""
    read_only: bool = False
    """Whether the mount is read-only. All model files must then exist on the volume (HF_HUB_OFFLINE is set)."""


BucketUrl = Annotated[
    str, StringConstraints(pattern=r"^s3://[a-z0-9][a-z0-9.-]{1,61}[a-z0-9](/[A-Za-z0-9!_.*'()-]+)*$", max_length=512)
]


class Storage(ApiModel):
    """Where run directories, checkpoints, data sets and model files are: volumes that all pods share, or a bucket."""

    model_config = cel(
        ("!has(self.claimName) || !has(self.storageClassName)", "claimName and storageClassName cannot be combined"),
        ("!has(self.bucket) || !has(self.claimName)", "bucket and claimName cannot be combined"),
        ("!has(self.bucket) || !has(self.storageClassName)", "bucket and storageClassName cannot be combined"),
        (
            "!has(self.mountPath) || !has(self.modelCache) || !has(self.modelCache.mountPath) "
            "|| self.mountPath != self.modelCache.mountPath",
            "mountPath and modelCache.mountPath must be different",
        ),
    )

    claim_name: ObjectName | None = None
    """An existing PersistentVolumeClaim in the job's namespace that several nodes can write to (ReadWriteMany).
    Default: none. Without it, storageClassName and bucket, the run directory is lost with the Ray cluster."""
    storage_class_name: ObjectName | None = None
    """The StorageClass of a PersistentVolumeClaim that the operator creates for the job (NAME-storage, ReadWriteMany).
    The claim is kept when the job is deleted."""
    size: Quantity | None = None
    """Size of the created PersistentVolumeClaim, such as 500Gi."""
    bucket: BucketUrl | None = None
    """Bucket and prefix for checkpoints and results instead of a shared volume, such as s3://runs/team. The objects of
    a run are below runs/NAME-UID, with the names of the run directory, which then is on the disk of each pod. Only for
    framework builtin."""
    endpoint: Url | None = None
    """URL of the server for bucket, and for models and data with paths such as s3://bucket/prefix: for example
    https://minio.storage:9000. Default: Amazon's S3."""
    secret_name: ObjectName | None = None
    """Secret in the job's namespace with the keys AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY of the buckets, which the
    pods that use them get as variables: the head, and without a shared volume the pods that train, or download.
    Default: none; they use the identity of their service account or node."""
    mount_path: AbsolutePath = "/mnt/rlt"
    """Mount path in the pods."""
    model_cache: ModelCache | None = None
    """A volume with model files that jobs share. Default: none."""
    hf_home: AbsolutePath | None = None
    """Hugging Face's folder for downloaded models and data sets (HF_HOME), which security.runAsUser must be able to
    write to. Default: huggingface in the model cache, or in the PersistentVolumeClaim, or in a folder of the pod."""

    @property
    def outlives_pods(self) -> bool:
        """Whether the volume is a PVC. Without one, each pod has its own volume, which ends with the pod."""
        return bool(self.claim_name or self.storage_class_name)

    @property
    def keeps_checkpoints(self) -> bool:
        """Whether checkpoints outlive the pods that wrote them, on a PVC or in a bucket."""
        return self.outlives_pods or self.bucket is not None
