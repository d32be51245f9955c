"""What happens to a job besides the operator: each function is a transition, and returns whether it changed anything.

EXPECTED transitions happen sooner or later without any fault. DISTURBANCES are what users, nodes and networks may do.
BREAKAGES are changes of the job on which the operator fails. RIVALS are other jobs of the namespace. LOSSES are pods
without which the program continues. SCALINGS are changes of their number.
FAILURES are failures of a program that runs again in place, and DELETIONS of one of its pods.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from exploration.api_server import WATCHED
from exploration.failing_jobs import ANNOTATION, BLOCKS, FAILS, find_failure
from exploration.world import (
    CONFIG_MAP,
    ELASTIC_SPEC,
    GPU,
    IN_PLACE_SPEC,
    JOB,
    LIMITED_SPEC,
    MINIMUM_SPEC,
    NAME,
    NAMESPACE,
    NODE,
    PODS,
    RAY_CLUSTER,
    RIVAL,
    ROLLOUT,
    RUNTIME,
    SEPARATE_SPEC,
    SPEC,
    World,
)

from rlt_core import names
from rlt_core.children.programs import is_programs
from rlt_core.job import Manifest
from rlt_core.kubernetes import api_paths

Happening = Callable[[World], bool]

TICK_S = 600
"""More than any delay of the operator, less than the deadlines."""


# KubeRay, the kubelets and the garbage collector


def kuberay_creates_pods(world: World) -> bool:
    """KubeRay creates the missing pods of the RayCluster."""
    cluster = world.server.get(RAY_CLUSTER)
    if cluster is None or is_foreign(cluster) or "deletionTimestamp" in cluster["metadata"]:
        return False
    uid = cluster["metadata"]["uid"]
    workers = cluster["spec"]["workerGroupSpecs"]
    missing = Counter({"headgroup": 1, **{group["groupName"]: group["replicas"] for group in workers}})
    missing.subtract(map(_get_group, _list_pods_of(world, uid)))
    if not +missing:
        return False
    for group in missing.elements():
        role = "head" if group == "headgroup" else "worker"
        labels = {names.JOB_LABEL: NAME, "ray.io/node-type": role, names.RAY_GROUP_LABEL: group}
        owner = {"apiVersion": "ray.io/v1", "kind": "RayCluster", "name": NAME, "uid": uid, "controller": True}
        metadata = {
            "name": f"{NAME}-{role}-{world.server.uids}",
            "namespace": NAMESPACE,
            "labels": labels,
            "ownerReferences": [owner],
        }
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "status": {"phase": "Pending"}}
        world.server.create(PODS, pod)
    world.server.update(RAY_CLUSTER, {**cluster, "status": {"state": "ready"}})
    return True


def kuberay_deletes_pods(world: World) -> bool:
    """KubeRay deletes the pods that the RayCluster names, and then any other one of a group with too many."""
    cluster = world.server.get(RAY_CLUSTER)
    if cluster is None or is_foreign(cluster) or "deletionTimestamp" in cluster["metadata"]:
        return False
    deleted = []
    for group in cluster["spec"]["workerGroupSpecs"]:
        named = group.get("scaleStrategy", {}).get("workersToDelete", [])
        pods = _list_pods_of(world, cluster["metadata"]["uid"])
        alive = [pod["metadata"]["name"] for pod in pods if _is_alive(pod) and _get_group(pod) == group["groupName"]]
        others = [name for name in alive if name not in named]
        deleted += [name for name in alive if name in named] + others[group["replicas"] :]
    for name in deleted:
        world.server.mark_deleted(f"{PODS}/{name}")
    return bool(deleted)


def pods_start(world: World) -> bool:
    """The pods of the RayCluster mount both ConfigMaps and become ready. The head's Ray has no jobs."""
    if not {CONFIG_MAP, world.programs} <= world.server.objects.keys():
        return False
    pending = [pod for pod in world.pods if pod["status"]["phase"] == "Pending" and _is_alive(pod)]
    node = "spare" if is_cordoned(world) else "node"
    for pod in pending:
        ready = {"type": "Ready", "status": "True"}
        ip = f"ip-{pod['metadata']['uid']}"
        status = {"phase": "Running", "podIP": ip, "conditions": [ready]}
        _update_pod(world, {**pod, "spec": {"nodeName": node}, "status": status})
    return bool(pending)


