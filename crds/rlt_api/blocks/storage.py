"""spec.storage: volumes that all pods share."""

from __future__ import annotations

from rlt_api.model import AbsolutePath, ApiModel, ObjectName, Quantity, cel


class ModelCache(ApiModel):
    """A volume of model files that jobs share."""

    claim_name: ObjectName
    """An existing PersistentVolumeClaim in the job's namespace that many nodes can mount."""
    mount_path: AbsolutePath = "/mnt/models"
    """Where the pods see it."""
    read_only: bool = False
    """Whether the pods may only read it. Then whatever they load must be there already (HF_HUB_OFFLINE is set)."""


class Storage(ApiModel):
    """Volumes that all pods share: run directories, checkpoints, data sets, model files."""

    model_config = cel(
        ("!has(self.claimName) || !has(self.storageClassName)", "give claimName or storageClassName, not both"),
        (
            "!has(self.mountPath) || !has(self.modelCache) || !has(self.modelCache.mountPath) "
            "|| self.mountPath != self.modelCache.mountPath",
            "mountPath and modelCache.mountPath must be apart",
        ),
    )

    claim_name: ObjectName | None = None
    """An existing PersistentVolumeClaim in the job's namespace that many nodes can write (ReadWriteMany). Default:
    none. Without it and storageClassName the run directory is lost with the cluster."""
    storage_class_name: ObjectName | None = None
    """Make a claim of this class for the job (NAME-storage, ReadWriteMany) instead of taking an existing one. It stays
    when the job is deleted."""
    size: Quantity | None = None
    """The size of that claim, such as 500Gi, which storageClassName needs."""
    mount_path: AbsolutePath = "/mnt/rlt"
    """Where the pods see it."""
    model_cache: ModelCache | None = None
    """A volume of model files that jobs share. Default: none."""
    hf_home: AbsolutePath | None = None
    """Hugging Face's folder (HF_HOME): models and data sets that are downloaded, written by security.runAsUser.
    Default: huggingface in the model cache, else in the claim, else in a folder of the pod."""
