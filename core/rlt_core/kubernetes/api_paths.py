"""Paths of the objects in the API server that the operator and `rlt` use."""

from __future__ import annotations

from rlt_api.schema.crd import GROUP, PLURAL, RUNTIME_PLURAL, VERSION
from rlt_core.job import Manifest

JOBS = f"/apis/{GROUP}/{VERSION}"
RAY = "/apis/ray.io/v1"
CORE = "/api/v1"
API_GROUPS = "/apis"
KUEUE = "/apis/kueue.x-k8s.io"
AGENT_SANDBOX = "/apis/agents.x-k8s.io/v1beta1"
NODES = f"{CORE}/nodes"
NAMESPACES = f"{CORE}/namespaces"
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
RAY_CLUSTER_CRD = f"{CRDS}/rayclusters.ray.io"
SERVER_VERSION = "/version"
RUNTIMES = f"{JOBS}/{RUNTIME_PLURAL}"
DEPLOYMENTS = "/apis/apps/v1/deployments"
DAEMON_SETS = "/apis/apps/v1/daemonsets"
ALL_LEASES = "/apis/coordination.k8s.io/v1/leases"
VALIDATING_WEBHOOKS = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"
ENDPOINT_SLICES = "/apis/discovery.k8s.io/v1/endpointslices"
RESOURCE_SLICES = "/apis/resource.k8s.io/v1/resourceslices"
STORAGE_CLASSES = "/apis/storage.k8s.io/v1/storageclasses"


def jobs(namespace: str | None) -> str:
    """Path of the jobs in a namespace, or in all."""
    return _collection(JOBS, namespace, PLURAL)


def job(namespace: str, name: str) -> str:
    """Path of a job."""
    return f"{jobs(namespace)}/{name}"


def compute_domain(namespace: str, name: str) -> str:
    """Path of a ComputeDomain."""
    return f"/apis/resource.nvidia.com/v1beta1/namespaces/{namespace}/computedomains/{name}"


def gang(namespace: str, name: str) -> str:
    """Path of a Workload (scheduling.k8s.io)."""
    return f"/apis/scheduling.k8s.io/v1alpha1/namespaces/{namespace}/workloads/{name}"


def runtime(name: str) -> str:
    """Path of an RLRuntime."""
    return f"{RUNTIMES}/{name}"


def ray_clusters(namespace: str | None) -> str:
    """Path of the RayClusters in a namespace, or in all."""
    return _collection(RAY, namespace, "rayclusters")


def ray_cluster(namespace: str, name: str) -> str:
    """Path of a RayCluster."""
    return f"{ray_clusters(namespace)}/{name}"


def workloads(namespace: str | None, version: str) -> str:
    """Path of the Kueue Workloads in a namespace, or in all, in a version that the API server serves."""
    return _collection(f"{KUEUE}/{version}", namespace, "workloads")


def config_maps(namespace: str | None) -> str:
    """Path of the ConfigMaps in a namespace, or in all."""
    return _collection(CORE, namespace, "configmaps")


def namespace(name: str) -> str:
    """Path of a namespace."""
    return f"{NAMESPACES}/{name}"


def config_map(namespace: str, name: str) -> str:
    """Path of a ConfigMap."""
    return f"{config_maps(namespace)}/{name}"


def disruption_budget(namespace: str, name: str) -> str:
    """Path of a PodDisruptionBudget."""
    return f"/apis/policy/v1/namespaces/{namespace}/poddisruptionbudgets/{name}"


def pvcs(namespace: str) -> str:
    """Path of the PersistentVolumeClaims in a namespace."""
    return f"{CORE}/namespaces/{namespace}/persistentvolumeclaims"


def pvc(namespace: str, name: str) -> str:
    """Path of a PersistentVolumeClaim."""
    return f"{pvcs(namespace)}/{name}"


def resource_quotas(namespace: str) -> str:
    """Path of the ResourceQuotas in a namespace."""
    return f"{CORE}/namespaces/{namespace}/resourcequotas"


def service_account(namespace: str, name: str) -> str:
    """Path of a ServiceAccount."""
    return f"{CORE}/namespaces/{namespace}/serviceaccounts/{name}"