def containers_start_again(world: World) -> bool:
    """The kubelet has started the containers that ended."""
    ended = [pod for pod in world.pods if _is_alive(pod) and _has_ended(pod)]
    for pod in ended:
        _set_ready(world, pod, True)
    return bool(ended)


def garbage_is_collected(world: World) -> bool:
    """Objects without owner are deleted; pods start to terminate."""
    return world.server.collect_garbage()


def pods_terminate(world: World) -> bool:
    """Terminating pods are gone, with their programs."""
    gone = [pod for pod in world.pods if not _is_alive(pod)]
    for pod in gone:
        _remove_pod(world, pod)
    return bool(gone)


# Programs


def program_saves_and_stops(world: World) -> bool:
    """A program that Ray was asked to stop exits."""
    return _end_program(world, {"STOPPING"}, "STOPPED")


def program_succeeds(world: World) -> bool:
    """The program exits with code 0."""
    return _end_program(world, {"RUNNING", "CHECKING", "STOPPING"}, "SUCCEEDED")


def program_fails(world: World) -> bool:
    """The program exits with another code."""
    return _end_program(world, {"RUNNING", "CHECKING", "STOPPING"}, "FAILED")


def program_fails_again(world: World) -> bool:
    """The same, of any program of a job with restartPolicy InPlace."""
    return program_fails(world)


def processes_are_found(world: World) -> bool:
    """A program ends because processes of an earlier one are left."""
    return _end_program(world, {"CHECKING"}, "NOT_CLEAR")


def container_of_a_worker_ends(world: World) -> bool:
    """A container ends, and with it the program of a job with restartPolicy InPlace."""
    workers = [pod for pod in _list_owned_pods(world, "worker") if _is_alive(pod) and not _has_ended(pod)]
    if not any(pod["status"]["phase"] == "Running" for pod in workers) or not program_fails(world):
        return False
    _set_ready(world, workers[0], False)
    return True


def worker_is_deleted(world: World) -> bool:
    """A worker is gone, and with it the program of a job with restartPolicy InPlace. KubeRay creates another one."""
    workers = [pod for pod in _list_owned_pods(world, "worker") if _is_alive(pod)]
    if not any(pod["status"]["phase"] == "Running" for pod in workers) or not program_fails(world):
        return False
    _remove_pod(world, workers[0])
    return True


# Nodes and networks


def head_is_lost(world: World) -> bool:
    """The head pod is gone. KubeRay creates another one, whose Ray has no jobs."""
    return _lose(world, "head")


def worker_is_evicted(world: World) -> bool:
    """A worker starts to terminate with the condition DisruptionTarget."""
    return _evict(world, [pod for pod in _list_owned_pods(world, "worker") if _get_group(pod) != ROLLOUT])


def rollout_pod_is_evicted(world: World) -> bool:
    """The same for the pod that only generates."""
    return _evict(world, [pod for pod in _list_owned_pods(world, "worker") if _get_group(pod) == ROLLOUT])


def node_is_cordoned(world: World) -> bool:
    """The first node is cordoned, as by `kubectl drain`, whose evictions the API server then rejects.

    Pods that start later get the spare node.
    """
    node = world.server.get(NODE)
    if node is None or is_cordoned(world):
        return False
    world.server.update(NODE, {**node, "spec": {"unschedulable": True}})
    return True


def ray_becomes_silent(world: World) -> bool:
    """Ray's job API does not answer."""
    if world.silent or not world.ray:
        return False
    world.silent = True
    return True


def ray_answers_again(world: World) -> bool:
    """Ray's job API answers."""
    if not world.silent:
        return False
    world.silent = False
    return True


def time_passes(world: World) -> bool:
    """Every delay of the operator passes. The second time, every deadline."""
    world.server.seconds += TICK_S
    world.process.idle_at = None
    return True


# Users


