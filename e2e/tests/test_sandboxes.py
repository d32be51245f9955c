"""Sandbox pods on a cluster: hostile programs in them, their replacement, the end of all with the job, and agents.

The embedded cluster does not enforce NetworkPolicies: rlt_e2e/cluster/network_policies.py does, for one of them.
"""

from __future__ import annotations

import json
import socket

import pytest

from rlt_core import names
from rlt_core.names import RAY_METRICS_PORT, SANDBOX_LABEL
from rlt_e2e.api_objects import read_object, read_objects
from rlt_e2e.cluster import Cluster
from rlt_e2e.cluster.layout import API_SERVICE
from rlt_e2e.cluster.network_policies import enforce
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
from rlt_pod.report.driver_report import METRICS_PORT

pytestmark = [pytest.mark.cluster, pytest.mark.long]

NAME = "sandboxed"
POOL_SIZE = 2
KUBELET_PORT = 10250
CLAIM = """
import asyncio, json, sys
from rlt_api.blocks.rollout import MultiTurn
from rlt_trainer.sandboxes.pool import open_pool
from rlt_trainer.sandboxes.sandbox import SandboxError
async def main():
    given = {"tools": [{"name": "python"}], "sandbox": {"poolSize": 1}}
    async with open_pool(MultiTurn.model_validate(given)).claim() as sandbox:
        try:
            result = await sandbox.run(["python3", "-"], stdin=sys.argv[1], timeout_s=float(sys.argv[2]))
            found = {"output": result.output, "problem": result.problem}
        except SandboxError as error:
            found = {"lost": str(error)}
        print(json.dumps({"pod": sandbox.pod, **found}))
asyncio.run(main())
"""
"""What the driver does for a conversation."""
CALLS = {
    "mount": (165, 0, 0, 0, 0, 0),
    "unshare": (272, 0x10000000),  # CLONE_NEWUSER
    "keyctl": (250, 0, -3, 1),  # KEYCTL_GET_KEYRING_ID
    "bpf": (321, 0, 0, 0),
    "perf_event_open": (298, 0, 0, -1, -1, 0),
    "userfaultfd": (323, 0),
}
"""System calls by name: the number on x86-64, and arguments."""
HOSTILE = (
    f"""
CALLS = {CALLS}
"""
    + """
import ctypes, errno, json, os, socket
libc = ctypes.CDLL(None, use_errno=True)
def attempt(action):
    try:
        action()
    except OSError as error:
        return errno.errorcode[error.errno]
    return "allowed"
def call(number, *arguments):
    def action():
        if libc.syscall(number, *arguments) < 0:
            raise OSError(ctypes.get_errno(), "the system call failed")
    return attempt(action)
print(json.dumps({
    "user": os.getuid(),
    "variables": [name for name in os.environ if "RLT" in name or "RAY" in name or "KUBERNETES" in name],
    "secrets": os.path.exists("/var/run/secrets") or os.path.exists("/etc/rlt-ray-token"),
    "key": attempt(lambda: open("/proc/1/environ", "rb").read()),
    "root": attempt(lambda: open("/usr/x", "w")),
    "work": attempt(lambda: open("/tmp/x", "w")),
    "signals": attempt(lambda: [os.kill(1, number) for number in (2, 9, 15)]),
    "packets": attempt(lambda: socket.socket(socket.AF_PACKET, socket.SOCK_RAW)),
    **{name: call(*arguments) for name, arguments in CALLS.items()},
}))
"""
)
REJECTED = {
    "user": 65532,
    "variables": [],
    "secrets": False,
    "key": "EACCES",
    "root": "EROFS",
    "work": "allowed",
    "signals": "allowed",  # the kernel drops them: process 1 has no handlers
    "packets": "EPERM",
    **dict.fromkeys(CALLS, "EPERM"),
}
CONNECT = """
import errno, json, socket
def connect(host, port):
    try:
        socket.create_connection((host, port), timeout=10).close()
    except OSError as error:
        return errno.errorcode[error.errno]
    return "allowed"
def resolve():
    try:
        socket.getaddrinfo("kubernetes.default.svc.cluster.local", 443)
    except OSError:
        return "ECONNREFUSED"
    return "allowed"
print(json.dumps({name: resolve() if name == "DNS" else connect(*address) for name, address in ADDRESSES.items()}))
"""
EXHAUST = {
    "memory": """
import os, signal
for _ in range(8):
    if not os.fork():
        held = b"x" * (40 << 20)
        signal.pause()
print(os.waitstatus_to_exitcode(os.wait()[1]))
""",
    "processes": """
import os
while True:
    try:
        os.fork()
    except OSError:
        pass
""",
    "disk": """
import time
while True:
    try:
        with open("file", "ab") as file:
            file.write(bytes(1 << 20))
    except OSError:
        pass
    time.sleep(0.1)
""",
}
"""Programs that need more than their pod has. The kubelet reads the size of /work once a minute."""


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


