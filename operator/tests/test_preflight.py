"""spec.preflight: a Ray job checks the nodes of every new cluster, and the training is submitted after them.

* the results are in the status before the training is submitted, also after a crash;
* a failed check fails the job, with check, node and remedy.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import observed as o
import pytest

from rlt_api.conditions import ConditionType as C
from rlt_api.conditions import Reason
from rlt_api.driver_report import PREFLIGHT_PREFIX
from rlt_api.status import Phase, RLTrainingJobStatus
from rlt_core import preflight
from rlt_core.children.config_map import build_config_map
from rlt_core.children.preflight_file import (
    count_checkpoints,
    get_level,
    list_data_files,
    list_model_folders,
    uses_bfloat16,
)
from rlt_core.preflight.expected import Expected, Group, parse_expected
from rlt_operator.conditions import find_condition, is_true
from rlt_operator.lifecycle.preflight_results import parse_preflight
from rlt_operator.observation import Config, Observed, Ray, RayJob, RayPreflight, Rejection
from rlt_operator.reconcile.plan import Plan, plan

SPEC = {**o.SPEC, "preflight": {"level": "basic"}}
ID = "sum-99999999-preflight"
PASSED = {"name": "all-reduce", "result": "passed", "value": "0.52 GB/s", "message": "All sums are right."}
WARNED = {"name": "clocks", "result": "warned", "value": "31.5 s", "message": "A clock is wrong.", "remedy": "Use NTP."}
FAILED = {
    "name": "shared-memory",
    "result": "failed",
    "value": "0.1Gi",
    "pods": ["sum-workers-worker-b"],
    "message": "/dev/shm has 0.1Gi.",
    "remedy": "Make it larger.",
}

PODS = tuple(replace(pod, node=f"node-{pod.name[-1]}") for pod in o.pods())
READY = o.recorded(replace(o.READY, job=o.job(SPEC), pods=PODS))


def checks(status: Any, found: Sequence[object] = ()) -> Ray:
    """The preflight checks, as Ray reports them."""
    log = f"[preflight] joining Ray\n{PREFLIGHT_PREFIX}{json.dumps(list(found))}\n"
    return o.checks(status, log)


CHECKING = replace(READY, ray=checks("RUNNING"))
GOOD = replace(READY, ray=checks("SUCCEEDED", [PASSED, WARNED]))
BAD = replace(READY, ray=checks("FAILED", [PASSED, FAILED]))


def condition_of(plan: Plan, type: C = C.PREFLIGHT_PASSED) -> tuple[str, str, str]:
    assert plan.status
    found = find_condition(plan.status, type)
    assert found
    return found.status, found.reason, found.message


def test_level_full_has_the_packages_of_the_program() -> None:
    framework = {**o.COMMAND_SPEC["framework"], "runtimeEnv": {"pip": ["math-verify==0.8.0"]}}
    for level, runtime_env in (("basic", {}), ("full", {"pip": ["math-verify==0.8.0"]})):
        job = o.job({**o.COMMAND_SPEC, "framework": framework, "preflight": {"level": level}})
        submitted = plan(o.recorded(replace(o.READY, job=job, pods=PODS)), o.NOW).submit
        assert submitted
        assert submitted.runtime_env == runtime_env


def test_the_checks_are_submitted_before_the_training() -> None:
    decided = plan(READY, o.NOW)
    assert decided.submit
    assert decided.submit.id == ID
    assert decided.submit.entrypoint == "exec python3 /etc/rlt/preflight.py"
    assert condition_of(decided)[0] == "False"


def test_nothing_is_submitted_while_a_pod_is_missing() -> None:
    assert plan(replace(READY, pods=PODS[:2]), o.NOW).submit is None


@pytest.mark.parametrize("state", ["PENDING", "RUNNING"])
def test_the_training_waits_for_the_checks(state: str) -> None:
    decided = plan(replace(READY, ray=checks(state)), o.NOW)
    assert decided.submit is None
    assert decided.status
    assert decided.status.phase == Phase.PROVISIONING
    assert condition_of(decided)[:2] == ("Unknown", Reason.CHECKING)
    assert decided.status.ray_cluster
    assert (decided.status.ray_cluster.preflight_job_id, decided.status.ray_cluster.job_id) == (ID, None)


def test_results_are_written_before_the_training_is_submitted() -> None:
    first = plan(replace(o.after(CHECKING), ray=GOOD.ray), o.NOW)
    assert (first.submit, first.requeue_after) == (None, 0)
    assert condition_of(first)[:2] == ("True", Reason.CHECKED)
    assert condition_of(first)[2] == "1 of 2 checks passed; clocks: A clock is wrong. Use NTP."
    assert first.status
    assert [check.name for check in first.status.preflight] == ["all-reduce", "clocks"]
    assert ("Normal", "PreflightPassed") in [(event.type, event.reason) for event in first.events]
    second = plan(o.after(GOOD), o.NOW).submit
    assert second
    assert second.id == "sum-99999999"


def test_a_failed_check_fails_the_job_with_check_node_and_remedy() -> None:
    decided = plan(BAD, o.NOW)
    message = "shared-memory (node node-b): /dev/shm has 0.1Gi. Make it larger."
    assert condition_of(decided, C.FAILED) == ("True", Reason.PREFLIGHT_FAILED, message)
    assert condition_of(decided) == ("False", Reason.PREFLIGHT_FAILED, message)
    assert (decided.submit, decided.delete_cluster) == (None, None)
    assert [(event.type, event.reason) for event in decided.events if event.reason != "Accepted"] == [
        ("Warning", "PreflightFailed"),
    ]
    assert plan(o.after(BAD), o.NOW).delete_cluster == o.CLUSTER_UID


def test_results_are_kept_after_the_cluster_is_deleted() -> None:
    gone = o.after(replace(o.after(BAD), cluster=None, pods=(), ray=None))
    assert [check.result for check in gone.job.status.preflight] == ["passed", "failed"]
    found = find_condition(gone.job.status, C.PREFLIGHT_PASSED)
    assert found
    assert found.reason == Reason.PREFLIGHT_FAILED
    assert plan(gone, o.NOW) == Plan()


def test_checks_that_crash_are_quoted() -> None:
    log = "starting\nrlt-trainer: error: ImportError: libcuda.so.1\n"
    crashed = replace(READY, ray=o.checks("FAILED", log))
    assert condition_of(plan(crashed, o.NOW), C.FAILED)[2] == "ImportError: libcuda.so.1"
    without_log = replace(READY, ray=Ray(preflight=RayPreflight(RayJob("FAILED", "exit code 1"))))
    assert condition_of(plan(without_log, o.NOW), C.FAILED)[2] == "exit code 1"


def test_results_are_kept_while_the_training_runs() -> None:
    running = o.after(replace(o.after(o.after(GOOD)), ray=o.running()))
    again = o.after(running, now=o.NOW + timedelta(minutes=5))
    assert is_true(again.job.status, C.PREFLIGHT_PASSED)
    assert [check.name for check in again.job.status.preflight] == ["all-reduce", "clocks"]
    assert again.job.status.ray_cluster
    assert again.job.status.ray_cluster.preflight_job_id == ID


def test_an_unreachable_ray_keeps_the_condition() -> None:
    for seen in (CHECKING, GOOD):
        unreachable = plan(replace(o.after(seen), ray=Ray(unreachable="connection refused")), o.NOW)
        assert unreachable.submit is None
        before = find_condition(o.after(seen).job.status, C.PREFLIGHT_PASSED)
        assert before
        assert condition_of(unreachable)[0] == before.status


def test_a_head_replaced_during_the_checks_is_lost() -> None:
    lost = plan(replace(o.after(CHECKING), ray=Ray()), o.NOW)
    assert condition_of(lost, C.FAILED)[1] == Reason.HEAD_LOST
    assert ID in condition_of(lost, C.FAILED)[2]


def test_a_new_cluster_is_checked_again() -> None:
    started = o.after(replace(o.after(o.after(GOOD)), ray=o.running()))
    other = "00000000-0000-0000-0000-000000000000"
    moved = tuple(replace(pod, cluster_uid=other) for pod in PODS)
    recreated = replace(started, cluster=o.cluster(uid=other), pods=moved, ray=Ray())
    assert plan(recreated, o.NOW).submit is None
    assert condition_of(plan(recreated, o.NOW))[:2] == ("False", Reason.WAITING_FOR_CLUSTER)
    submission = plan(replace(o.after(recreated), ray=Ray()), o.NOW).submit
    assert submission
    assert submission.id == "sum-00000000-preflight"


def test_an_evicted_cluster_is_checked_again() -> None:
    later = o.cluster(suspend=False, resumed=o.NOW + timedelta(minutes=1))
    for seen in (CHECKING, GOOD):
        back = o.after(replace(o.after(seen), cluster=later, ray=Ray()))
        submission = plan(back, o.NOW).submit
        assert submission
        assert submission.id == ID
    taken = plan(replace(o.after(CHECKING), cluster=o.cluster(suspend=True), ray=BAD.ray), o.NOW)
    assert condition_of(taken)[:2] == ("False", Reason.WAITING_FOR_CLUSTER)
    assert condition_of(taken, C.FAILED)[0] == "False"


def test_a_suspension_during_the_checks_releases_the_cluster() -> None:
    decided = plan(o.suspend(o.after(CHECKING)), o.NOW)
    assert decided.delete_cluster == o.CLUSTER_UID
    released = o.after(replace(o.suspend(o.after(CHECKING)), cluster=None, pods=(), ray=None))
    assert released.job.status.preflight == []
    found = find_condition(released.job.status, C.PREFLIGHT_PASSED)
    assert found
    assert found.reason == Reason.WAITING_FOR_CLUSTER


def test_rejected_checks_report_the_cause() -> None:
    rejected = plan(replace(READY, rejection=Rejection("No available agent", Reason.SUBMISSION_REFUSED)), o.NOW)
    assert condition_of(rejected, C.RUNNING)[1:] == (
        Reason.SUBMISSION_REFUSED,
        "Ray rejected the preflight checks: No available agent",
    )
    assert rejected.submit


def test_a_job_without_preflight_has_no_preflight_condition() -> None:
    assert find_condition(o.STARTED.job.status, C.PREFLIGHT_PASSED) is None
    assert o.STARTED.job.status.preflight == []


LIFE = [o.FRESH, o.PROVISIONING, READY, CHECKING, GOOD, GOOD, replace(READY, ray=o.running())]


@pytest.mark.parametrize("missed", range(1 << len(LIFE)))
def test_a_crash_at_any_point_loses_no_result(missed: int) -> None:
    """Each bit of `missed` is a status that is not written. The training is not submitted without the results."""
    status = RLTrainingJobStatus()
    for number, stage in enumerate(LIFE):
        seen = replace(stage, job=replace(o.job(SPEC), status=status))
        decided = plan(seen, o.NOW)
        if decided.submit and not decided.submit.id.endswith("preflight"):
            assert is_true(status, C.PREFLIGHT_PASSED)
            assert status.preflight
        if not missed >> number & 1:
            status = o.after(seen).job.status


def test_unreadable_results_are_ignored() -> None:
    assert parse_preflight("", PODS) == []
    assert parse_preflight(f"{PREFLIGHT_PREFIX}[{{}}]", PODS) == []
    assert parse_preflight(f"{PREFLIGHT_PREFIX}[", PODS) == []
    newer = json.dumps([{**PASSED, "since": "tomorrow"}])
    assert [check.name for check in parse_preflight(f"{PREFLIGHT_PREFIX}{newer}", PODS)] == ["all-reduce"]


def test_the_pods_of_a_check_are_truncated() -> None:
    """The nodes are those of all pods."""
    many = {**FAILED, "pods": [*(f"p{number}" for number in range(999)), PODS[0].name]}
    (check,) = parse_preflight(f"{PREFLIGHT_PREFIX}{json.dumps([many])}", PODS)
    assert (len(check.pods), check.pods[-1], check.nodes) == (8, "and 993 more", [PODS[0].node])


def test_a_cluster_of_an_earlier_operator_runs_the_checks_of_its_image() -> None:
    config = Config({"training.json": "x", "run_command.py": "y"})
    submission = plan(replace(READY, config=config), o.NOW).submit
    assert submission
    assert submission.entrypoint == "exec rlt-trainer preflight --config /etc/rlt/training.json"


def test_the_deprecated_field_is_level_basic() -> None:
    for fields, level in (({"enabled": True}, "basic"), ({}, "off"), ({"enabled": True, "level": "off"}, "off")):
        spec = o.job({**o.SPEC, "preflight": fields}).spec
        assert spec
        assert get_level(spec) == level


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


def test_a_command_has_the_checks_and_no_step_of_training() -> None:
    expected = expected_of({**o.COMMAND_SPEC, "preflight": {"level": "full"}})
    assert (expected.models, expected.checkpoint_bytes, expected.trial) == ([], None, None)
    job = o.job({**o.COMMAND_SPEC, "preflight": {"level": "basic"}})
    submission = plan(o.recorded(replace(READY, job=job)), o.NOW).submit
    assert submission
    assert submission.entrypoint == "exec python3 /etc/rlt/preflight.py"


CHECKPOINTS = [
    ({}, 0),
    ({"saveFreq": 50}, 4),
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
    (["bash", "-c", f"python3 download.py && {' '.join(VERL)}"], [], []),
    (["python3", "train.py", "actor_rollout_ref.model.path=/mnt/rlt/qwen"], [], []),
]


@pytest.mark.parametrize(("command", "models", "prompts"), PATHS)
def test_the_paths_in_the_arguments_of_a_known_program_are_checked(
    command: list[str], models: list[str], prompts: list[str]
) -> None:
    """A script may create them first. Names on the hub are no paths."""
    framework = {"framework": {"type": "command", "command": command}}
    spec = o.job({"cluster": o.SPEC["cluster"], **framework}).spec
    assert spec
    assert (list_model_folders(spec), list_data_files(spec)) == (models, prompts)


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


def test_jobs_without_preflight_mount_no_checks() -> None:
    plain, checked = o.job(), o.job(SPEC)
    assert plain.spec
    assert checked.spec
    added = build_config_map(checked, checked.spec)["data"].keys() - build_config_map(plain, plain.spec)["data"].keys()
    package = Path(preflight.__file__).parent
    modules = {f"rlt_core.preflight.{file.name}" for file in package.glob("*.py")} - {"rlt_core.preflight.run.py"}
    assert added == {"preflight.py", "preflight.json", *modules}


def on_nodes(seen: Observed, *nodes: str, image: str = "sha256:aa") -> Observed:
    pods = tuple(replace(pod, node=node, images=(image,)) for pod, node in zip(seen.pods, nodes, strict=True))
    return replace(seen, pods=pods)


def retry(seen: Observed, *nodes: str, image: str = "sha256:aa") -> Observed:
    """The next attempt on these nodes, from the status after `seen`."""
    other = "00000000-0000-0000-0000-000000000000"
    started = o.after(replace(o.after(o.after(seen)), ray=o.running()))
    moved = tuple(replace(pod, cluster_uid=other) for pod in PODS)
    recreated = replace(started, cluster=o.cluster(uid=other), pods=moved, ray=Ray())
    return replace(o.after(on_nodes(recreated, *nodes, image=image)), ray=Ray())


def test_a_retry_on_the_same_nodes_is_not_checked_again() -> None:
    again = retry(on_nodes(GOOD, "n1", "n1", "n2"), "n1", "n2", "n1")
    decided = plan(again, o.NOW)
    assert decided.submit
    assert decided.submit.id == "sum-00000000"
    assert condition_of(decided)[:2] == ("True", Reason.CHECKED)
    assert "in an earlier attempt" in condition_of(decided)[2]
    assert decided.status
    assert [check.name for check in decided.status.preflight] == ["all-reduce", "clocks"]


@pytest.mark.parametrize(("nodes", "image"), [(("n1", "n1", "n3"), "sha256:aa"), (("n1", "n1", "n2"), "sha256:bb")])
def test_a_retry_on_another_node_or_with_another_image_is_checked(nodes: tuple[str, ...], image: str) -> None:
    submission = plan(retry(on_nodes(GOOD, "n1", "n1", "n2"), *nodes, image=image), o.NOW).submit
    assert submission
    assert submission.id == "sum-00000000-preflight"


def test_a_failed_preflight_is_not_remembered() -> None:
    passed = o.after(on_nodes(GOOD, "n1", "n1", "n2")).job.status
    assert passed.preflight_passed
    assert (passed.preflight_passed.nodes, passed.preflight_passed.images) == (["n1", "n2"], ["sha256:aa"])
    failed = o.after(replace(on_nodes(BAD, "n1", "n1", "n2"), job=replace(BAD.job, status=passed)))
    assert failed.job.status.preflight_passed is None


def test_nodes_without_a_known_image_are_not_remembered() -> None:
    assert o.after(GOOD).job.status.preflight_passed is None


def test_a_job_of_checks_alone_succeeds_without_its_program() -> None:
    spec = {**o.SPEC, "preflight": {"only": True}}
    seen = replace(on_nodes(GOOD, "n1", "n1", "n2"), job=replace(o.job(spec), status=READY.job.status))
    decided = plan(o.after(seen), o.NOW)
    assert decided.submit is None
    assert condition_of(decided, C.SUCCEEDED)[:2] == ("True", Reason.CHECKED)
    assert decided.status
    assert decided.status.phase == Phase.SUCCEEDED
    ended = plan(o.after(o.after(seen)), o.NOW)
    assert ended.delete_cluster == o.CLUSTER_UID
