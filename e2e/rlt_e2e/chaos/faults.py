"""The faults: each changes the cluster of a running job. The targets are the first in the order of names."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from threading import Event
from typing import Any, Literal

from rlt_e2e.chaos import bucket, partition, tenants, volume
from rlt_e2e.chaos.pods import Pod, Target, kill_process, list_pods, stop_in_call
from rlt_e2e.cluster import Cluster, control_plane, processes
from rlt_e2e.cluster.node import run_on_node
from rlt_e2e.cluster.programs import obtain_programs
from rlt_e2e.installation import RELEASE, SYSTEM_NAMESPACE
from rlt_e2e.jobs import EVENT_TIMEOUT_S, await_job

API_SERVER_STOPPED_S = 60.0
OPERATOR_KILLS = 20
OPERATOR_KILLED_FOR_S = 90.0
SCALED_PODS = 3
"""The number of rollout pods after a pod was added."""
OUT_OF_SERVICE = "node.kubernetes.io/out-of-service"


def nothing() -> None:
    """Heal a fault that has passed."""


@dataclass(frozen=True)
class Injected:
    """A fault that has happened."""

    victim: str
    named_by: tuple[str, ...] = ()
    """Texts of the status that name the fault. Empty: the job is not affected, and there is nothing to name."""
    at: float | None = None
    """When, from time.monotonic. None: when the injection began."""
    respond: Callable[[], None] = nothing
    """What a user does when the status has named the fault, or what ends the fault then."""
    clean: Callable[[], None] = nothing
    """Restore the cluster after the job."""


@dataclass(frozen=True)
class Fault:
    """A kind of fault."""

    name: str
    title: str
    """The text of its row in the table."""
    inject: Callable[[Target], Injected]
    rollout_pods: int = 0
    """Number of pods with a rollout engine. 0: the engines are in the pods of the train workers."""
    rollout_group: Mapping[str, Any] = field(default_factory=dict)
    """Further fields of their group."""
    serving_pods: int = 0
    """The job has recovered when a step has this number of pods with a rollout engine. 0: at the next step."""
    restart_policy: Literal["InPlace", "Recreate"] = "Recreate"
    """Where the next attempt runs."""
    volume_mb: int | None = None
    """Size of a volume that is its own file system."""
    in_bucket: bool = False
    """Whether the job has a bucket and no volume."""
    from_start: bool = False
    """Whether it starts with the job, and not after some steps."""


def kill_rank(target: Target) -> Injected:
    """SIGKILL to the process of a train worker."""
    pod = target.workers()[0]
    kill_process(target.layout, pod, "ray::TrainWorker")
    return Injected(f"train worker in pod {pod.name}", ("ProgramFailed", pod.name))


def kill_driver(target: Target) -> Injected:
    """SIGKILL to the process of the driver, which the head pod has."""
    pod = target.head()
    kill_process(target.layout, pod, "/rlt-trainer\0run")
    return Injected(f"driver in pod {pod.name}", ("ProgramFailed",))


def kill_engine(target: Target) -> Injected:
    """SIGKILL to the process of a rollout worker. The driver starts it again, and the attempt continues."""
    pod = next(pod for pod in target.workers() if "-rollout-" in pod.name)
    kill_process(target.layout, pod, "ray::RolloutWorker")
    return Injected(f"rollout worker in pod {pod.name}")


def kill_engine_in_sync(target: Target) -> Injected:
    """SIGKILL to the process of a rollout worker while rank 0 sends weights to all of them. It cannot end the transfer
    before: it is stopped for this moment. The others must not wait for the killed one."""
    sender = next(pod for pod in target.workers() if "-train-" in pod.name)
    receiver = next(pod for pod in target.workers() if "-rollout-" in pod.name)
    with stop_in_call(target.layout, sender, "TrainWorker", "send_weights"):
        kill_process(target.layout, receiver, "ray::RolloutWorker")
        killed = time.monotonic()
    return Injected(f"rollout worker in pod {receiver.name}, which receives weights", at=killed)


def add_rollout_pod(target: Target) -> Injected:
    """Set rolloutReplicas as `rlt scale` does. The training continues until the new engine has the weights."""
    began = time.monotonic()
    patch = json.dumps({"spec": {"rolloutReplicas": SCALED_PODS}})
    target.cluster.kubectl("-n", target.namespace, "patch", "rltrainingjob", target.job, "--type=merge", "-p", patch)
    return Injected(f"rolloutReplicas {SCALED_PODS}", at=began)


def await_autoscaling(target: Target) -> Injected:
    """Nothing but to wait for the operator, which chooses a larger number of rollout pods."""
    job = await_job(
        target.cluster,
        target.namespace,
        target.job,
        lambda job: job["status"].get("rolloutReplicas") == SCALED_PODS,
        what=f"status.rolloutReplicas {SCALED_PODS}",
        timeout_s=EVENT_TIMEOUT_S,
    )
    chosen = time.monotonic()
    (finding,) = (each for each in job["status"]["findings"] if each["code"] == "GenerationBound")
    return Injected(finding["evidence"], at=chosen)


def delete_rollout_pod(target: Target) -> Injected:
    """Delete a pod that only generates, with its grace period. Its requests move to the other engines."""
    pod = next(pod for pod in target.workers() if "-rollout-" in pod.name)
    target.cluster.kubectl("-n", target.namespace, "delete", "pod", pod.name, "--wait=false")
    return Injected(f"pod {pod.name}", ("Disrupted", pod.name))


def delete_rollout_pods(target: Target) -> Injected:
    """Delete all pods that only generate but one, at once: by one request, before one of them is replaced."""
    pods = [pod for pod in target.workers() if "-rollout-" in pod.name][1:]
    target.cluster.kubectl("-n", target.namespace, "delete", "pod", *(pod.name for pod in pods), "--wait=false")
    return Injected(f"pods {', '.join(pod.name for pod in pods)}", ("Disrupted", "minReplicas is 2"))


def kill_worker_pod(target: Target) -> Injected:
    """Delete a worker pod without a grace period."""
    pod = target.workers()[0]
    _delete_at_once(target, pod)
    return Injected(f"pod {pod.name}", ("Disrupted", pod.name))


def kill_head_pod(target: Target) -> Injected:
    """Delete the head pod without a grace period."""
    pod = target.head()
    _delete_at_once(target, pod)
    return Injected(f"pod {pod.name}", ("Disrupted", pod.name))


def kill_task(target: Target) -> Injected:
    """SIGKILL to the first process of a worker's container, by containerd."""
    pod = target.workers()[0]
    ctr = obtain_programs().runtime["ctr"]
    kill = (str(ctr), "--namespace=k8s.io", "tasks", "kill", "--signal=SIGKILL", pod.container)
    run_on_node(target.layout, pod.node, *kill)
    return Injected(f"container of pod {pod.name}", (pod.name, "exit code 137"))


