"""Claims of sandbox pods of both providers on a cluster: warm ones, a burst, and rollouts whose pods are deleted
meanwhile.

The driver is idle: its first reward waits. A program in the head pod claims pods as the driver does. `-s` shows the
times, which docs/conversations.md has.
"""

from __future__ import annotations

import json
import statistics
import subprocess
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from rlt_core.children.sandboxes import AGENT_SANDBOX
from rlt_core.names import SANDBOX_LABEL
from rlt_e2e.api_objects import read_objects
from rlt_e2e.cluster import Cluster
from rlt_e2e.cluster.agent_sandbox import agent_sandbox
from rlt_e2e.jobs import (
    START_TIMEOUT_S,
    apply_job,
    await_cleanup,
    await_condition,
    await_objects,
    build_learning_job,
    list_pods,
)

pytestmark = [pytest.mark.cluster, pytest.mark.long]

NAME = "claims"
POOL_SIZE = 16
OWNERS = {
    "Pods": ("job", f"jsonpath={{.status.ready}}={POOL_SIZE}"),
    "AgentSandbox": ("sandboxes.agents.x-k8s.io", "condition=Ready"),
}
"""Provider -> what the pods belong to, and its condition when all pods are ready."""
WARM = 20
COLD = 10
BURST = 64
ROLLOUTS = 200
DELETED_EVERY = 10
REWARD = "import threading\ndef wait(**_):\n    threading.Event().wait()\n"
PROGRAM = f"""
import asyncio, contextlib, json
from rlt_api.blocks.rollout import MultiTurn
from rlt_trainer.sandboxes.pool import open_pool
from rlt_trainer.sandboxes.sandbox import SandboxError

async def use(pool, *, is_deleted=False):
    try:
        async with pool.claim() as sandbox:
            if is_deleted:
                print(json.dumps({{"delete": sandbox.pod}}), flush=True)
            program = "import signal; signal.pause()" if is_deleted else "print(6 * 7)"
            result = await sandbox.run(["python3", "-c", program], timeout_s=600)
            return "ok" if result.output == "42\\n" else f"{{result}}"
    except SandboxError as error:
        return "lost" if "was lost" in str(error) else f"{{error}}"

def report(pool, phase, ends):
    print(json.dumps({{"phase": phase, "ends": ends, "claim_s": pool.take_statistics().claim_seconds}}), flush=True)

async def main():
    given = {{"tools": [{{"name": "python"}}], "sandbox": {{"poolSize": {POOL_SIZE}}}}}
    pool = open_pool(MultiTurn.model_validate(given))
    report(pool, "warm", [await use(pool) for _ in range({WARM})])
    report(pool, "burst", await asyncio.gather(*(use(pool) for _ in range({BURST}))))
    rollouts = (use(pool, is_deleted=number % {DELETED_EVERY} == 0) for number in range({ROLLOUTS}))
    report(pool, "rollouts", await asyncio.gather(*rollouts))
    async with contextlib.AsyncExitStack() as held:
        for _ in range({POOL_SIZE - 1}):
            await held.enter_async_context(pool.claim())
        await use(pool)
        pool.take_statistics()
        report(pool, "cold", [await use(pool) for _ in range({COLD})])

asyncio.run(main())
"""


@pytest.fixture(params=OWNERS)
def provider(cluster: Cluster, request: pytest.FixtureRequest) -> Iterator[str]:
    """The provider of the pods, which is installed."""
    name: str = request.param
    if name == AGENT_SANDBOX and not cluster.layout:
        pytest.skip("agent-sandbox needs the embedded cluster")
    with agent_sandbox(cluster) if name == AGENT_SANDBOX else nullcontext():
        yield name


