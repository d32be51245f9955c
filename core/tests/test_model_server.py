"""The vLLM server for the model of a job: its command line, its pod and its Service."""

from __future__ import annotations

from typing import Any

import observed as o
import pytest
from job_specs import BUILTIN, gpus, merged, separate_engines

from rlt_core.children.model_server import ServedModel, build_model_server, build_server_command
from rlt_core.job import Manifest

EXPORT = "/mnt/rlt/runs/sum-11111111/export"
SPEC = merged(
    BUILTIN,
    {
        **gpus(8, 2),
        "model": {"path": "Qwen/Qwen2.5-1.5B-Instruct", "fromSeed": None, "dtype": "bfloat16"},
        "rollout.tensorParallelSize": 2,
        "storage": {"claimName": "runs", "modelCache": {"claimName": "models"}},
        "security": {"runAsUser": 2000},
        "cluster.env": [
            {"name": "HF_TOKEN", "secretKeyRef": {"name": "hub", "key": "token"}},
            {"name": "OPENAI_API_KEY", "secretKeyRef": {"name": "judge", "key": "key"}},
        ],
        "cluster.imagePullSecrets": ["registry"],
    },
)


def build(spec: Any = SPEC, model: ServedModel | None = None, image: str | None = None) -> tuple[Manifest, Manifest]:
    """The Deployment and the Service."""
    job = o.job(spec)
    assert job.spec, job.findings
    deployment, service = build_model_server(job, job.spec, model or ServedModel(EXPORT), image)
    return deployment, service


def read_pod(deployment: Manifest) -> tuple[Manifest, Manifest]:
    """The pod and its only container."""
    pod = deployment["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    return pod, container


def test_the_server_loads_the_export_with_the_settings_of_the_engine() -> None:
    _, container = read_pod(build()[0])
    assert container["command"] == [
        *("vllm", "serve", EXPORT, "--served-model-name", "sum", "--port", "8000"),
        *("--tensor-parallel-size", "2", "--dtype", "bfloat16", "--max-model-len", "1024"),
    ]
    assert "args" not in container
    assert container["image"] == "registry.example/trainer:cpu"
    assert read_pod(build(image="vllm/vllm-openai:v0.32.0")[0])[1]["image"] == "vllm/vllm-openai:v0.32.0"


def test_an_adapter_has_the_name_of_the_job() -> None:
    job = o.job(merged(SPEC, {"model.lora": {"rank": 12}}))
    assert job.spec
    model = ServedModel("Qwen/Qwen2.5-1.5B-Instruct", "abc", adapter=f"{EXPORT}/adapter")
    command = build_server_command("sum", job.spec, model)
    options = dict(zip(command[3::2], command[4::2], strict=False))
    assert command[2] == "Qwen/Qwen2.5-1.5B-Instruct"
    assert command[-1] == "--enable-lora"
    assert (options["--served-model-name"], options["--lora-modules"]) == ("sum-base", f"sum={EXPORT}/adapter")
    assert (options["--max-lora-rank"], options["--revision"]) == ("16", "abc")


def test_the_pod_reads_the_volumes_and_has_the_devices_of_one_engine() -> None:
    pod, container = read_pod(build()[0])
    volumes = {each["name"]: each for each in pod["volumes"]}
    assert set(volumes) == {"shared-memory", "storage", "model-cache", "tmp"}
    assert volumes["storage"]["persistentVolumeClaim"]["claimName"] == "runs"
    mounts = {each["name"]: each for each in container["volumeMounts"]}
    assert {name for name, each in mounts.items() if each.get("readOnly")} == {"storage", "model-cache"}
    amounts = container["resources"]["requests"]
    assert amounts["nvidia.com/gpu"] == "2"
    whole = SPEC["cluster"]["workers"][0]["resources"]
    assert int(amounts["cpu"]) == max(1, int(whole["cpu"]) // 4)
    assert container["resources"]["limits"] == amounts


def test_the_pod_is_restricted_and_gets_no_secret_that_it_does_not_need() -> None:
    pod, container = read_pod(build()[0])
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["runAsUser"] == 2000
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert pod["automountServiceAccountToken"] is False
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "readOnlyRootFilesystem": True,
    }
    names = {each["name"] for each in container["env"]}
    assert names == {"DO_NOT_TRACK", "HF_HOME", "HOME", "LOGNAME", "USER", "HF_TOKEN"}
    for probe in ("startupProbe", "readinessProbe"):
        assert container[probe]["httpGet"] == {"path": "/health", "port": "http"}


def test_the_service_selects_the_pods_and_the_operator_does_not() -> None:
    deployment, service = build()
    labels = deployment["spec"]["template"]["metadata"]["labels"]
    assert service["spec"]["selector"] == deployment["spec"]["selector"]["matchLabels"] == labels
    assert "rlt.dev/job" not in labels
    assert (deployment["metadata"]["name"], service["metadata"]["name"]) == ("sum-model", "sum-model")
    assert service["spec"]["ports"][0]["targetPort"] == "http"


@pytest.mark.parametrize("has_token", [True, False])
def test_a_repository_is_read_with_a_token_of_the_job_or_of_its_publication(*, has_token: bool) -> None:
    spec = merged(SPEC, {"cluster.env": SPEC["cluster"]["env"] if has_token else []})
    _, container = read_pod(build(spec, ServedModel("lab/math", "c0ffee", "hub-writer"))[0])
    (token,) = [each for each in container["env"] if each["name"] == "HF_TOKEN"]
    expected = {"name": "hub", "key": "token"} if has_token else {"name": "hub-writer", "key": "HF_TOKEN"}
    assert token["valueFrom"]["secretKeyRef"] == expected
    revision = container["command"].index("--revision") + 1
    assert container["command"][revision] == "c0ffee"


def test_a_job_on_cpus_has_a_server_on_cpus_without_a_volume_of_its_pods() -> None:
    pod, container = read_pod(build(BUILTIN, ServedModel("lab/math"))[0])
    assert container["resources"]["requests"] == {"cpu": "2", "memory": "4Gi"}
    assert container["command"][:5] == ["python3", "-m", "vllm.entrypoints.openai.api_server", "--model", "lab/math"]
    assert container["command"][-1] == "--no-enable-chunked-prefill", "a request with a seed would end the server"
    variables = {each["name"]: each.get("value") for each in container["env"]}
    assert (variables["VLLM_CPU_KVCACHE_SPACE"], variables["VLLM_CPU_OMP_THREADS_BIND"]) == ("1", "nobind")
    assert {each["name"] for each in pod["volumes"]} == {"shared-memory", "tmp"}


def test_the_server_of_separate_engines_runs_where_they_do() -> None:
    spec = merged(SPEC, separate_engines(2, 1))
    spec["cluster"]["workers"][1]["nodeSelector"] = {"pool": "rollout"}
    pod, _ = read_pod(build(spec)[0])
    assert pod["nodeSelector"] == {"pool": "rollout"}