def kill_kuberay(target: Target) -> Injected:
    """SIGKILL to KubeRay's operator."""
    (pod,) = list_pods(target.cluster, "kuberay-system", "app.kubernetes.io/name=kuberay")
    kill_process(target.layout, pod, "manager")
    return Injected(f"pod {pod.name}")


def kill_operator(target: Target, *, kills: int = OPERATOR_KILLS, within_s: float = OPERATOR_KILLED_FOR_S) -> Injected:
    """SIGKILL to the replicas of the operator in turn, at random moments of this time."""
    seed = random.randrange(10_000)
    generator = random.Random(seed)
    moments = sorted(generator.uniform(0, within_s) for _ in range(kills))
    began = time.monotonic()
    last = ""
    for moment in moments:
        Event().wait(max(0.0, began + moment - time.monotonic()))
        while not (others := [pod for pod in _list_operators(target) if pod.name != last]):
            Event().wait(0.5)
        with suppress(ValueError):  # its process has not started yet
            kill_process(target.layout, others[0], "rlt-operator")
        _delete_at_once(target, others[0])  # a new pod starts without the back-off of a container
        last = others[0].name
    return Injected(f"{kills} times in {time.monotonic() - began:.0f} s, seed {seed}")


def stop_api_server(target: Target) -> Injected:
    """SIGKILL to the API server, which starts again after a minute."""
    layout = target.layout
    running = processes.list_running(layout.state)
    processes.kill(process.pid for process in running if process.name == "kube-apiserver")
    Event().wait(API_SERVER_STOPPED_S)
    control_plane.start(layout, "kube-apiserver", search_path=obtain_programs().search_path)
    return Injected(f"kube-apiserver, for {API_SERVER_STOPPED_S:.0f} s")