def user_creates_job(world: World) -> bool:
    """A job is created, perhaps again after its deletion."""
    if world.job is not None:
        return False
    spec = LIMITED_SPEC if api_paths.runtime(RUNTIME) in world.server.objects else SPEC
    separate = ELASTIC_SPEC if world.is_elastic else MINIMUM_SPEC if world.has_minimum else SEPARATE_SPEC
    spec = separate if world.losses or world.is_elastic else IN_PLACE_SPEC if world.in_place else spec
    manifest = {"apiVersion": "rlt.dev/v1alpha1", "kind": "RLTrainingJob", "metadata": _metadata(NAME), "spec": spec}
    world.server.create(api_paths.jobs(NAMESPACE), manifest)
    return True


def user_suspends_job(world: World) -> bool:
    """spec.suspend becomes true."""
    return _edit_spec(world, suspend=True)


def user_resumes_job(world: World) -> bool:
    """spec.suspend becomes false."""
    job = world.job
    return job is not None and "suspend" in job["spec"] and _edit_spec(world, suspend=False)


def user_scales_job(world: World) -> bool:
    """spec.rolloutReplicas changes from two pods to one, or back."""
    job = world.job
    return job is not None and _edit_spec(world, rolloutReplicas=3 - job["spec"].get("rolloutReplicas", 2))


def user_cancels_job(world: World) -> bool:
    """The job gets the annotation rlt.dev/cancel."""
    return _annotate(world, names.CANCEL_ANNOTATION, "true")


def user_breaks_the_operator(world: World) -> bool:
    """A change of the job on which the operator fails."""
    return _annotate(world, ANNOTATION, FAILS)


def user_blocks_the_operator(world: World) -> bool:
    """A change of the job with which each reconciliation blocks all jobs for seconds."""
    return _annotate(world, ANNOTATION, BLOCKS)


def user_repairs_job(world: World) -> bool:
    """The job is again one that the operator can reconcile."""
    return find_failure(world.job) is not None and _annotate(world, ANNOTATION, None)


def user_deletes_job(world: World) -> bool:
    """The job is deleted at once, its dependents later."""
    if world.job is None:
        return False
    world.server.remove(JOB)
    return True


def user_deletes_job_in_foreground(world: World) -> bool:
    """The job is deleted after its dependents."""
    job = world.job
    if job is None or "deletionTimestamp" in job["metadata"]:
        return False
    world.server.delete_in_foreground(JOB)
    return True


def user_deletes_ray_cluster(world: World) -> bool:
    """The RayCluster is deleted at once, its pods later."""
    cluster = world.server.get(RAY_CLUSTER)
    if cluster is None or is_foreign(cluster):
        return False
    world.server.remove(RAY_CLUSTER)
    return True


def user_deletes_config_map(world: World) -> bool:
    """The ConfigMap of the job is deleted."""
    config_map = world.server.get(CONFIG_MAP)
    if config_map is None or is_foreign(config_map):
        return False
    world.server.remove(CONFIG_MAP)
    return True


def user_deletes_programs(world: World) -> bool:
    """The ConfigMap with the programs that the RayCluster mounts is deleted."""
    if world.programs not in world.server.objects:
        return False
    world.server.remove(world.programs)
    return True


def user_creates_config_map(world: World) -> bool:
    """A user's ConfigMap has the name of the job's."""
    if CONFIG_MAP in world.server.objects:
        return False
    config_map = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": _metadata(names.config_map(NAME)), "data": {}}
    world.server.create(api_paths.config_maps(NAMESPACE), config_map)
    return True


def user_creates_ray_cluster(world: World) -> bool:
    """A user's RayCluster has the name of the job's."""
    if RAY_CLUSTER in world.server.objects:
        return False
    cluster = {"apiVersion": "ray.io/v1", "kind": "RayCluster", "metadata": _metadata(NAME), "spec": {}}
    world.server.create(api_paths.ray_clusters(NAMESPACE), cluster)
    return True


