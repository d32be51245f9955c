"""Names and labels of a job's objects. All derive from the job, so that the operator stores none."""

from __future__ import annotations

from rlt_api.rules.queues import KUEUE_LABEL
from rlt_api.spec.job_spec import RLTrainingJobSpec

FIELD_OWNER = "rlt-operator"
"""Field manager of all objects that the operator applies, and source of its events."""

JOB_LABEL = "rlt.dev/job"
"""Label of every child and pod: the name of the job."""
SANDBOX_LABEL = "rlt.dev/sandbox-of"
"""Label of sandbox pods (rollout.multiTurn.sandbox), which do not have JOB_LABEL: the name of the job."""
SHARD_LABEL = "rlt.dev/shard"
"""On what a job owns: the number of the operator's shard that has created it. The operator does not read it."""
CLAIM_KIND = "PersistentVolumeClaim"
RAY_GROUP_LABEL = "ray.io/group"
"""KubeRay's label on the pods of a RayCluster: the name of their group."""

QUEUE_LABEL = KUEUE_LABEL
"""Label of a job and its RayCluster: the LocalQueue in which Kueue admits it."""

ELASTIC_JOB = "kueue.x-k8s.io/elastic-job"
"""Annotation of a RayCluster that Kueue 0.18 or newer admits again when its number of pods changes, and the scheduling
gate that Kueue then adds to its pods (kueue pkg/workloadslicing)."""
WORKLOAD_LABEL = "kueue.x-k8s.io/job-uid"
"""Label of a Kueue Workload: the UID of its RayCluster (kueue pkg/controller/constants)."""

CANCEL_ANNOTATION = "rlt.dev/cancel"
"""On a job: the value `true` cancels it (condition Failed, reason Cancelled). Removing it does not undo that."""

CREATOR_ANNOTATION = "rlt.dev/created-by"
"""On a job: the user who created it. A policy of the chart writes it, and users cannot change it."""

EXPORT_ANNOTATION = "rlt.dev/exported-path"
"""On the Job that exports a checkpoint: the folder of the model in the pods."""

PROGRAMS_LABEL = "rlt.dev/programs"
"""On a RayCluster: the name of the ConfigMap with the programs of its pods. On that ConfigMap: the same."""

HASH_ANNOTATION = "rlt.dev/data-hash"
"""On the ConfigMap of a job: the hash of its data when the operator wrote it."""

DASHBOARD_PORT = 8265
"""Port of Ray's dashboard and job API on the head."""

RAY_METRICS_PORT = 8080
"""Port of Ray's metrics on all pods (KubeRay's DefaultMetricsPort)."""


def labels(job: str) -> dict[str, str]:
    """Labels of all the job's children."""
    return {JOB_LABEL: job, "app.kubernetes.io/managed-by": FIELD_OWNER}


def config_map(job: str) -> str:
    """Name of the ConfigMap with the training config."""
    return f"{job}-training"


def run_record(job: str) -> str:
    """Name of the ConfigMap with the record of the run."""
    return f"{job}-record"


def programs(digest: str) -> str:
    """Name of the ConfigMap with the programs that run in the pods, for all jobs of a namespace."""
    return f"rlt-programs-{digest}"


def ray_token(job: str, *, attempt: int, suffix: str = "") -> str:
    """Name of the Secret with the token of Ray and the driver for one attempt."""
    return f"{job}-ray-token-{attempt}" + (f"-{suffix}" if suffix else "")


def export_job(job: str, *, step: int) -> str:
    """Name of the Job (batch/v1) that exports the checkpoint of `step`."""
    return f"{job}-export-{step}"


def publish_job(job: str) -> str:
    """Name of the Job (batch/v1) that publishes the exported model again."""
    return f"{job}-publish"


def model_server(job: str) -> str:
    """Name of the Deployment and the Service for the model of the job (`rlt serve`)."""
    return f"{job}-model"


def network_policy(job: str) -> str:
    """Name of the NetworkPolicy for the job's pods."""
    return f"{job}-pods"


def sandboxes(job: str) -> str:
    """Name of the Service for the sandbox pods, and of their NetworkPolicy."""
    return f"{job}-sandboxes"


def sandbox_pool(job: str, *, head_uid: str) -> str:
    """Name of the Job (batch/v1) that creates the sandbox pods for a head pod."""
    return f"{sandboxes(job)}-{head_uid[:8]}"