def test_hostile_programs_are_rejected_and_their_pods_replaced(cluster: Cluster, namespace: str) -> None:
    layout = cluster.layout
    if not layout:
        pytest.skip("the addresses and the enforcement of policies are of the embedded cluster")
    job = build_learning_job(NAME, steps=1000, save_freq=0, workers=1)
    job["spec"]["training"].pop("warmup")
    job["spec"]["data"] |= {"maxPromptLength": 512, "maxResponseLength": 8}
    sandbox = {"poolSize": POOL_SIZE, "memory": "128Mi", "disk": "32Mi"}  # with less CPU, 800 processes end in minutes
    job["spec"]["rollout"]["multiTurn"] = {"tools": [{"name": "python"}], "sandbox": sandbox}
    apply_job(cluster, namespace, job)
    await_condition(cluster, namespace, NAME, "Running", timeout_s=START_TIMEOUT_S)
    pods = list_pods(cluster, namespace, NAME)
    (head,) = (pod for pod in pods if "-head-" in pod)
    (worker,) = (pod for pod in pods if "-worker-" in pod)

    def run_claimed(program: str, *, timeout_s: int = 60) -> dict[str, str]:
        """Run a program in a sandbox as the driver does, and wait until another pod has replaced it."""
        command = ("python3", "-c", CLAIM, program, str(timeout_s))
        found: dict[str, str] = json.loads(cluster.kubectl("-n", namespace, "exec", head, "--", *command))
        await_objects(cluster, namespace, "delete", f"pod/{found['pod']}")
        await_objects(cluster, namespace, f"jsonpath={{.status.ready}}={POOL_SIZE}", "job", "--all")
        return found

    assert json.loads(run_claimed(HOSTILE)["output"]) == REJECTED

    policy = read_object(cluster, namespace, "networkpolicy", names.sandboxes(NAME))
    assert policy
    found = {pod["metadata"]["name"]: pod for pod in read_objects(cluster, namespace, "pod")}
    addresses = {name: found[name]["status"]["podIP"] for name in pods}
    with socket.create_server((layout.machine, 0)) as outside:
        targets = {
            "the service of the API server": (API_SERVICE, 443),
            "the API server": (layout.machine, layout.port("kube-apiserver")),
            **{f"the kubelet of {node.name}": (node.address, KUBELET_PORT) for node in layout.all_nodes()},
            "Ray": (addresses[head], 6379),
            "the driver": (addresses[head], METRICS_PORT),
            "another pod": (addresses[worker], RAY_METRICS_PORT),
            "outside of the cluster": outside.getsockname(),
        }
        connect = f"ADDRESSES = {targets | {'DNS': None}}\n{CONNECT}"
        open_to_all = json.loads(run_claimed(connect)["output"])
        assert set(open_to_all.values()) == {"allowed"}, open_to_all
        with enforce(layout, policy, read_objects(cluster, namespace, "pod")):
            enforced = json.loads(run_claimed(connect)["output"])
    assert enforced == dict.fromkeys(open_to_all, "ECONNREFUSED")

    killed = run_claimed(EXHAUST["memory"])
    assert "lost" in killed or killed["output"] == "-9\n", killed
    endless = run_claimed(EXHAUST["processes"], timeout_s=10)
    assert "lost" in endless or endless["problem"], endless
    assert "lost" in run_claimed(EXHAUST["disk"], timeout_s=300)

    await_objects(cluster, namespace, f"jsonpath={{.status.sandboxes.ready}}={POOL_SIZE}", f"rltrainingjob/{NAME}")
    assert cluster.kubectl("wait", "--for=condition=Ready", "node", "--all", "--timeout=0")
    sandboxes = list_sandboxes(cluster, namespace)
    assert len(sandboxes) == POOL_SIZE
    cluster.kubectl("-n", namespace, "delete", "rltrainingjob", NAME)
    await_cleanup(cluster, namespace, NAME)
    await_objects(cluster, namespace, "delete", *sandboxes)
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