def user_creates_labelled_pod(world: World) -> bool:
    """A user's pod has the label of the job."""
    if any(is_foreign(pod) for pod in world.pods):
        return False
    metadata = {**_metadata("foreign"), "labels": {names.JOB_LABEL: NAME}}
    world.server.create(PODS, {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "status": {"phase": "Running"}})
    return True


def rival_takes_accelerators(world: World) -> bool:
    """The leader creates the RayCluster of another job, with all accelerators that the namespace may have.

    Its cache has the response. A replica that leads later may lack it.
    """
    if {api_paths.ray_cluster(*RIVAL), RAY_CLUSTER} & world.server.objects.keys():
        return False
    container = {"resources": {"limits": {GPU: "1"}}}
    spec = {"workerGroupSpecs": [{"replicas": 1, "template": {"spec": {"containers": [container]}}}]}
    cluster = {"apiVersion": "ray.io/v1", "kind": "RayCluster", "metadata": _metadata(RIVAL[1]), "spec": spec}
    world.process.cache.put(world.server.create(api_paths.ray_clusters(NAMESPACE), cluster))
    return True


def rival_ends(world: World) -> bool:
    """The other job releases its RayCluster."""
    path = api_paths.ray_cluster(*RIVAL)
    if path not in world.server.objects:
        return False
    world.server.remove(path)
    return True


EXPECTED: tuple[Happening, ...] = (
    kuberay_deletes_pods,
    kuberay_creates_pods,
    pods_start,
    containers_start_again,
    garbage_is_collected,
    pods_terminate,
    ray_answers_again,
    program_saves_and_stops,
    user_repairs_job,
    rival_ends,
)
"""program_succeeds follows when nothing else happens."""
DISTURBANCES: tuple[Happening, ...] = (
    program_fails,
    head_is_lost,
    worker_is_evicted,
    node_is_cordoned,
    ray_becomes_silent,
    time_passes,
    user_creates_job,
    user_suspends_job,
    user_cancels_job,
    user_deletes_job,
    user_deletes_job_in_foreground,
    user_deletes_ray_cluster,
    user_deletes_config_map,
    user_deletes_programs,
    user_creates_config_map,
    user_creates_ray_cluster,
    user_creates_labelled_pod,
)
BREAKAGES: tuple[Happening, ...] = (user_breaks_the_operator, user_blocks_the_operator)
RIVALS: tuple[Happening, ...] = (rival_takes_accelerators,)
LOSSES: tuple[Happening, ...] = (rollout_pod_is_evicted,)
SCALINGS: tuple[Happening, ...] = (user_scales_job,)
FAILURES: tuple[Happening, ...] = (program_fails_again, processes_are_found, container_of_a_worker_ends)
DELETIONS: tuple[Happening, ...] = (worker_is_deleted,)


def build_world(
    *,
    disturbances: int = 0,
    faults: int = 0,
    breakages: int = 0,
    upgrades: int = 0,
    rivals: int = 0,
    losses: int = 0,
    has_minimum: bool = False,
    scalings: int = 0,
    failures: int = 0,
    deletions: int = 0,
) -> World:
    """A world with a new job, which the operator's process has listed.

    With rivals, the runtime limits accelerators. With losses, the job has a rollout pod, and with scalings two or one.
    With failures or deletions, its program runs again in place.
    """
    world = World(
        disturbances=disturbances,
        faults=faults,
        breakages=breakages,
        upgrades=upgrades,
        rivals=rivals,
        losses=losses,
        has_minimum=has_minimum,
        scalings=scalings,
        is_elastic=scalings > 0,
        failures=failures,
        deletions=deletions,
        in_place=failures + deletions > 0,
    )
    if rivals:
        runtime = {"apiVersion": "rlt.dev/v1alpha1", "kind": "RLRuntime", "metadata": {"name": RUNTIME}}
        world.server.create(api_paths.RUNTIMES, {**runtime, "spec": {"maxPerNamespace": {"accelerators": 1}}})
    for name in ("node", "spare"):
        status = {"conditions": [{"type": "Ready", "status": "True"}], "allocatable": {GPU: "8"}}
        node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}, "status": status}
        world.server.create(api_paths.NODES, node)
    user_creates_job(world)
    for resource in WATCHED:
        world.deliver(resource)
    return world