def test_claims_lose_no_pod(cluster: Cluster, namespace: str, provider: str) -> None:
    create_job(cluster, namespace, provider)
    (head,) = (pod for pod in list_pods(cluster, namespace, NAME) if "-head-" in pod)
    phases = {each["phase"]: each for each in run_program(cluster, namespace, head)}
    for name, phase in phases.items():
        times = phase["claim_s"]
        print(f"{name}: {len(times)} claims, p50 {statistics.median(times):.3f} s, longest {max(times):.3f} s")
    assert phases["warm"]["ends"] == ["ok"] * WARM
    assert phases["burst"]["ends"] == ["ok"] * BURST
    assert phases["cold"]["ends"] == ["ok"] * COLD
    expected = ["lost" if number % DELETED_EVERY == 0 else "ok" for number in range(ROLLOUTS)]
    assert phases["rollouts"]["ends"] == expected
    owner, is_ready = OWNERS[provider]
    await_objects(cluster, namespace, is_ready, owner, "--all")
    await_objects(cluster, namespace, f"jsonpath={{.status.sandboxes.ready}}={POOL_SIZE}", f"rltrainingjob/{NAME}")
    assert len(list_alive(cluster, namespace)) == POOL_SIZE
    cluster.kubectl("-n", namespace, "delete", "rltrainingjob", NAME)
    await_cleanup(cluster, namespace, NAME)
    await_objects(cluster, namespace, "delete", owner, "--all")
    await_objects(cluster, namespace, "delete", "pod", "-l", f"{SANDBOX_LABEL}={NAME}")


def create_job(cluster: Cluster, namespace: str, provider: str) -> None:
    """Create a job with POOL_SIZE ready sandboxes, whose training waits for a reward."""
    files = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "reward"}, "data": {"reward.py": REWARD}}
    cluster.apply({**files, "metadata": {"name": "reward", "namespace": namespace}})
    job = build_learning_job(NAME, steps=1, save_freq=0, workers=1)
    spec = job["spec"]
    spec["training"].pop("warmup")
    spec["data"] |= {"maxPromptLength": 512, "maxResponseLength": 8}
    spec["rewards"] = [{"function": {"name": "reward:wait", "configMap": "reward", "timeoutSeconds": 3600}}]
    sandbox = {"provider": provider, "poolSize": POOL_SIZE, "cpu": "50m", "memory": "128Mi"}
    spec["rollout"]["multiTurn"] = {"tools": [{"name": "python"}], "sandbox": sandbox}
    apply_job(cluster, namespace, job)
    await_condition(cluster, namespace, NAME, "Running", timeout_s=START_TIMEOUT_S)
    await_objects(cluster, namespace, "jsonpath={.status.progress.stage}=training", f"rltrainingjob/{NAME}")
    await_objects(cluster, namespace, f"jsonpath={{.status.sandboxes.ready}}={POOL_SIZE}", f"rltrainingjob/{NAME}")


def run_program(cluster: Cluster, namespace: str, head: str) -> list[dict[str, Any]]:
    """Run PROGRAM in the head pod, delete the pods that it names, and return what it prints for its phases."""
    kubectl = str(Path(cluster.environment["PATH"].split(":")[0], "kubectl"))
    command = [kubectl, "-n", namespace, "exec", head, "--", "python3", "-c", PROGRAM]
    phases = []
    with subprocess.Popen(command, env=cluster.environment, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        for line in process.stdout:
            event = json.loads(line)
            if "delete" in event:
                now = ("--grace-period=0", "--force", "--wait=false")
                cluster.kubectl("-n", namespace, "delete", "pod", event["delete"], *now)
            else:
                phases.append(event)
    assert process.returncode == 0
    return phases


def list_alive(cluster: Cluster, namespace: str) -> list[str]:
    """Return the names of the sandbox pods that have not ended."""
    pods = read_objects(cluster, namespace, "pod", labelSelector=f"{SANDBOX_LABEL}={NAME}")
    return [pod["metadata"]["name"] for pod in pods if pod["status"]["phase"] in ("Pending", "Running")]
