"""The sandbox pods of a job: what they may do, who reaches them, and how the driver finds them."""

from __future__ import annotations

import base64
from typing import Any

import observed as o
from policy_evaluator import Endpoint, is_admitted

from rlt_core import names
from rlt_core.children.build import build_children
from rlt_core.children.environment import build_env
from rlt_core.children.network_policy import NetworkAccess
from rlt_core.children.ray_token import SANDBOX_KEY, add_ray_token, build_ray_token
from rlt_core.children.sandboxes import build_sandbox_pool, build_sandbox_service, get_sandbox
from rlt_core.job import Job, Manifest
from rlt_pod.sandbox.protocol import HOST_VARIABLE, PORT, derive_key

ACCESS = NetworkAccess("rlt-system")


def sandbox_job(sandbox: dict[str, Any] | None = None, **changes: Any) -> Job:
    rollout = {"multiTurn": {"tools": [{"name": "python"}], "sandbox": sandbox or {}}}
    return o.decided(o.job({**o.SPEC, "rollout": rollout, **changes}))


def build_pools(job: Job) -> tuple[Manifest, ...]:
    assert job.spec
    sandbox = get_sandbox(job.spec)
    assert sandbox
    return build_sandbox_pool(job, job.spec, sandbox, head="sum-head-a", head_uid="22222222-3333")


def build_pool(job: Job) -> Manifest:
    (pool,) = build_pools(job)
    return pool


def build_policies(job: Job) -> list[Manifest]:
    assert job.spec
    return [each for each in build_children(job, job.spec, ACCESS) if each["kind"] == "NetworkPolicy"]


def pod(namespace: str, labels: dict[str, str]) -> Endpoint:
    return Endpoint("10.244.0.9", namespace, labels, {"kubernetes.io/metadata.name": namespace})


HEAD = pod("demo", {**names.labels("sum"), "ray.io/node-type": "head"})
SANDBOX = pod("demo", {names.SANDBOX_LABEL: "sum"})


def test_the_pods_have_nothing_of_the_job() -> None:
    template = build_pool(sandbox_job())["spec"]["template"]
    spec = template["spec"]
    (container,) = spec["containers"]
    assert template["metadata"]["labels"] == {names.SANDBOX_LABEL: "sum"}
    assert spec["automountServiceAccountToken"] is False
    assert spec["securityContext"]["runAsNonRoot"] is True
    assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert [volume["name"] for volume in spec["volumes"]] == ["work", "programs"]
    secrets = [each["valueFrom"]["secretKeyRef"] for each in container["env"] if "valueFrom" in each]
    assert [each["key"] for each in secrets] == [SANDBOX_KEY]


def test_the_fields_reach_the_pods() -> None:
    given = {
        "image": "python:3.12",
        "poolSize": 3,
        "memory": "1Gi",
        "disk": "2Gi",
        "runtimeClassName": "gvisor",
        "nodeSelector": {"pool": "sandbox"},
        "tolerations": [{"key": "sandbox"}],
    }
    pool = build_pool(sandbox_job(given))
    spec = pool["spec"]["template"]["spec"]
    (container,) = spec["containers"]
    assert pool["spec"]["parallelism"] == 3
    assert container["image"] == "python:3.12"
    assert container["command"][-1] == str(3 * 2**28)
    assert container["resources"]["limits"] == {"cpu": "500m", "memory": "1Gi", "ephemeral-storage": "2Gi"}
    assert spec["runtimeClassName"] == "gvisor"
    assert spec["nodeSelector"] == {"pool": "sandbox"}
    assert spec["tolerations"] == [{"key": "sandbox", "operator": "Equal"}]


def test_the_pool_ends_with_the_head_and_counts_toward_the_queue() -> None:
    metadata = build_pool(sandbox_job(scheduling={"queueName": "team"}))["metadata"]
    assert [(each["kind"], each["name"]) for each in metadata["ownerReferences"]] == [("Pod", "sum-head-a")]
    assert metadata["name"] == "sum-sandboxes-22222222"
    assert metadata["labels"][names.QUEUE_LABEL] == "team"


def test_sandboxes_of_agent_sandbox_have_the_same_pods_and_end_with_the_head() -> None:
    scheduling = {"queueName": "team"}
    pool = build_pool(sandbox_job(scheduling=scheduling))
    first, second = build_pools(sandbox_job({"provider": "AgentSandbox", "poolSize": 2}, scheduling=scheduling))
    assert first["spec"] == second["spec"] == {"podTemplate": pool["spec"]["template"]}
    assert [each["metadata"].pop("name") for each in (first, second)] == [
        "sum-sandboxes-22222222-0",
        "sum-sandboxes-22222222-1",
    ]
    del pool["metadata"]["name"]
    assert first["metadata"] == second["metadata"] == pool["metadata"]


def test_the_head_alone_reaches_the_pods_and_they_reach_nothing() -> None:
    policies = build_policies(sandbox_job())
    others = (pod("demo", names.labels("sum")), pod("demo", {}), SANDBOX, pod("evil", dict(HEAD.labels)))
    assert is_admitted(policies, HEAD, SANDBOX, PORT)
    assert not is_admitted(policies, HEAD, SANDBOX, PORT + 1)
    assert not any(is_admitted(policies, other, SANDBOX, PORT) for other in others)
    assert not is_admitted(policies, SANDBOX, HEAD, 6379)
    (own,) = [each["spec"] for each in policies if each["metadata"]["name"] == "sum-sandboxes"]
    assert (own["policyTypes"], own["egress"]) == (["Ingress", "Egress"], [])


def test_a_head_on_the_network_of_its_node_reaches_the_pods() -> None:
    cluster = {**o.SPEC["cluster"], "head": {"podTemplate": {"spec": {"hostNetwork": True}}}}
    (policy,) = build_policies(sandbox_job(cluster=cluster))
    assert policy["spec"]["policyTypes"] == ["Egress"]
    assert policy["spec"]["egress"] == []


def test_the_driver_finds_the_pods_by_their_service() -> None:
    job = sandbox_job()
    assert job.spec
    service = build_sandbox_service(job)
    found = {each["name"]: each.get("value") for each in build_env(job, job.spec, mounted=True)}
    assert found[HOST_VARIABLE] == f"{service['metadata']['name']}.demo.svc"
    assert service["spec"]["selector"] == build_pool(job)["spec"]["template"]["metadata"]["labels"]
    assert service["spec"]["clusterIP"] == "None"


def test_the_secret_has_the_key_that_follows_from_the_token() -> None:
    data = add_ray_token(build_ray_token(sandbox_job()), "token")["data"]
    assert base64.b64decode(data[SANDBOX_KEY]).decode() == derive_key("token")


def test_a_job_without_sandboxes_has_none_of_it() -> None:
    job = o.decided(o.job())
    assert job.spec
    assert "sandbox" not in str(build_children(job, job.spec, ACCESS))