def local_queues(namespace: str, version: str) -> str:
    """Path of the Kueue LocalQueues in a namespace, in a version that the API server serves."""
    return f"{KUEUE}/{version}/namespaces/{namespace}/localqueues"


def network_attachments(namespace: str) -> str:
    """Path of the NetworkAttachmentDefinitions in a namespace."""
    return f"/apis/k8s.cni.cncf.io/v1/namespaces/{namespace}/network-attachment-definitions"


def secret(namespace: str, name: str) -> str:
    """Path of a Secret."""
    return f"{CORE}/namespaces/{namespace}/secrets/{name}"


def network_policy(namespace: str, name: str) -> str:
    """Path of a NetworkPolicy."""
    return f"/apis/networking.k8s.io/v1/namespaces/{namespace}/networkpolicies/{name}"


def leases(namespace: str) -> str:
    """Path of the Leases in a namespace."""
    return f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"


def lease(namespace: str, name: str) -> str:
    """Path of a Lease."""
    return f"{leases(namespace)}/{name}"


def webhook_configuration(name: str) -> str:
    """Path of a ValidatingWebhookConfiguration."""
    return f"{VALIDATING_WEBHOOKS}/{name}"


def pods(namespace: str | None) -> str:
    """Path of the pods in a namespace, or in all."""
    return _collection(CORE, namespace, "pods")


def batch_jobs(namespace: str) -> str:
    """Path of the Kubernetes Jobs in a namespace."""
    return f"/apis/batch/v1/namespaces/{namespace}/jobs"


def batch_job(namespace: str, name: str) -> str:
    """Path of a Kubernetes Job."""
    return f"{batch_jobs(namespace)}/{name}"


def sandbox(namespace: str, name: str) -> str:
    """Path of a Sandbox (agents.x-k8s.io)."""
    return f"{AGENT_SANDBOX}/namespaces/{namespace}/sandboxes/{name}"


def pod_templates(namespace: str) -> str:
    """Path of the PodTemplates in a namespace."""
    return f"{CORE}/namespaces/{namespace}/podtemplates"


def log(namespace: str, pod: str) -> str:
    """Path of a pod's log."""
    return f"{pods(namespace)}/{pod}/log"


def events(namespace: str | None) -> str:
    """Path of the events in a namespace, or in all."""
    return _collection(CORE, namespace, "events")


def event(namespace: str, name: str) -> str:
    """Path of an event."""
    return f"{events(namespace)}/{name}"


def service(namespace: str, name: str) -> str:
    """Path of a Service."""
    return f"{CORE}/namespaces/{namespace}/services/{name}"


def service_proxy(namespace: str, service: str, port: int) -> str:
    """Path prefix of the API server's proxy to a service."""
    return f"{CORE}/namespaces/{namespace}/services/{service}:{port}/proxy"


def pod_proxy(namespace: str, pod: str, port: int) -> str:
    """Path prefix of the API server's proxy to a pod."""
    return f"{pods(namespace)}/{pod}:{port}/proxy"


def path_of(manifest: Manifest) -> str:
    """Path of a child."""
    paths = {
        "ComputeDomain": compute_domain,
        "ConfigMap": config_map,
        "Job": batch_job,
        "NetworkPolicy": network_policy,
        "PersistentVolumeClaim": pvc,
        "PodDisruptionBudget": disruption_budget,
        "RayCluster": ray_cluster,
        "Sandbox": sandbox,
        "Secret": secret,
        "Service": service,
        "Workload": gang,
    }
    metadata = manifest["metadata"]
    return paths[manifest["kind"]](metadata["namespace"], metadata["name"])


def collection_of(manifest: Manifest) -> str:
    """Path of the collection in which a child is created."""
    return path_of(manifest).rpartition("/")[0]


def resource_of(path: str) -> str:
    """The resource and subresource of a path, such as `pods` or `rltrainingjobs/status`. Used as a metric's label."""
    _, *parts = path.strip("/").split("/")
    parts = parts[2 if path.startswith("/apis/") else 1 :]  # the version, after the group
    if parts[:1] == ["namespaces"] and len(parts) > 2:
        parts = parts[2:]
    return "/".join(parts[:1] + parts[2:3])


def _collection(group: str, namespace: str | None, plural: str) -> str:
    return f"{group}/namespaces/{namespace}/{plural}" if namespace else f"{group}/{plural}"