def list_sandboxes(pool: str, size: int) -> list[str]:
    """Names of the Sandboxes (agents.x-k8s.io) that take the place of this Job, and of their pods."""
    return [f"{pool}-{number}" for number in range(size)]


def find_job_of_sandboxes(pool: str) -> str:
    """Name of the job that a Job (batch/v1) creates sandbox pods for, from its name. Empty for another Job."""
    return pool.rpartition(f"{sandboxes('')}-")[0]


def pvc(job: str) -> str:
    """Name of the PersistentVolumeClaim that the operator creates for the job."""
    return f"{job}-storage"


def disruption_budget(job: str) -> str:
    """Name of the PodDisruptionBudget."""
    return f"{job}-pods"


def rollout_disruption_budget(job: str) -> str:
    """Name of the PodDisruptionBudget for the pods that only generate. No other job has a budget of this name."""
    return f"{disruption_budget(job)}-rollout"


def compute_domain(job: str) -> str:
    """Name of the ComputeDomain, and of the ResourceClaimTemplate that NVIDIA's DRA driver creates for it."""
    return f"{job}-nvlink"


def gang(job: str, pods: int) -> str:
    """Name of the Workload (scheduling.k8s.io) of `pods` pods."""
    return f"{job}-{pods}-pods"


def ray_cluster(job: str) -> str:
    """Name of the RayCluster."""
    return job


def head_service(job: str) -> str:
    """Name of the service that KubeRay creates for the head (GenerateHeadServiceName in KubeRay's util.go)."""
    return f"{ray_cluster(job)}-head-svc"


def submission_id(job: str, *, ray_cluster_uid: str, execution: int = 1) -> str:
    """ID of the Ray job. Ray rejects an ID that its RayCluster has had before."""
    return f"{job}-{ray_cluster_uid[:8]}" + (f"-{execution}" if execution > 1 else "")


def preflight_id(submission_id: str) -> str:
    """ID of the Ray job with the preflight checks of the Ray job `submission_id`."""
    return f"{submission_id}-preflight"


def step_id(submission_id: str, step: str) -> str:
    """ID of the Ray job for a framework.prepare step before the Ray job `submission_id`."""
    return f"{submission_id}-prepare-{step}"


def stacks_id(submission_id: str) -> str:
    """ID of the Ray job that writes the stacks of the Ray job `submission_id`."""
    return f"{submission_id}-stacks"


def mount_path(spec: RLTrainingJobSpec) -> str:
    """Mount path of the storage in all pods: a volume for each pod if the job has no PVC."""
    return spec.storage.mount_path


def hf_home(spec: RLTrainingJobSpec) -> str:
    """Value of HF_HOME: storage.hfHome, else a folder in the model cache, else in the storage."""
    cache = spec.storage.model_cache
    return spec.storage.hf_home or f"{(cache.mount_path if cache else mount_path(spec)).rstrip('/')}/huggingface"


def cache_directories(spec: RLTrainingJobSpec) -> dict[str, str]:
    """Variable -> folder of downloaded models and compiled kernels. The defaults are below the home of the user.

    triton/knobs.py (3.3), torch/_inductor/runtime/cache_dir_utils.py (2.7), vllm/envs.py (0.9).
    """
    caches = f"{mount_path(spec).rstrip('/')}/cache"
    return {
        "HF_HOME": hf_home(spec),
        "TORCHINDUCTOR_CACHE_DIR": f"{caches}/inductor",
        "TRITON_CACHE_DIR": f"{caches}/triton",
        "VLLM_CACHE_ROOT": f"{caches}/vllm",
    }


def run_directory(job: str, *, uid: str, spec: RLTrainingJobSpec) -> str:
    """Folder of checkpoints and results: the same after a suspension, another for a new job of the same name."""
    return f"{mount_path(spec).rstrip('/')}/runs/{job}-{uid[:8]}"


def run_url(job: str, *, uid: str, spec: RLTrainingJobSpec) -> str | None:
    """URL of the run's objects in storage.bucket, with the names of the run directory. None without a bucket."""
    return f"{spec.storage.bucket.rstrip('/')}/runs/{job}-{uid[:8]}" if spec.storage.bucket else None


def attempt_directory(run_directory: str, *, attempt: int) -> str:
    """Folder of an attempt's logs and stacks."""
    return f"{run_directory}/attempts/{attempt}"
