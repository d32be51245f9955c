"""The environment variables of the pods: precedence, secrets, trackers and debuggers."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import observed as o
import pytest
from job_specs import BUILTIN, merged, separate_engines

from rlt_api.blocks.framework import PrepareStep
from rlt_api.validation.resolved_spec import build_resolved_spec, read_resolved_spec
from rlt_core.children.environment import build_env
from rlt_core.children.program import build_run
from rlt_core.children.raycluster import build_ray_cluster
from rlt_core.entrypoint import build_entrypoint, build_step_entrypoint

PYTHON = "/usr/bin/python3"
"""A Python that every user may run."""
UNKNOWN_USER = 54321


def variables(**blocks: Any) -> dict[str, dict[str, Any]]:
    """Variables by name, for a command with these blocks of the spec."""
    cluster = {**o.COMMAND_SPEC["cluster"], **blocks.pop("cluster", {})}
    job = o.job({**o.COMMAND_SPEC, **blocks, "cluster": cluster})
    assert job.spec
    listed = build_env(job, job.spec, mounted=True)
    named = {variable["name"]: variable for variable in listed}
    assert len(named) == len(listed)
    return named


def test_the_users_value_has_precedence() -> None:
    assert variables()["HOME"]["value"] == "/tmp"
    assert variables(cluster={"env": [{"name": "HOME", "value": "/home/me"}]})["HOME"]["value"] == "/home/me"


def test_the_users_variables_come_after_the_operators() -> None:
    named = variables(cluster={"env": [{"name": "A", "value": "$(HF_HOME)/x"}]})
    assert list(named)[-1] == "A"


@pytest.mark.parametrize("kind", ["secretKeyRef", "configMapKeyRef"])
def test_a_reference_is_kept(kind: str) -> None:
    named = variables(cluster={"env": [{"name": "HF_TOKEN", kind: {"name": "hub", "key": "token"}}]})
    assert named["HF_TOKEN"] == {"name": "HF_TOKEN", "valueFrom": {kind: {"name": "hub", "key": "token"}}}


@pytest.mark.parametrize(
    ("storage", "home"),
    [
        ({}, "/mnt/rlt/huggingface"),
        ({"claimName": "runs", "mountPath": "/runs/"}, "/runs/huggingface"),
        ({"modelCache": {"claimName": "models"}}, "/mnt/models/huggingface"),
        ({"modelCache": {"claimName": "models"}, "hfHome": "/hf"}, "/hf"),
    ],
)
def test_hf_home(storage: dict[str, Any], home: str) -> None:
    assert variables(storage=storage)["HF_HOME"]["value"] == home


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can change the user")
@pytest.mark.skipif(not Path(PYTHON).exists(), reason=f"{PYTHON} is not installed")
def test_a_user_without_an_account_has_a_name() -> None:
    """torch and Triton ask for it. The image of the job need not have an account for security.runAsUser."""
    program = [PYTHON, "-c", "import getpass; print(getpass.getuser())"]
    named = {name: variable["value"] for name, variable in variables().items() if "value" in variable}
    done, plain = (
        subprocess.run(program, env=env, user=UNKNOWN_USER, cwd="/", capture_output=True, text=True, check=False)
        for env in (named, {"HOME": "/tmp"})
    )
    assert (done.returncode, done.stdout) == (0, "rlt\n")
    assert plain.returncode == 1, "the name of a user ID without an account is unknown"


def test_caches_are_on_the_volume_of_the_job() -> None:
    """An image that was not built for this user has no home, no account and no writable cache."""
    named = variables(storage={"claimName": "runs", "mountPath": "/runs/"})
    caches = {name: named[f"{name}_CACHE_DIR"]["value"] for name in ("TRITON", "TORCHINDUCTOR")}
    assert caches == {"TRITON": "/runs/cache/triton", "TORCHINDUCTOR": "/runs/cache/inductor"}
    assert named["VLLM_CACHE_ROOT"]["value"] == "/runs/cache/vllm"
    own = variables(cluster={"env": [{"name": "USER", "value": "me"}, {"name": "TRITON_CACHE_DIR", "value": "/t"}]})
    assert [own[name]["value"] for name in ("USER", "LOGNAME", "TRITON_CACHE_DIR")] == ["me", "rlt", "/t"]


def test_a_read_only_model_cache_disables_the_hub() -> None:
    cache = {"claimName": "models"}
    assert "HF_HUB_OFFLINE" not in variables(storage={"modelCache": cache})
    assert variables(storage={"modelCache": {**cache, "readOnly": True}})["HF_HUB_OFFLINE"]["value"] == "1"


def test_the_wandb_project_defaults_to_the_namespace() -> None:
    wandb = {"apiKey": {"name": "wandb", "key": "k"}}
    assert variables(observability={"wandb": wandb})["WANDB_PROJECT"]["value"] == "demo"
    assert variables(observability={"wandb": {**wandb, "project": "p"}})["WANDB_PROJECT"]["value"] == "p"


def test_secrets_of_rewards_and_tools_are_variables_with_a_separate_prefix() -> None:
    token = {"name": "judge", "key": "token"}
    judge = {"judge": {"baseUrl": "http://judge/v1", "model": "m", "apiKey": token}}
    env = [{"name": "TOKEN", "secretKeyRef": token}, {"name": "PLAIN", "value": "1"}]
    function = {"function": {"name": "scoring:score"}, "env": env}
    server = {"mcp": {"url": "http://search/mcp", "apiKey": token}}
    changes: Any = {"rewards": [judge, function], "rollout": {"multiTurn": {"tools": [{"name": "python"}, server]}}}
    found = {name: each for name, each in variables(**changes).items() if name.startswith("RLT_")}
    reference = {"valueFrom": {"secretKeyRef": token}}
    assert found["RLT_REWARD_0_API_KEY"] == {"name": "RLT_REWARD_0_API_KEY", **reference}
    assert found["RLT_TOOL_1_API_KEY"] == {"name": "RLT_TOOL_1_API_KEY", **reference}
    assert found["RLT_REWARD_1_TOKEN"] == {"name": "RLT_REWARD_1_TOKEN", **reference}
    assert "RLT_REWARD_1_PLAIN" not in found
    given = variables(rollout={"multiTurn": {"openenv": {"url": "http://echo:8000", "apiKey": token}}})
    assert given["RLT_OPENENV_API_KEY"] == {"name": "RLT_OPENENV_API_KEY", **reference}


def test_only_wandb_uses_its_proxy() -> None:
    wandb = {"apiKey": {"name": "wandb", "key": "k"}, "proxy": "http://proxy:3128"}
    proxies = {
        name
        for name, each in variables(observability={"wandb": wandb}).items()
        if each.get("value") == "http://proxy:3128"
    }
    assert proxies == {"WANDB_HTTP_PROXY", "WANDB_HTTPS_PROXY"}


@pytest.mark.parametrize(
    ("mode", "expected"), [("none", {}), ("ray", {"RAY_DEBUG": "1", "RAY_DEBUG_POST_MORTEM": "1"})]
)
def test_debugger_variables(mode: str, expected: dict[str, str]) -> None:
    named = variables(observability={"debugger": mode})
    assert {name: named[name]["value"] for name in named if "DEBUG" in name} == expected


VOLUME = {"claimName": "runs"}
NCCL_FILES = {
    *("NCCL_DEBUG_FILE", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE", "TORCH_NCCL_DUMP_ON_TIMEOUT"),
    "TORCH_NCCL_TRACE_BUFFER_SIZE",
}
ATTEMPT = "/mnt/rlt/runs/sum-11111111/attempts/1"


def nccl_files(cluster: dict[str, Any], env: tuple[str, ...] = (), **blocks: Any) -> dict[str, str]:
    """The variables for files of NCCL and PyTorch, with these variables of the user."""
    given = [{"name": name, "value": "INFO"} for name in env]
    named = variables(cluster={**cluster, "env": given}, **blocks)
    return {name: each["value"] for name, each in named.items() if name in NCCL_FILES and name not in env}


def test_flight_records_are_in_the_folder_of_the_attempt() -> None:
    assert nccl_files(o.ON_GPUS["cluster"], storage=VOLUME) == {
        "TORCH_NCCL_DEBUG_INFO_TEMP_FILE": f"{ATTEMPT}/nccl_trace_rank_",
        "TORCH_NCCL_DUMP_ON_TIMEOUT": "1",
        "TORCH_NCCL_TRACE_BUFFER_SIZE": "2000",
    }


@pytest.mark.parametrize(
    ("env", "kept"), [(("NCCL_DEBUG",), True), (("NCCL_DEBUG", "NCCL_DEBUG_FILE"), False), ((), False)]
)
def test_the_log_of_nccl_is_kept_if_the_user_asks_for_it(env: tuple[str, ...], kept: bool) -> None:
    found = nccl_files(o.ON_GPUS["cluster"], env, storage=VOLUME)
    assert found.get("NCCL_DEBUG_FILE") == (f"{ATTEMPT}/nccl-%h-%p.log" if kept else None)


@pytest.mark.parametrize(("cluster", "storage"), [(o.ON_GPUS["cluster"], {}), (o.COMMAND_SPEC["cluster"], VOLUME)])
def test_a_job_without_gpus_or_without_a_volume_has_no_such_files(
    cluster: dict[str, Any], storage: dict[str, Any]
) -> None:
    assert nccl_files(cluster, ("NCCL_DEBUG",), storage=storage) == {}


@pytest.mark.parametrize(("timeline", "profiled"), [(None, False), ({}, True), ({"enabled": False}, False)])
def test_the_timeline_enables_profiling(timeline: dict[str, Any] | None, profiled: bool) -> None:
    assert (
        "RAY_PROFILING" in variables(observability={"timeline": timeline} if timeline is not None else {})
    ) == profiled


def test_the_legacy_debugger_is_external_on_all_pods() -> None:
    job = o.job({**o.COMMAND_SPEC, "observability": {"debugger": "legacy"}})
    assert job.spec
    spec = build_ray_cluster(job, job.spec)["spec"]
    for group in (spec["headGroupSpec"], *spec["workerGroupSpecs"]):
        assert group["rayStartParams"]["ray-debugger-external"] == "true"


def test_the_keys_of_the_bucket_are_references_in_pods_that_use_it() -> None:
    storage = {"bucket": "s3://runs/team-a", "secretName": "s3"}
    job = o.job(merged(BUILTIN, {**separate_engines(1, 1), "storage": storage}))
    spec = job.spec
    assert spec
    training, generating = spec.cluster.workers
    keys = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")
    expected = [{"name": key, "valueFrom": {"secretKeyRef": {"name": "s3", "key": key}}} for key in keys]
    for group in (None, training):
        assert [each for each in build_env(job, spec, mounted=True, group=group) if each["name"] in keys] == expected
    assert not [each for each in build_env(job, spec, mounted=True, group=generating) if each["name"] in keys]
    assert build_run(job, spec).bucket == f"s3://runs/team-a/runs/{job.name}-{job.uid[:8]}"


def test_the_output_of_the_program_is_kept_in_the_bucket() -> None:
    storage = {"bucket": "s3://runs/team-a", "endpoint": "https://minio:9000"}
    job = o.job(merged(BUILTIN, {"storage": storage}))
    assert job.spec
    log = f"--log s3://runs/team-a/runs/{job.name}-{job.uid[:8]}/attempts/1"
    server = "--log-endpoint https://minio:9000 --no-progress"
    assert f" run-command {log}/program.log {server} --run-directory " in build_entrypoint(job, job.spec)
    step = PrepareStep(name="data", command=["true"])
    assert f" run-command {log}/prepare-data.log {server} -- true" in build_step_entrypoint(job, job.spec, step)


def test_the_keys_of_each_publication_have_other_names_than_those_of_the_bucket() -> None:
    publish = [{"hub": "lab/a", "secretName": "hub"}, {"bucket": "s3://aaa"}, {"bucket": "s3://bbb", "secretName": "b"}]
    publish.append({"registry": "oci://ghcr.io/lab/a", "secretName": "images"})
    storage = {"bucket": "s3://runs/team-a", "secretName": "s3"}
    job = o.job(merged(BUILTIN, {**separate_engines(1, 1), "storage": storage, "publish": publish}))
    assert job.spec
    training, generating = job.spec.cluster.workers
    expected = {
        **{"AWS_ACCESS_KEY_ID": "s3", "AWS_SECRET_ACCESS_KEY": "s3", "RLT_PUBLISH_0_HF_TOKEN": "hub"},
        **{"RLT_PUBLISH_2_AWS_ACCESS_KEY_ID": "b", "RLT_PUBLISH_2_AWS_SECRET_ACCESS_KEY": "b"},
        "RLT_PUBLISH_3_DOCKERCONFIGJSON": "images",
    }
    for group, secrets in ((None, expected), (training, expected), (generating, {})):
        listed = build_env(job, job.spec, mounted=True, group=group)
        found = {each["name"]: each["valueFrom"]["secretKeyRef"]["name"] for each in listed if "valueFrom" in each}
        assert found == secrets


@pytest.mark.parametrize(
    ("storage", "publish", "pods"),
    [
        ({"claimName": "c", "secretName": "s3"}, [], ["head"]),
        ({"claimName": "c", "secretName": "s3"}, [{"bucket": "s3://aaa"}], ["head", "training"]),
        ({"claimName": "c", "secretName": "s3"}, [{"bucket": "s3://aaa", "secretName": "b"}], ["head"]),
        ({"secretName": "s3"}, [], ["head", "training", "generating"]),
        ({"bucket": "s3://runs/team-a", "secretName": "s3"}, [], ["head", "training", "generating"]),
        (
            {"bucket": "s3://runs/team-a", "secretName": "s3", "modelCache": {"claimName": "m"}},
            [],
            ["head", "training"],
        ),
    ],
)
def test_the_pods_that_use_a_bucket_have_the_keys(
    storage: dict[str, Any], publish: list[dict[str, str]], pods: list[str]
) -> None:
    """The head downloads to a volume, and without one each pod does."""
    model = {"path": "s3://models/Qwen3-8B"}
    submitted = merged(BUILTIN, {**separate_engines(1, 1), "model": model, "storage": storage, "publish": publish})
    spec = read_resolved_spec(build_resolved_spec(submitted, None), {}).spec
    assert spec
    training, generating = spec.cluster.workers
    groups = {"head": None, "training": training, "generating": generating}
    environments = {
        name: build_env(o.job(submitted), spec, mounted=True, group=group) for name, group in groups.items()
    }
    found = [name for name, env in environments.items() if any(each["name"] == "AWS_ACCESS_KEY_ID" for each in env)]
    assert found == pods