def is_foreign(manifest: Manifest) -> bool:
    """Whether a user has created the object."""
    by_operator = bool(manifest["metadata"].get("ownerReferences")) or is_programs(manifest)
    return manifest["kind"] not in ("RLTrainingJob", "Node") and not by_operator


def is_cordoned(world: World) -> bool:
    """Whether the first node is cordoned."""
    node = world.server.get(NODE) or {}
    return "spec" in node


def _metadata(name: str) -> Manifest:
    return {"name": name, "namespace": NAMESPACE}


def _edit_spec(world: World, **changes: Any) -> bool:
    job = world.job
    if job is None or changes.items() <= job["spec"].items():
        return False
    metadata = {**job["metadata"], "generation": job["metadata"]["generation"] + 1}
    world.server.update(JOB, {**job, "metadata": metadata, "spec": {**job["spec"], **changes}})
    return True


def _annotate(world: World, name: str, value: str | None) -> bool:
    """Set an annotation of the job, or remove it."""
    job = world.job
    if job is None:
        return False
    before = job["metadata"].get("annotations", {})
    annotations = {**before, name: value} if value else {key: before[key] for key in before if key != name}
    if annotations == before:
        return False
    world.server.update(JOB, {**job, "metadata": {**job["metadata"], "annotations": annotations}})
    return True


def _end_program(world: World, states: set[str], state: str) -> bool:
    for jobs in world.ray.values():
        for job_id in jobs:
            if jobs[job_id] in states:
                jobs[job_id] = state
                return True
    return False


def _lose(world: World, role: str) -> bool:
    pod = next(iter(_list_owned_pods(world, role)), None)
    if pod is None:
        return False
    _remove_pod(world, pod)
    return True


def _remove_pod(world: World, pod: Manifest) -> None:
    world.server.remove(f"{PODS}/{pod['metadata']['name']}")
    world.ray.pop(pod["metadata"]["uid"], None)


def _update_pod(world: World, pod: Manifest) -> None:
    world.server.update(f"{PODS}/{pod['metadata']['name']}", pod)


def _evict(world: World, pods: Sequence[Manifest]) -> bool:
    """Let the first of the running pods terminate with the condition DisruptionTarget."""
    pod = next((pod for pod in pods if _is_alive(pod) and pod["status"]["phase"] == "Running"), None)
    if pod is None:
        return False
    disrupted = {"type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI"}
    conditions = [*pod["status"]["conditions"], disrupted]
    _update_pod(world, {**pod, "status": {**pod["status"], "conditions": conditions}})
    world.server.mark_deleted(f"{PODS}/{pod['metadata']['name']}")
    return True


def _has_ended(pod: Manifest) -> bool:
    """Whether a container has ended and is not ready again."""
    conditions = pod["status"].get("conditions", [])
    return "containerStatuses" in pod["status"] and conditions[0]["status"] == "False"


def _set_ready(world: World, pod: Manifest, ready: bool) -> None:
    """Let the pod's container run, or end now."""
    status = {**pod["status"], "conditions": [{"type": "Ready", "status": str(ready)}]}
    if not ready:
        ended = {"exitCode": 137, "reason": "Error", "finishedAt": world.server.now.strftime("%Y-%m-%dT%H:%M:%SZ")}
        status["containerStatuses"] = [{"name": "ray-worker", "restartCount": 1, "lastState": {"terminated": ended}}]
    _update_pod(world, {**pod, "status": status})


def _get_group(pod: Manifest) -> str:
    return str(pod["metadata"]["labels"][names.RAY_GROUP_LABEL])


def _list_pods_of(world: World, uid: str) -> list[Manifest]:
    return [pod for pod in world.pods if uid in [owner["uid"] for owner in pod["metadata"].get("ownerReferences", [])]]


def _list_owned_pods(world: World, role: str) -> list[Manifest]:
    return [pod for pod in world.pods if pod["metadata"]["labels"].get("ray.io/node-type") == role]


def _is_alive(pod: Manifest) -> bool:
    return "deletionTimestamp" not in pod["metadata"]