def drain_node(target: Target) -> Injected:
    """`kubectl drain` of a worker's node. The PodDisruptionBudget rejects the evictions until the job has left it."""
    pod = target.workers()[0]
    cluster = target.cluster
    options = ("--force", "--ignore-daemonsets", "--delete-emptydir-data", "--timeout=300s")
    cluster.kubectl("drain", pod.node, *options)
    return Injected(
        f"{pod.node} with pod {pod.name}",
        ("Disrupted", "NodeCordoned", pod.node),
        clean=lambda: _kubectl(cluster, "uncordon", pod.node),
    )


def lose_node(target: Target) -> Injected:
    """Set the link of a worker's node down. When Kubernetes reports it, the user taints it as out of service."""
    cluster = target.cluster
    head = target.head()
    pod = next((pod for pod in target.workers() if pod.node != head.node), target.workers()[0])
    cluster.lose_node(pod.node)

    def taint() -> None:
        cluster.kubectl("wait", "--for=condition=Ready=Unknown", f"node/{pod.node}", "--timeout=300s")
        cluster.kubectl("taint", "--overwrite", "node", pod.node, f"{OUT_OF_SERVICE}=nodeshutdown:NoExecute")

    def restore() -> None:
        cluster.restore_node(pod.node)
        cluster.kubectl("taint", "node", pod.node, f"{OUT_OF_SERVICE}-")
        cluster.kubectl("wait", "--for=condition=Ready", f"node/{pod.node}", "--timeout=300s")

    return Injected(f"{pod.node} with pod {pod.name}", (pod.name, pod.node), respond=taint, clean=restore)


def fill_volume(target: Target) -> Injected:
    """Write to the volume of the checkpoints until it is full."""
    folder = volume.locate(target.layout, target.volume)
    volume.fill(folder)
    return Injected(
        f"volume at {target.volume.name}",
        ("No space left on device", "checkpoint of step"),
        respond=lambda: volume.free(folder),
    )


def partition_workers(target: Target) -> Injected:
    """Drop all packets between the two workers. Both still reach the head."""
    one, other = target.workers()
    partition.disconnect(target.layout, one, other)
    return Injected(
        f"pods {one.name} and {other.name}",
        (one.name, other.name),
        respond=lambda: partition.reconnect(target.layout, one),
    )


def cut_off_bucket(target: Target) -> Injected:
    """Cut the pods off from the S3 server. The training continues, and its uploads are repeated."""
    return Injected(bucket.cut_off(target))


def kill_in_upload(target: Target) -> Injected:
    """SIGKILL to driver and ranks in the middle of an upload. The next attempt resumes from the checkpoint before."""
    return Injected(bucket.kill_in_upload(target), ("ProgramFailed",))


def cause_as_tenant(cause: Callable[[Target], str]) -> Callable[[Target], Injected]:
    """A fault that another tenant causes: the job is not affected, and there is nothing to name."""
    return lambda target: Injected(cause(target))


