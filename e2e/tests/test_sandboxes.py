"""Sandbox pods on a cluster: a hostile program in one, its replacement, the end of all with the job, and agents.

The embedded cluster does not enforce NetworkPolicies: core/tests/test_sandboxes.py evaluates them.
"""

from __future__ import annotations

import json

import pytest

from rlt_core.names import SANDBOX_LABEL
from rlt_e2e.api_objects import read_objects
from rlt_e2e.cluster import Cluster
from rlt_e2e.jobs import (
    START_TIMEOUT_S,
    apply_job,
    await_cleanup,
    await_condition,
    await_objects,
    build_learning_job,
    list_pods,
    read_job,
)

pytestmark = [pytest.mark.cluster, pytest.mark.long]

NAME = "sandboxed"
POOL_SIZE = 2
CLAIM = """
import asyncio, sys
from rlt_api.blocks.rollout import MultiTurn
from rlt_trainer.sandboxes.pool import open_pool
async def main():
    given = {"tools": [{"name": "python"}], "sandbox": {"poolSize": 1}}
    async with open_pool(MultiTurn.model_validate(given)).claim() as sandbox:
        print(sandbox.pod)
        print((await sandbox.run(["python3", "-"], stdin=sys.argv[1], timeout_s=60)).output)
asyncio.run(main())
"""
"""What the driver does for a conversation."""
HOSTILE = """
import ctypes, errno, json, os
libc = ctypes.CDLL(None, use_errno=True)
def attempt(action):
    try:
        action()
    except OSError as error:
        return errno.errorcode[error.errno]
    return "allowed"
def unshare():
    if libc.unshare(0x10000000):
        raise OSError(ctypes.get_errno(), "unshare(CLONE_NEWUSER)")
print(json.dumps({
    "user": os.getuid(),
    "variables": [name for name in os.environ if "RLT" in name or "RAY" in name or "KUBERNETES" in name],
    "secrets": os.path.exists("/var/run/secrets") or os.path.exists("/etc/rlt-ray-token"),
    "key": attempt(lambda: open("/proc/1/environ", "rb").read()),
    "root": attempt(lambda: open("/usr/x", "w")),
    "work": attempt(lambda: open("/tmp/x", "w")),
    "signals": attempt(lambda: [os.kill(1, number) for number in (2, 9, 15)]),
    "namespace": attempt(unshare),
}))
"""
REJECTED = {
    "user": 65532,
    "variables": [],
    "secrets": False,
    "key": "EACCES",
    "root": "EROFS",
    "work": "allowed",
    "signals": "allowed",  # the kernel drops them: process 1 has no handlers
    "namespace": "EPERM",
}


ASK = """
import json, os, urllib.request
def ask(text):
    body = {"model": "policy", "messages": [{"role": "user", "content": text}], "max_tokens": 4}
    url = os.environ["OPENAI_BASE_URL"] + "/chat/completions"
    headers = {"Authorization": "Bearer " + os.environ["OPENAI_API_KEY"]}
    with urllib.request.urlopen(urllib.request.Request(url, json.dumps(body).encode(), headers)) as response:
        return json.load(response)
"""
FUNCTION = """
import json

def solve(prompt, sandbox):
    sandbox.put("question", prompt.text)
    program = ASK + "json.dump(ask(open('question').read()), open('answer.json', 'w'))"
    asked = sandbox.run(["python3", "-"], stdin=program)
    assert asked.exit_code == 0, asked
    sandbox.run(["sh", "-c", "setsid tail -f /dev/null & setsid tail -f /dev/null &"])
    sandbox.run(["sh", "-c", "kill -9 -1"])
    ended = sandbox.run(["sh", "-c", "while cat /proc/[0-9]*/comm | grep -q '^tail$'; do :; done"], timeout=30)
    assert ended.exit_code == 0, ended
    return len(json.loads(sandbox.get("answer.json"))["choices"])
"""
"""Its program reaches the policy without a network. What it leaves behind ends before the reward."""
PROGRAM = f"""{ASK}
given = json.load(open("prompt.json"))
assert open(0).read() == given["text"]
open("reward.txt", "w").write(str(len(ask(given["text"])["choices"])))
"""
AGENTS = {
    "function": {"name": "my_agent:solve", "configMap": "my-agent"},
    "program": {"command": ["python3", "-c", PROGRAM], "rewardFile": "reward.txt"},
}


