"""The file with what the preflight program expects: resources, models, data files, checkpoints."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import observed as o
import pytest
from checked import PODS, READY, SPEC
from job_specs import BUILTIN, elastic, merged, separate_engines

from rlt_api.rules.volume_size import count_checkpoints
from rlt_core.children.config_map import build_config_map
from rlt_core.children.preflight_file import uses_bfloat16
from rlt_core.children.preflight_inputs import list_data_files, list_model_folders
from rlt_operator.reconcile.plan import plan
from rlt_pod.preflight.expected import Expected, Group, ObjectPath, Repository, parse_expected

BASIC = {"level": "basic"}


def test_level_full_has_the_packages_of_the_program() -> None:
    framework = {**o.COMMAND_SPEC["framework"], "runtimeEnv": {"pip": ["math-verify==0.8.0"]}}
    for level, runtime_env in (("basic", {}), ("full", {"pip": ["math-verify==0.8.0"]})):
        job = o.job({**o.COMMAND_SPEC, "framework": framework, "preflight": {"level": level}})
        submitted = plan(o.recorded(replace(o.READY, job=job, pods=PODS)), o.NOW).submit
        assert submitted
        assert submitted.runtime_env == runtime_env


def expected_of(spec: dict[str, Any]) -> Expected:
    job = o.job(spec)
    assert job.spec
    return parse_expected(build_config_map(job, job.spec)["data"]["preflight.json"])


def test_the_file_has_the_expected_resources() -> None:
    spec = {**SPEC, "storage": {"claimName": "runs"}, "network": {"require": "rdma"}}
    expected = expected_of({**spec, "preflight": {"level": "full", "minBusBandwidth": 12.5}})
    assert expected.workers == [Group("workers", 2, 1, 0, 2**30)], "a quarter of 4Gi"
    assert (expected.shared_storage, expected.require_rdma, expected.min_bus_bandwidth) == (True, True, 12.5e9)
    assert expected.head_service == "sum-head-svc"
    assert expected.trial == ["rlt-trainer", "trial", "--config", "/etc/rlt/training.json"]
    assert expected_of(SPEC).trial is None


def test_the_checks_pass_with_any_number_of_rollout_pods_that_the_job_may_have() -> None:
    spec = merged(BUILTIN, {**elastic(), "rolloutReplicas": 6, "preflight": BASIC})
    train, rollout = expected_of(spec).workers
    assert (train.needed, train.replicas, rollout.needed, rollout.replicas) == (1, 1, 2, 8)


def test_the_head_and_the_pods_that_train_verify_the_bucket() -> None:
    storage = {"bucket": "s3://runs/a", "endpoint": "http://minio:9000"}
    bucket = expected_of(merged(BUILTIN, {**separate_engines(1, 1), "storage": storage, "preflight": BASIC})).bucket
    assert bucket
    assert bucket.url.startswith("s3://runs/a/runs/sum-")
    assert bucket.command == ["rlt-trainer", "bucket", "--url", bucket.url, "--endpoint", "http://minio:9000"]
    assert bucket.groups == ["workers"]
    assert expected_of(merged(BUILTIN, {"preflight": BASIC})).bucket is None


def test_a_command_has_the_checks_and_no_step_of_training() -> None:
    expected = expected_of({**o.COMMAND_SPEC, "preflight": {"level": "full"}})
    assert (expected.models, expected.checkpoint_bytes, expected.trial) == ([], None, None)
    job = o.job({**o.COMMAND_SPEC, "preflight": {"level": "basic"}})
    submission = plan(o.recorded(replace(READY, job=job)), o.NOW).submit
    assert submission
    assert submission.entrypoint == "exec python3 /etc/rlt/rlt_pod.pyz preflight /etc/rlt/preflight.json"


CHECKPOINTS = [
    ({}, 0),
    ({"saveFreq": 50}, 4),
    ({"saveFreq": 10}, 4),
    ({"saveFreq": 10, "maxToKeep": 0}, 20),
    ({"saveFreq": 60}, 4),
    ({"saveFreq": 10, "maxToKeep": 2}, 3),
    ({"saveFreq": 10, "maxToKeep": 2, "keepBest": True}, 4),
    ({"saveFreq": 200, "maxToKeep": 5}, 1),
]


@pytest.mark.parametrize(("checkpoint", "count"), CHECKPOINTS)
def test_the_space_for_checkpoints_is_computed(checkpoint: dict[str, Any], count: int) -> None:
    """The job has 200 steps. With maxToKeep, the next one is written before the oldest is deleted."""
    spec = o.job({**SPEC, "checkpoint": checkpoint}).spec
    assert spec
    assert count_checkpoints(spec) == count


VERL = ["python3", "-m", "verl.trainer.main_ppo", "actor_rollout_ref.model.path=/mnt/rlt/qwen"]
VERL += ["critic.model.path=Qwen/Qwen2.5-7B", "data.train_files=['/mnt/rlt/a.parquet', /mnt/rlt/b.parquet]"]
OPENRLHF = ["python3", "-m", "openrlhf.cli.train_ppo_ray", "--pretrain", "/mnt/rlt/qwen", "--prompt_data", "a/b,/c"]
PATHS = [
    (VERL, ["/mnt/rlt/qwen"], ["/mnt/rlt/a.parquet", "/mnt/rlt/b.parquet"]),
    (OPENRLHF, ["/mnt/rlt/qwen"], ["/c"]),
    (
        [*OPENRLHF[:3], "--actor.model_name_or_path=/mnt/rlt/qwen", "--data.prompt_dataset", "/c"],
        ["/mnt/rlt/qwen"],
        ["/c"],
    ),
    (["bash", "-c", f"python3 download.py && {' '.join(VERL)}"], [], []),
    (["python3", "train.py", "actor_rollout_ref.model.path=/mnt/rlt/qwen"], [], []),
]


@pytest.mark.parametrize(("command", "models", "prompts"), PATHS)
def test_the_paths_in_the_arguments_of_a_known_program_are_checked(
    command: list[str], models: list[str], prompts: list[str]
) -> None:
    """A script may create them first. Names on the hub are not paths."""
    framework = {"framework": {"type": "command", "command": command}}
    spec = o.job({"cluster": o.SPEC["cluster"], **framework}).spec
    assert spec
    assert (list_model_folders(spec), list_data_files(spec)) == (models, prompts)


HUB = {"model": {"path": "org/a", "revision": "v1"}, "data": {"hub": {"name": "org/rows"}, "promptKey": "q"}}

SUITE = {"name": "test", "data": {"hub": {"name": "org/rows"}}, "every": 5}


def test_the_files_of_suites_are_checked() -> None:
    suites = [{**SUITE, "name": path[1:2], "data": {"files": [path]}} for path in ("/a.jsonl", "/b.jsonl")]
    spec = o.job({"data": {"files": ["/a.jsonl"]}, "evaluation": suites}).spec
    assert spec
    assert list_data_files(spec) == ["/a.jsonl", "/b.jsonl"]


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        (HUB, [Repository("org/a", "model", "v1"), Repository("org/rows", "dataset", None)]),
        ({"model": {"path": "/m"}}, []),
        (
            {**HUB, "evaluation": [SUITE, {**SUITE, "name": "math", "data": {"preset": "math"}}]},
            [
                Repository("org/a", "model", "v1"),
                Repository("org/rows", "dataset", None),
                Repository("DigitalLearningGmbH/MATH-lighteval", "dataset", None),
            ],
        ),
        ({"framework": {"type": "command", "command": VERL}}, [Repository("Qwen/Qwen2.5-7B", "model", None)]),
        ({"framework": {"type": "command", "command": [*OPENRLHF, "--critic_pretrain=org/a", "--use_ms"]}}, []),
        ({"framework": {"type": "command", "command": ["python3", "train.py", "model=org/a"]}}, []),
    ],
)
def test_the_repositories_on_the_hub_are_checked(changes: dict[str, Any], expected: list[Repository]) -> None:
    spec = {**(o.SPEC if "model" in changes else {"cluster": o.SPEC["cluster"]}), **changes}
    assert expected_of({**spec, "preflight": {"level": "basic"}}).repositories == expected


def test_models_and_data_in_a_bucket_are_checked_if_no_step_downloads_them() -> None:
    """Checks alone cannot train: the files are not downloaded."""
    checks = {"level": "full", "only": True}
    data = {"files": ["s3://data/a.jsonl", "/b.jsonl"]}
    storage = {"endpoint": "http://minio:9000"}
    paths = {"model": {"path": "s3://models/q"}, "data": data}
    expected = expected_of({**o.SPEC, **paths, "storage": storage, "preflight": checks})
    assert expected.objects == [
        ObjectPath("spec.model.path", "s3://models/q", "model"),
        ObjectPath("spec.data.files[0]", "s3://data/a.jsonl", "data"),
    ]
    assert expected.endpoint == "http://minio:9000"
    assert (expected.models, expected.data_files, expected.repositories) == ([], ["/b.jsonl"], [])
    assert expected.trial is None
    assert [each.reason for each in expected.not_possible] == [
        "spec.model.path is in a bucket, and is not downloaded with preflight.only."
    ]


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"model": {"path": "/m", "dtype": "bfloat16"}}, True),
        ({"model": {"path": "/m", "dtype": "float32"}}, False),
        ({"framework": {"type": "command", "command": VERL}}, True),
        ({"framework": {"type": "command", "command": [*VERL, "actor_rollout_ref.rollout.dtype=float16"]}}, False),
        ({"framework": {"type": "command", "command": ["python3", "train.py"]}}, False),
    ],
)
def test_the_data_type_of_the_engine_is_known(changes: dict[str, Any], expected: bool) -> None:
    spec = o.job({**o.SPEC, **changes} if "model" in changes else {"cluster": o.SPEC["cluster"], **changes}).spec
    assert spec
    assert uses_bfloat16(spec) == expected


def test_jobs_without_preflight_mount_no_expectations() -> None:
    plain = o.job()
    checked = o.job(SPEC)
    assert plain.spec
    assert checked.spec
    added = build_config_map(checked, checked.spec)["data"].keys() - build_config_map(plain, plain.spec)["data"].keys()
    assert added == {"preflight.json"}
