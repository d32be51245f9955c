"""An upgrade to a later version of the operator and back. As in a rolling update, the next leader waits on standby."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import observed as o
import pytest
import yaml
from apiserver.in_cluster import Kubernetes, Operator
from apiserver.later_version import ROOT, VERSION, build_later_version
from apiserver.ray_head import RayHead, find_address
from apiserver.test_ray_jobs import start
from apiserver.waiting import eventually
from gate import Gate

from rlt_api.validation.resolved_spec import get_resolved_spec
from rlt_core import names

pytestmark = pytest.mark.apiserver

CRDS = [yaml.safe_load(file.read_text()) for file in sorted((ROOT / "crds").glob("*.rlt.dev.yaml"))]
"""Of this version."""


@pytest.fixture
def ray() -> Iterator[RayHead]:
    """`ray start --head`."""
    head = RayHead(find_address(), cpus=1)
    head.start()
    yield head
    head.stop()


@dataclass
class Rollout:
    """The replicas of both versions, which share a Lease."""

    kubernetes: Kubernetes
    namespace: str
    folder: Path
    packages: Path
    """Of the later version."""
    crds: list[dict[str, Any]]
    """Of the later version."""
    leader: Operator | None = None
    started: int = 0

    def replace_leader(self, *, later: bool) -> None:
        """Start a replica of this or the later version, then stop the leader, from which it takes over."""
        self.started += 1
        options = (f"--leader-election-lease={self.namespace}/rlt-operator", f"--namespace={self.namespace}")
        log = self.folder / f"operator-{self.started}.log"
        replica = Operator(self.kubernetes.cluster.kubeconfig, log, options, packages=self.packages if later else None)
        replica.start()
        if self.leader:
            assert (self.leader.leads(), replica.leads()) == (True, False)
            assert self.leader.stop() == 0
        self.leader = replica
        eventually("the replica leads", replica.leads, describe=log.read_text)

    def apply_crds(self, crds: list[dict[str, Any]], *, with_field: bool) -> None:
        """Apply CRDs, and wait until the API server keeps, or drops, the field that the later ones add."""
        for crd in crds:
            self.kubernetes.kubectl("apply", "--server-side", "--force-conflicts", "-f", "-", input=json.dumps(crd))
        job = {"apiVersion": "rlt.dev/v1alpha1", "kind": "RLTrainingJob", "metadata": {"name": "x"}}
        job["spec"] = {**o.SPEC, "training": {**o.SPEC["training"], "lookAhead": 3}}
        options = ("--dry-run=server", "--validate=false", "-n", "default", "-o", "json", "-f", "-")

        def is_served() -> bool:
            created = json.loads(self.kubernetes.kubectl("create", *options, input=json.dumps(job)))
            return ("lookAhead" in created["spec"]["training"]) is with_field

        eventually("the API server uses the CRD", is_served)


@pytest.fixture(scope="module")
def later(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[dict[str, Any]]]:
    """The packages of the later version, and its CRDs."""
    folder = tmp_path_factory.mktemp("later")
    return folder, build_later_version(folder)


@pytest.fixture
def rollout(
    kubernetes: Kubernetes, namespace: str, tmp_path: Path, later: tuple[Path, list[dict[str, Any]]]
) -> Iterator[Rollout]:
    rollout = Rollout(kubernetes, namespace, tmp_path, *later)
    try:
        yield rollout
    finally:
        if rollout.leader:
            rollout.leader.kill()
        rollout.apply_crds(CRDS, with_field=False)


def read_children(kubernetes: Kubernetes, namespace: str, name: str = "sum") -> dict[str, Any]:
    """What must not change while a job runs. A command job has no training config."""
    cluster = kubernetes.ray_cluster(namespace, name)
    archive = cluster["metadata"]["labels"][names.PROGRAMS_LABEL]
    programs = kubernetes.get(namespace, "configmap", archive)
    assert programs
    return {
        "archive": (archive, programs["metadata"]["uid"]),
        "config": (kubernetes.get(namespace, "configmap", names.config_map(name)) or {}).get("data"),
        "cluster": (cluster["metadata"]["uid"], cluster["spec"]),
    }


def test_a_running_job_continues_over_an_upgrade_and_a_rollback(
    kubernetes: Kubernetes, namespace: str, rollout: Rollout, ray: RayHead, gate: Gate
) -> None:
    starts = rollout.folder / "starts"
    steps = "".join(
        f"print('step:{step} - critic/rewards/mean:0.{step} - timing_s/step:30.0', flush=True)\n{gate.wait}"
        for step in (1, 2, 3)
    )

    def await_step(step: int) -> dict[str, Any]:
        """The status with this step."""
        eventually(f"step {step}", lambda: (kubernetes.status(namespace).get("progress") or {}).get("step") == step)
        status = kubernetes.status(namespace)
        assert (status["phase"], status.get("attempts", []), status.get("findings", [])) == ("Running", [], [])
        return status

    rollout.replace_leader(later=False)
    start(kubernetes, namespace, ray, f"open({str(starts)!r}, 'a').write('x')\n{steps}")
    before = await_step(1)
    children = read_children(kubernetes, namespace)

    rollout.apply_crds(rollout.crds, with_field=True)
    rollout.replace_leader(later=True)
    gate.open()
    upgraded = await_step(2)

    rollout.replace_leader(later=False)
    gate.open()
    back = await_step(3)
    for status in (upgraded, back):
        assert status["currentAttempt"]["recordedBy"] == VERSION
        assert status["resolvedSpec"] == before["resolvedSpec"]
        assert status["startTime"] == before["startTime"]
    assert read_children(kubernetes, namespace) == children
    gate.open()
    eventually("Succeeded", lambda: kubernetes.condition(namespace, "Succeeded")[0] == "True")
    assert starts.read_text() == "x"
    assert list(ray.jobs().values()) == ["SUCCEEDED"]
    eventually("both events", lambda: sorted(kubernetes.events(namespace)) == ["Running", "Succeeded"])


def test_jobs_of_both_versions_keep_their_clusters(kubernetes: Kubernetes, namespace: str, rollout: Rollout) -> None:
    """The later version has a field with a value, so that the earlier one starts no other attempt of its job."""
    rollout.replace_leader(later=False)
    kubernetes.create_job(namespace, o.SPEC, "old")
    old = read_children(kubernetes, namespace, "old")
    rollout.apply_crds(rollout.crds, with_field=True)
    rollout.replace_leader(later=True)
    kubernetes.create_job(namespace, o.SPEC, "young")
    young = read_children(kubernetes, namespace, "young")
    assert young["archive"][0] != old["archive"][0]
    assert young["config"] != old["config"]
    training = get_resolved_spec({"status": kubernetes.status(namespace, "young")})["training"]
    assert (training["learningRate"], training["lookAhead"], training["lookBack"]) == (2e-6, 3, None)
    assert read_children(kubernetes, namespace, "old") == old

    rollout.replace_leader(later=False)
    for name in ("old", "young"):
        kubernetes.suspend(namespace, True, name)
        await_condition(kubernetes, namespace, name, "Suspended")
        assert lacks_cluster(kubernetes, namespace, name)
        kubernetes.suspend(namespace, False, name)
    again = read_children(kubernetes, namespace, "old")
    assert (again["archive"][0], again["config"]) == (old["archive"][0], old["config"])
    await_condition(kubernetes, namespace, "young", "Stalled")
    message = kubernetes.condition(namespace, "Stalled", "young")[2]
    assert "status.resolvedSpec.training.lookAhead: 3: is a field that only a newer version" in message
    assert lacks_cluster(kubernetes, namespace, "young")

    rollout.replace_leader(later=True)
    back = read_children(kubernetes, namespace, "young")
    assert (back["archive"][0], back["config"]) == (young["archive"][0], young["config"])


def await_condition(kubernetes: Kubernetes, namespace: str, name: str, type: str) -> None:
    eventually(
        f"{type} of {name}",
        lambda: kubernetes.condition(namespace, type, name)[0] == "True",
        describe=lambda: kubernetes.status(namespace, name),
    )


def lacks_cluster(kubernetes: Kubernetes, namespace: str, name: str) -> bool:
    """Whether the job has no RayCluster."""
    return kubernetes.get(namespace, "raycluster", name) is None
