"""Two pods of the operator from the chart: one takes over from the other."""

from __future__ import annotations

import json
from typing import Any

import pytest

from cluster import Cluster
from installation import RELEASE, SYSTEM_NAMESPACE
from jobs import apply_job, await_cleanup, await_job, build_command_job, get_step

pytestmark = pytest.mark.cluster

STEPS = """
import itertools, time
print("Total training steps: 100000", flush=True)
for step in itertools.count(1):
    print(f"step:{step} - critic/rewards/mean:0.5 - actor/kl_loss:0.01", flush=True)
    time.sleep(1)
"""


def read(cluster: Cluster, *arguments: str) -> dict[str, Any]:
    """Read an object of the operator's namespace."""
    manifest: dict[str, Any] = json.loads(cluster.kubectl("-n", SYSTEM_NAMESPACE, "get", *arguments, "-o", "json"))
    return manifest


def get_leader(cluster: Cluster) -> str:
    """Return the name of the pod that leads."""
    holder: str = read(cluster, "lease", RELEASE)["spec"].get("holderIdentity", "")
    return holder.partition("_")[0]


def test_a_job_continues_after_its_leader_is_killed(cluster: Cluster, namespace: str) -> None:
    name = apply_job(cluster, namespace, build_command_job("counts", "python3", "-u", "-c", STEPS))
    before = await_job(cluster, namespace, name, lambda job: get_step(job) >= 1, what="a step", timeout_s=300)
    pods = read(cluster, "pods", "-l", f"app.kubernetes.io/name={RELEASE}")["items"]
    leader = get_leader(cluster)
    assert leader in [pod["metadata"]["name"] for pod in pods]
    assert len(pods) == 2
    cluster.kubectl("-n", SYSTEM_NAMESPACE, "delete", "pod", leader, "--grace-period=0", "--force")
    await_job(
        cluster,
        namespace,
        name,
        lambda job: get_step(job) > get_step(before) and get_leader(cluster) != leader,
        what="a step that another leader reports",
        timeout_s=60,
    )
    cluster.kubectl("-n", namespace, "delete", "rltrainingjob", name, "--wait", "--timeout=60s")
    await_cleanup(cluster, namespace, name)
