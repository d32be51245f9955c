"""Names and labels of what belongs to a job. All follow from the job alone, so that nothing needs to be remembered."""

from __future__ import annotations

from rlt_api.spec import RLTrainingJobSpec

FIELD_OWNER = "rlt-operator"
"""Field manager of everything that the operator applies, and the source of its events."""

JOB_LABEL = "rlt.dev/job"
"""On every child and every pod: the name of the job."""

QUEUE_LABEL = "kueue.x-k8s.io/queue-name"
"""On a job and its RayCluster: the LocalQueue by which Kueue admits it (kueue pkg/controller/constants)."""

WORKLOAD_LABEL = "kueue.x-k8s.io/job-uid"
"""On a Workload of Kueue's: the uid of the RayCluster that it stands for (kueue pkg/controller/constants)."""

CANCEL_ANNOTATION = "rlt.dev/cancel"
"""On a job: the value `true` cancels it (condition Failed, reason Cancelled). Removing it does not undo that."""

DASHBOARD_PORT = 8265
"""Ray's dashboard with its job API, on the head."""


def labels(job: str) -> dict[str, str]:
    """The labels of every child of the job."""
    return {JOB_LABEL: job, "app.kubernetes.io/managed-by": FIELD_OWNER}


def config_map(job: str) -> str:
    """Name of the ConfigMap with the training config."""
    return f"{job}-training"


def pvc(job: str) -> str:
    """Name of the PersistentVolumeClaim that is made for the job."""
    return f"{job}-storage"


def compute_domain(job: str) -> str:
    """Name of the ComputeDomain, and of the ResourceClaimTemplate that NVIDIA's DRA driver makes for it."""
    return f"{job}-nvlink"


def gang(job: str, pods: int) -> str:
    """Name of Kubernetes' own Workload of so many pods."""
    return f"{job}-{pods}-pods"


def ray_cluster(job: str) -> str:
    """Name of the RayCluster."""
    return job


def head_service(job: str) -> str:
    """Name of the service that KubeRay makes for the head (GenerateHeadServiceName in KubeRay's util.go)."""
    return f"{ray_cluster(job)}-head-svc"


def submission_id(job: str, *, ray_cluster_uid: str) -> str:
    """Id of the Ray job: each RayCluster runs one, so that no attempts need to be counted."""
    return f"{job}-{ray_cluster_uid[:8]}"


def preflight_id(submission_id: str) -> str:
    """Id of the Ray job that checks the nodes before the one with that id."""
    return f"{submission_id}-preflight"


def mount_path(spec: RLTrainingJobSpec) -> str:
    """Where all pods see the storage, or a folder of their own if there is no claim."""
    return spec.storage.mount_path


def hf_home(spec: RLTrainingJobSpec) -> str:
    """Hugging Face's folder: in the model cache, else in the storage, unless the job says."""
    cache = spec.storage.model_cache
    return spec.storage.hf_home or f"{(cache.mount_path if cache else mount_path(spec)).rstrip('/')}/huggingface"


def run_directory(job: str, *, uid: str, spec: RLTrainingJobSpec) -> str:
    """Where the run writes: the same after a suspension, another one for a new job of the same name."""
    return f"{mount_path(spec).rstrip('/')}/runs/{job}-{uid[:8]}"