FAULTS = (
    Fault("rank", "the process of a rank is killed", kill_rank),
    Fault("rank-in-place", "the process of a rank is killed, `InPlace`", kill_rank, restart_policy="InPlace"),
    Fault("driver-in-place", "the driver is killed, `InPlace`", kill_driver, restart_policy="InPlace"),
    Fault("engine", "the process of a rollout engine is killed", kill_engine, rollout_pods=1),
    Fault("rollout-pod", "one of three rollout pods is deleted", delete_rollout_pod, rollout_pods=3),
    Fault(
        "rollout-pods",
        "two of three rollout pods are deleted, `minReplicas: 2`",
        delete_rollout_pods,
        rollout_pods=3,
        rollout_group={"minReplicas": 2},
    ),
    Fault(
        "engine-in-sync",
        "one of four rollout engines is killed in a weight sync",
        kill_engine_in_sync,
        rollout_pods=4,
    ),
    Fault(
        "scale-up",
        "a rollout pod is added, until it generates",
        add_rollout_pod,
        rollout_pods=SCALED_PODS - 1,
        rollout_group={"minReplicas": 1, "maxReplicas": SCALED_PODS},
        serving_pods=SCALED_PODS,
    ),
    Fault(
        "autoscale",
        "the operator adds a rollout pod (`autoscale`), until it generates",
        await_autoscaling,
        rollout_pods=SCALED_PODS - 1,
        rollout_group={"minReplicas": 1, "maxReplicas": SCALED_PODS, "autoscale": True},
        serving_pods=SCALED_PODS,
    ),
    Fault("worker-pod", "a worker pod is deleted without a grace period", kill_worker_pod),
    Fault(
        "worker-pod-in-place",
        "a worker pod is deleted without a grace period, `InPlace`",
        kill_worker_pod,
        restart_policy="InPlace",
    ),
    Fault("head-pod", "the head pod is deleted without a grace period", kill_head_pod),
    Fault("task", "containerd's task of a worker is killed", kill_task),
    Fault("task-in-place", "the same, `InPlace`", kill_task, restart_policy="InPlace"),
    Fault("operator", f"the operator is killed {OPERATOR_KILLS} times", kill_operator, from_start=True),
    Fault("kuberay", "KubeRay is killed", kill_kuberay),
    Fault("drain", "a node is drained", drain_node),
    Fault("lose-node", "a node is lost", lose_node),
    Fault("full-volume", "the volume of the checkpoints is full", fill_volume, volume_mb=256),
    Fault(
        "bucket-cut", f"the S3 server of the run is cut off for {bucket.CUT_S:.0f} s", cut_off_bucket, in_bucket=True
    ),
    Fault(
        "bucket-driver", "driver and ranks are killed while a checkpoint is uploaded", kill_in_upload, in_bucket=True
    ),
    Fault("api-server", f"the API server is stopped for {API_SERVER_STOPPED_S:.0f} s", stop_api_server),
    Fault("partition", "two workers cannot reach each other", partition_workers),
    Fault("hostile-text", "a tenant sends hostile strings", cause_as_tenant(tenants.send_hostile_text)),
    Fault("flood", "a tenant floods the webhook with reviews", cause_as_tenant(tenants.flood_webhook)),
    Fault("malformed", "a tenant's head sends malformed answers", cause_as_tenant(tenants.answer_malformed)),
    Fault("namespace", "a tenant's namespace is deleted", cause_as_tenant(tenants.delete_namespace)),
)


def _list_operators(target: Target) -> list[Pod]:
    return list_pods(target.cluster, SYSTEM_NAMESPACE, f"app.kubernetes.io/name={RELEASE}")


def _kubectl(cluster: Cluster, *arguments: str) -> None:
    cluster.kubectl(*arguments)


def _delete_at_once(target: Target, pod: Pod) -> None:
    options = ("--grace-period=0", "--force", "--wait=false")
    target.cluster.kubectl("-n", pod.namespace, "delete", "pod", pod.name, *options)
