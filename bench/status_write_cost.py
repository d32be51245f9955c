"""`python bench/status_write_cost.py`: what the rules of the CRD (CEL) and the kind of patch cost in a status write.

Three CRDs take turns on one API server: the installed one, a copy without the rules of immutability, and one without
any rule. Prints the CPU time of kube-apiserver and etcd for one write of a new step, and the ratios.
"""

from __future__ import annotations

import asyncio
import copy
import os
import tempfile
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from rlt_api.validation.resolved_spec import build_resolved_spec, dump_resolved_spec
from rlt_core.job import Manifest
from rlt_core.kubernetes.client import KubernetesApi, connect
from rlt_e2e.cluster import Cluster
from rlt_e2e.cluster.processes import list_running
from rlt_operator.reconcile.status_patch import build_status_patch

CRDS = Path(__file__).parents[1] / "crds"
WITH_RULES = "rlt.dev"
MUTABLE = "mutable.rlt.dev"
WITHOUT_RULES = "unruled.rlt.dev"
RULES = "x-kubernetes-validations"
ROUNDS = 8
WRITES = 60
"""Writes of a kind in a round."""
TICKS_PER_S = os.sysconf("SC_CLK_TCK")
SPEC: dict[str, Any] = yaml.safe_load((CRDS.parent / "examples/01-arithmetic-grpo.yaml").read_text())["spec"]
RESOLVED = dump_resolved_spec(build_resolved_spec(SPEC, None))


def remove_rules(schema: Any, word: str) -> Any:
    """The schema without the rules that contain the word."""
    if isinstance(schema, list):
        return [remove_rules(each, word) for each in schema]
    if not isinstance(schema, dict):
        return schema
    kept = {key: remove_rules(each, word) for key, each in schema.items() if key != RULES}
    rules = [each for each in schema.get(RULES, []) if word not in each["rule"]]
    return {**kept, RULES: rules} if rules else kept


def build_copy(crd: Manifest, group: str, without: str) -> Manifest:
    """A copy of the CRD in another group, without the rules that contain a word."""
    copied: Manifest = remove_rules(copy.deepcopy(crd), without)
    copied["metadata"]["name"] = f"rltrainingjobs.{group}"
    copied["spec"]["group"] = group
    for name in ("shortNames", "categories"):
        copied["spec"]["names"].pop(name, None)
    return copied


def build_status(step: int) -> Manifest:
    """A status of 8 KB, as of a running job, with another step."""
    condition = {"status": "True", "lastTransitionTime": "2026-01-02T03:04:05Z", "observedGeneration": 1}
    types = ("Accepted", "FabricVerified", "ClusterReady", "Running", "Succeeded", "Failed", "Suspended", "Stalled")
    conditions = [{**condition, "type": each, "reason": "Valid", "message": "The spec is valid."} for each in types]
    progress = {"stage": "training", "step": step, "totalSteps": 10_000, "percent": 0, "display": "0%", "metrics": {}}
    return {
        "phase": "Running",
        "message": "The Ray job is running.",
        "conditions": conditions,
        "resolvedSpec": RESOLVED,
        "progress": {**progress, "lastUpdated": "2026-01-02T03:04:05Z"},
    }


def read_cpu_s(cluster: Cluster) -> float:
    """CPU seconds of kube-apiserver and etcd since their start."""
    assert cluster.layout
    found = 0.0
    for process in list_running(cluster.layout.state):
        if process.name in ("kube-apiserver", "etcd"):
            fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
            found += (int(fields[11]) + int(fields[12])) / TICKS_PER_S
    return found


async def write_steps(api: KubernetesApi, group: str, kind: str, steps: Iterator[int]) -> None:
    """Write the status WRITES times, each with another step."""
    name = f"by-{kind}"
    path = f"/apis/{group}/v1alpha1/namespaces/default/rltrainingjobs/{name}/status"
    stored = await api.get(path.removesuffix("/status")) or {}
    for _ in range(WRITES):
        status = build_status(next(steps))
        if kind == "apply":
            metadata = {"name": name, "namespace": "default"}
            manifest = {"apiVersion": f"{group}/v1alpha1", "kind": "RLTrainingJob", "metadata": metadata}
            stored = await api.apply(path, {**manifest, "status": status})
        else:
            version = stored["metadata"]["resourceVersion"]
            stored = await api.patch(path, build_status_patch(version, stored["status"], status))


async def measure(cluster: Cluster) -> dict[tuple[str, str], float]:
    """CPU milliseconds of a write, by group and kind of write."""
    api = await connect("status-write-cost")
    used: dict[tuple[str, str], float] = defaultdict(float)
    steps = iter(range(10**9))
    every = [(group, kind) for kind in ("apply", "patch") for group in (WITH_RULES, MUTABLE, WITHOUT_RULES)]
    try:
        for group, kind in every:
            job = {"apiVersion": f"{group}/v1alpha1", "kind": "RLTrainingJob", "metadata": {"name": f"by-{kind}"}}
            path = f"/apis/{group}/v1alpha1/namespaces/default/rltrainingjobs"
            created = await api.create(path, {**job, "spec": SPEC})
            version = created["metadata"]["resourceVersion"]
            await api.patch(f"{path}/by-{kind}/status", build_status_patch(version, None, build_status(next(steps))))
            await write_steps(api, group, kind, steps)
        for _ in range(ROUNDS):
            for group, kind in every:
                before = read_cpu_s(cluster)
                await write_steps(api, group, kind, steps)
                used[group, kind] += read_cpu_s(cluster) - before
    finally:
        await api.close()
    return {key: 1000 * seconds / (ROUNDS * WRITES) for key, seconds in used.items()}


def main() -> None:
    """Measure and print."""
    crd = yaml.safe_load((CRDS / "rltrainingjobs.rlt.dev.yaml").read_text())
    with tempfile.TemporaryDirectory() as folder:
        cluster = Cluster.up(nodes=0, state=Path(folder, "state"))
        try:
            for each in (crd, build_copy(crd, MUTABLE, "oldSelf"), build_copy(crd, WITHOUT_RULES, "")):
                file = Path(folder, "crd.yaml")
                file.write_text(yaml.safe_dump(each))
                cluster.kubectl("apply", "--server-side", "-f", file)
            cluster.kubectl("wait", "--for=condition=Established", "crd", "--all", "--timeout=60s")
            os.environ["KUBECONFIG"] = str(cluster.kubeconfig)
            found = asyncio.run(measure(cluster))
        finally:
            cluster.down()
    for (group, kind), milliseconds in found.items():
        print(f"{kind} {group}: {milliseconds:.1f} ms")
    for kind in ("apply", "patch"):
        for group in (MUTABLE, WITHOUT_RULES):
            print(f"{kind}, {WITH_RULES} / {group}: {found[WITH_RULES, kind] / found[group, kind]:.3f}")
    print(f"patch / apply: {found[WITH_RULES, 'patch'] / found[WITH_RULES, 'apply']:.3f}")


if __name__ == "__main__":
    main()
