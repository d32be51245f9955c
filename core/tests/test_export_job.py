"""The Job that exports a checkpoint: its program, and its pod compared with the Ray cluster's."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import observed as o
import pytest
from job_specs import merged
from roll_jobs import MEGATRON, ROLL
from verl_jobs import TABLE, VERL

from rlt_api.frameworks.export import build_checkpoint_export
from rlt_api.frameworks.run import Run
from rlt_core.children.export_job import build_export_job
from rlt_core.children.pod_template import build_head_template, build_worker_template
from rlt_core.children.program import build_run
from rlt_core.job import Manifest
from rlt_core.names import JOB_LABEL

RUN = "/mnt/rlt/runs/sum-11111111"
BUILTIN = merged(
    o.SPEC,
    {
        "storage": {"claimName": "runs", "modelCache": {"claimName": "models", "readOnly": True}},
        "security": {"runAsUser": 2000},
        "scheduling": {"queueName": "team-a", "priorityClassName": "low"},
        "cluster.env": [{"name": "HF_TOKEN", "secretKeyRef": {"name": "hub", "key": "token"}}],
        "cluster.imagePullSecrets": ["registry"],
        "cluster.head": {
            "nodeSelector": {"pool": "cpu"},
            "tolerations": [{"key": "cpu"}],
            "podTemplate": {
                "metadata": {"labels": {"team": "a"}},
                "spec": {
                    "serviceAccountName": "trainer",
                    "containers": [{"name": "proxy", "image": "proxy"}, {"name": "ray-head", "args": ["a"]}],
                    "volumes": [{"name": "ca", "configMap": {"name": "ca"}}],
                },
            },
        },
    },
)
REMOVED_VOLUMES = {"training-config", "ray-token", "functions-0"}


def build(spec: dict[str, Any], step: int = 20) -> Manifest:
    job = o.job(spec)
    assert job.spec, job.findings
    export = build_checkpoint_export(job.spec, build_run(job, job.spec), step)
    assert export
    return build_export_job(job, job.spec, export, step)


def read_pod(manifest: Manifest) -> tuple[Manifest, Manifest]:
    """The pod and its only container."""
    pod = manifest["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    return pod, container


def test_the_job_is_owned_limited_and_queued() -> None:
    manifest = build(BUILTIN)
    assert (manifest["apiVersion"], manifest["kind"]) == ("batch/v1", "Job")
    metadata = manifest["metadata"]
    assert (metadata["name"], metadata["namespace"]) == ("sum-export-20", "demo")
    (owner,) = metadata["ownerReferences"]
    assert (owner["kind"], owner["name"], owner["uid"]) == ("RLTrainingJob", "sum", o.UID)
    assert metadata["labels"] == {
        JOB_LABEL: "sum",
        "app.kubernetes.io/managed-by": "rlt",
        "kueue.x-k8s.io/queue-name": "team-a",
    }
    assert metadata["annotations"] == {"rlt.dev/exported-path": f"{RUN}/exports/step-20"}
    limits = {name: manifest["spec"][name] for name in manifest["spec"] if name != "template"}
    assert limits == {"backoffLimit": 0, "activeDeadlineSeconds": 21600, "ttlSecondsAfterFinished": 86400}


def test_the_builtin_trainers_pod_is_the_heads_without_what_belongs_to_ray() -> None:
    job = o.job(BUILTIN)
    assert job.spec
    head = build_head_template(job, job.spec)["spec"]
    template = build(BUILTIN)["spec"]["template"]
    pod, container = read_pod(build(BUILTIN))
    assert template["metadata"]["labels"] == {"team": "a"}, "the operator would count it as a pod of the cluster"
    same = {name: head[name] for name in head if name not in ("containers", "volumes")}
    assert {name: pod[name] for name in pod if name not in ("containers", "volumes", "restartPolicy")} == same
    assert pod["restartPolicy"] == "Never"
    assert pod["serviceAccountName"] == "trainer"
    assert pod["volumes"] == [each for each in head["volumes"] if each["name"] not in REMOVED_VOLUMES]
    assert {each["name"] for each in pod["volumes"]} == {"shared-memory", "storage", "model-cache", "ca"}

    original = next(each for each in head["containers"] if each["name"] == "ray-head")
    for name in ("image", "imagePullPolicy", "resources", "securityContext"):
        assert container[name] == original[name]
    assert {each["name"] for each in container["volumeMounts"]} == {"shared-memory", "storage", "model-cache"}
    fabric = {each.name for each in job.status.network.env} if job.status.network else set()
    assert fabric
    missing = {each["name"] for each in original["env"] if each not in container["env"]}
    assert missing == {"RAY_AUTH_MODE", "RAY_AUTH_TOKEN_PATH", *fabric}
    assert "HF_TOKEN" in {each["name"] for each in container["env"]}
    assert not {"args", "lifecycle", "ports"} & set(container)
    checkpoint = f"{RUN}/checkpoints/step-20"
    output = f"{RUN}/exports/step-20"
    assert container["command"] == ["rlt-trainer", "export", "--checkpoint", checkpoint, "--output", output]


@pytest.mark.parametrize("spec", [VERL, merged(ROLL, {"framework.overrides": MEGATRON})], ids=["verl", "roll"])
def test_another_frameworks_pod_has_the_memory_of_a_worker_and_one_accelerator(spec: dict[str, Any]) -> None:
    job = o.job(spec)
    assert job.spec
    pod, container = read_pod(build(spec))
    worker = build_worker_template(job, job.spec, job.spec.cluster.workers[0])["spec"]
    amounts = worker["containers"][0]["resources"]["requests"] | {"nvidia.com/gpu": "1"}
    assert container["resources"] == {"requests": amounts, "limits": amounts}
    assert pod["tolerations"] == worker["tolerations"]
    assert not {"affinity", "topologySpreadConstraints", "hostNetwork"} & set(pod), "the pod is alone"


def test_the_pod_has_the_groups_of_amds_devices() -> None:
    spec = merged(VERL, {**TABLE["amd"], "security": {"supplementalGroups": [109]}})
    job = o.job(spec)
    assert job.spec
    worker = build_worker_template(job, job.spec, job.spec.cluster.workers[0])["spec"]
    pod, container = read_pod(build(spec))
    assert container["resources"]["limits"]["amd.com/gpu"] == "1"
    assert pod["securityContext"] == worker["securityContext"]
    assert pod["securityContext"]["supplementalGroups"] == [44, 109]
    head = build(merged(BUILTIN, {"security": {"supplementalGroups": [109]}}))
    assert read_pod(head)[0]["securityContext"]["supplementalGroups"] == [109]


def test_a_pod_is_not_a_member_of_the_gang() -> None:
    spec = merged(BUILTIN, {"scheduling": {"gang": True, "schedulerName": "default-scheduler"}})
    job = o.job(spec)
    assert job.spec, job.findings
    assert "workloadRef" in build_head_template(job, job.spec)["spec"]
    assert "workloadRef" not in read_pod(build(spec))[0]


def test_verl_merges_the_shards_of_the_step() -> None:
    _, container = read_pod(build(merged(VERL, {"framework.overrides": ["model_engine=megatron"]})))
    assert container["command"] == [
        *("python3", "-m", "verl.model_merger", "merge", "--backend", "megatron"),
        *("--local_dir", f"{RUN}/checkpoints/global_step_20/actor", "--target_dir", f"{RUN}/exports/step-20"),
    ]


def test_roll_converts_the_checkpoint_of_the_latest_attempt(tmp_path: Path) -> None:
    job = o.job(merged(ROLL, {"framework.overrides": MEGATRON}))
    assert job.spec
    assert read_pod(build(merged(ROLL, {"framework.overrides": MEGATRON})))[1]["workingDir"] == "/workspace/ROLL"
    run = Run("sum", "demo", str(tmp_path / "a run"))
    for attempt, name in (("20260101-000000", "checkpoint-19"), ("20260102-000000", "checkpoint-19")):
        (Path(run.checkpoints) / attempt / name).mkdir(parents=True)
    (tmp_path / "mcore_adapter/tools").mkdir(parents=True)
    (tmp_path / "mcore_adapter/tools/convert.py").write_text("import sys; print(*sys.argv[1:], sep='\\n')")

    def convert(step: int) -> subprocess.CompletedProcess[str]:
        assert job.spec
        export = build_checkpoint_export(job.spec, run, step)
        assert export
        return subprocess.run(export.command, cwd=tmp_path, capture_output=True, text=True)

    folder = f"{run.checkpoints}/20260102-000000/checkpoint-19"
    target = f"{run.directory}/exports/step-20"
    assert convert(20).stdout.splitlines() == ["--checkpoint_path", folder, "--output_path", target]
    missing = convert(21)
    assert (missing.returncode, missing.stdout) == (1, "")
    assert missing.stderr.endswith("/*/checkpoint-20: no such checkpoint\n")