def list_sandboxes(cluster: Cluster, namespace: str) -> list[str]:
    """Return pod/NAME of each sandbox pod."""
    pods = read_objects(cluster, namespace, "pod", labelSelector=f"{SANDBOX_LABEL}={NAME}")
    return [f"pod/{pod['metadata']['name']}" for pod in pods]


def test_a_hostile_program_is_rejected_and_its_pod_replaced(cluster: Cluster, namespace: str) -> None:
    job = build_learning_job(NAME, steps=1000, save_freq=0, workers=1)
    job["spec"]["training"].pop("warmup")
    job["spec"]["data"] |= {"maxPromptLength": 512, "maxResponseLength": 8}
    sandbox = {"poolSize": POOL_SIZE, "cpu": "50m", "memory": "128Mi"}
    job["spec"]["rollout"]["multiTurn"] = {"tools": [{"name": "python"}], "sandbox": sandbox}
    apply_job(cluster, namespace, job)
    await_condition(cluster, namespace, NAME, "Running", timeout_s=START_TIMEOUT_S)
    (head,) = (pod for pod in list_pods(cluster, namespace, NAME) if "-head-" in pod)
    output = cluster.kubectl("-n", namespace, "exec", head, "--", "python3", "-c", CLAIM, HOSTILE)
    pod, found = output.strip().splitlines()
    assert json.loads(found) == REJECTED
    await_objects(cluster, namespace, "delete", f"pod/{pod}")
    await_objects(cluster, namespace, f"jsonpath={{.status.ready}}={POOL_SIZE}", "job", "--all")
    await_objects(cluster, namespace, f"jsonpath={{.status.sandboxes.ready}}={POOL_SIZE}", f"rltrainingjob/{NAME}")
    pods = list_sandboxes(cluster, namespace)
    assert len(pods) == POOL_SIZE
    cluster.kubectl("-n", namespace, "delete", "rltrainingjob", NAME)
    await_cleanup(cluster, namespace, NAME)
    await_objects(cluster, namespace, "delete", *pods)
    assert list_sandboxes(cluster, namespace) == []


@pytest.mark.parametrize("name", AGENTS)
def test_an_agent_reaches_the_policy_from_its_sandbox(cluster: Cluster, namespace: str, name: str) -> None:
    module = f"ASK = {ASK!r}\n{FUNCTION}"
    files = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "my-agent"}}
    cluster.kubectl("-n", namespace, "apply", "-f", "-", input=json.dumps({**files, "data": {"my_agent.py": module}}))
    job = build_learning_job(name, steps=1, save_freq=0, workers=1)
    job["spec"]["training"].pop("warmup")
    job["spec"]["training"] |= {"trainBatchSize": 2, "ppoMiniBatchSize": 2}
    job["spec"]["data"] |= {"maxPromptLength": 64, "maxResponseLength": 8}
    sandbox = {"poolSize": POOL_SIZE, "cpu": "50m", "memory": "128Mi"}
    job["spec"]["rollout"] |= {"responsesPerPrompt": 2, "multiTurn": {"agent": AGENTS[name], "sandbox": sandbox}}
    apply_job(cluster, namespace, job)
    await_condition(cluster, namespace, name, "Succeeded", timeout_s=START_TIMEOUT_S)
    progress = read_job(cluster, namespace, name)["status"]["progress"]
    assert progress["metrics"]["reward"] >= 1.0  # the agent's reward of 1, and the exact answers
