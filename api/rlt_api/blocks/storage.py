"""spec.storage: volumes that all pods share."""

from __future__ import annotations

from rlt_api.model import AbsolutePath, ApiModel, ObjectName, Quantity, cel


class ModelCache(ApiModel):
    """A volume with model files that jobs share."""

    claim_name: ObjectName
    """An existing PersistentVolumeClaim in the job's namespace that several nodes can mount."""
    mount_path: AbsolutePath = "/mnt/models"
    """Mount path in the pods."""
    read_only: bool = False
    """Whether the mount is read-only. All model files must then exist on the volume (HF_HUB_OFFLINE is set)."""


class Storage(ApiModel):
    """Volumes that all pods share: run directories, checkpoints, data sets, model files."""

    model_config = cel(
        ("!has(self.claimName) || !has(self.storageClassName)", "claimName and storageClassName cannot be combined"),
        (
            "!has(self.mountPath) || !has(self.modelCache) || !has(self.modelCache.mountPath) "
            "|| self.mountPath != self.modelCache.mountPath",
            "mountPath and modelCache.mountPath must be different",
        ),
    )

    claim_name: ObjectName | None = None
    """An existing PersistentVolumeClaim in the job's namespace that several nodes can write to (ReadWriteMany).
    Default: none. Without it and storageClassName, the run directory is lost with the Ray cluster."""
    storage_class_name: ObjectName | None = None
    """The StorageClass of a PersistentVolumeClaim that the operator creates for the job (NAME-storage, ReadWriteMany).
    The claim is kept when the job is deleted."""
    size: Quantity | None = None
    """Size of the created PersistentVolumeClaim, such as 500Gi."""
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
