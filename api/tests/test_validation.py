"""Validation of whole manifests: envelope, names, nulls, runtimes, hostile input."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable
from random import Random
from typing import Any

import pytest
from job_specs import BUILTIN, COMMAND, env, gpus, merged, workers
from random_jobs import manifest as random_manifest

from rlt_api.findings.finding import Finding
from rlt_api.schema.crd import GROUP, KIND, RUNTIME_KIND, VERSION
from rlt_api.schema.model_schema import load_schema
from rlt_api.schema.normalize import normalize
from rlt_api.spec.job_spec import RLTrainingJobSpec
from rlt_api.spec.runtime import resolve
from rlt_api.validation.validate import validate_change, validate_job, validate_manifest, validate_runtime

WORKERS = "spec.cluster.workers[0]"


def manifest(spec: Any = BUILTIN, kind: str = KIND, **metadata: Any) -> dict[str, Any]:
    metadata = metadata or {"name": "sum"}
    return {"apiVersion": f"{GROUP}/{VERSION}", "kind": kind, "metadata": metadata, "spec": spec}


def fields(found: tuple[Finding, ...]) -> list[str]:
    return [each.field for each in found]


@pytest.mark.parametrize(
    ("metadata", "field"),
    [
        ({"generateName": "sum-"}, None),
        ({"name": "sum", "labels": {"kueue.x-k8s.io/queue-name": "q"}, "creationTimestamp": None}, None),
        ({"labels": {}}, "metadata.name"),
        ({"name": 1}, "metadata.name"),
        ({"generateName": "Sum-"}, "metadata.name"),
        ({"name": "sum", "namespace": "team-a"}, None),
        ({"name": "sum", "namespace": "Team_A"}, "metadata.namespace"),
        ({"name": "sum", "label": {}}, "metadata.label"),
        ({"name": "sum", "labels": {"a": 1}}, "metadata.labels.a"),
        ({"name": "sum", "labels": {"a b": "x"}}, "metadata.labels[a b]"),
        ({"name": "sum", "labels": {"example.com/a": "x y"}}, "metadata.labels[example.com/a]"),
        ({"name": "sum", "labels": []}, "metadata.labels"),
        ({"name": "sum", "annotations": {"a": "x" * 300_000}}, "metadata.annotations"),
    ],
)
def test_metadata(metadata: dict[str, Any], field: str | None) -> None:
    assert fields(validate_manifest(manifest(**metadata), {})) == ([field] if field else [])


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"apiVersion": "rlt.dev/v1"}, "apiVersion"),
        ({"kind": "RLTrainingJobs"}, "kind"),
        ({"spec": None}, "spec"),
        ({"spec": []}, "spec"),
        ({"metadata": None}, "metadata.name"),
        ({"statsu": {}}, "statsu"),
    ],
)
def test_envelope(change: dict[str, Any], field: str) -> None:
    assert fields(validate_manifest({**manifest(), **change}, {})) == [field]


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("trainBatchsize", "trainBatchSize"),
        ("train_batch_size", "trainBatchSize"),
        ("ppo_micro_batch_size_per_gpu", "ppoMicroBatchSizePerDevice"),
        ("ppo_mini_batch_size", "ppoMiniBatchSize"),
        ("lr", "spec.training.learningRate"),
        ("kl_coef", "spec.algorithm.klInReward.klCoef"),
        ("ulysses_sequence_parallel_size", "spec.training.contextParallelSize"),
        ("total_training_steps", "spec.training.totalSteps"),
        ("n", "spec.rollout.responsesPerPrompt"),
        ("rollout_batch_size", "spec.training.trainBatchSize"),
        ("maxPromptLength", "spec.data.maxPromptLength"),
        ("temperatur", None),
    ],
)
def test_unknown_field_gets_a_suggestion(name: str, meant: str | None) -> None:
    spec = merged(BUILTIN, {f"training.{name}": 8})
    (finding,) = validate_job("sum", spec).findings
    assert finding.field == f"spec.training.{name}"
    assert finding.fix == f"did you mean {meant}?" if meant else finding.fix.startswith("remove it")


@pytest.mark.parametrize(
    ("change", "fix"),
    [
        ({"cluster.imagePullSecrets": [{"name": "registry"}]}, "write the name alone: registry"),
        ({"cluster.rayVersion": 2.1}, 'write all three numbers of the version, such as "2.60.0"'),
        ({"cluster.rayVersion": "2.60"}, "use 2.60.0"),
        ({"activeDeadlineSeconds": "90 m"}, "use 5400, the number of seconds"),
        ({"training.learningRate": ".nan"}, "use a number"),
        ({"training.totalSteps": "8"}, "write 8 without quotes"),
        ({"data.shuffle": "True"}, "write True without quotes"),
        ({"data.shuffle": "yes"}, "use true or false"),
        (
            {"cluster.head.nodeSelector": {"a": 1.5}},
            "write it in quotes, with all digits: YAML reads 2.10 as the number 2.1",
        ),
        ({"storage.claimName": "My Claim"}, "use my-claim"),
        ({"cluster.env": [{"name": "MY-TOKEN", "value": "1"}]}, "use MY_TOKEN"),
        ({"network.profile": ""}, "write a value of this form"),
    ],
)
def test_the_fix_of_another_type_is_what_was_meant(change: dict[str, Any], fix: str) -> None:
    found = validate_job("sum", merged(BUILTIN, change)).findings
    assert [each.fix for each in found] == [fix]


@pytest.mark.parametrize(
    ("stop", "field", "fix"),
    [
        (["x"] * 17, "spec.rollout.stop", "use at most 16"),
        (["x" * 129], "spec.rollout.stop[0]", "use at most 128"),
        ([""], "spec.rollout.stop[0]", "add what is missing, or remove the field"),
        ("</answer>", "spec.rollout.stop", "write a list"),
    ],
)
def test_stop_strings_are_bounded(stop: Any, field: str, fix: str) -> None:
    found = validate_job("sum", merged(BUILTIN, {"rollout.stop": stop})).findings
    assert [(each.field, each.fix) for each in found] == [(field, fix)]


def test_snake_case_field_is_rejected() -> None:
    """The types also accept snake_case, for internal use; a manifest must use camelCase."""
    assert fields(validate_job("sum", {**BUILTIN, "runtime_ref": {"name": "a"}}).findings) == ["spec.runtime_ref"]


def test_null_counts_as_not_given_and_integral_floats_as_integers() -> None:
    spec = {**BUILTIN, "rewards": None, "training": {"totalSteps": 8.0, "trainBatchSize": 32, "seed": None}}
    validated = validate_job("sum", spec)
    assert validated.findings == ()
    assert validated.spec
    assert validated.spec.training.total_steps == 8
    assert normalize(spec, load_schema(RLTrainingJobSpec))["training"] == {"totalSteps": 8, "trainBatchSize": 32}


def test_nulls_are_kept_in_fields_of_any_json() -> None:
    spec = merged(BUILTIN, {"cluster.head": {"podTemplate": {"spec": {}}}})
    spec["cluster"]["head"]["podTemplate"]["spec"]["x"] = None
    assert normalize(spec, load_schema(RLTrainingJobSpec)) == spec


def nested(depth: int) -> Any:
    value: Any = 1
    for level in range(depth):
        value = {"a": value} if level % 2 else [value]
    return {"a": value}


@pytest.mark.parametrize(
    "value", [nested(99), nested(5000), {"a": float("nan")}, {"a": "\ud800"}, {"\0": 1}, {"a": object()}, {1: 2}]
)
def test_non_json_value_is_rejected_with_its_path(value: Any) -> None:
    spec = merged(BUILTIN, {"cluster.head": {}})
    spec["cluster"]["head"]["podTemplate"] = value
    found = validate_manifest(manifest(spec), {})
    assert {each.rule for each in found} == {"json"}
    assert found[0].field.startswith("spec.cluster.head.podTemplate")
    assert str(found[0]).isprintable()


def test_spec_above_512_kib_is_rejected() -> None:
    for text, rule in (("x" * 60_000, None), ("x" * 65_536, "size")):
        spec = merged(COMMAND, {"framework.command": [text] * 8})
        assert [each.rule for each in validate_job("sum", spec).findings] == ([rule] if rule else [])


def test_the_size_of_a_spec_is_that_of_its_text_in_the_status() -> None:
    """Where each quote takes four bytes."""
    for text, rule in (('"' * 10_000, None), ('"' * 20_000, "size")):
        spec = merged(COMMAND, {"framework.command": [text] * 8})
        assert [each.rule for each in validate_job("sum", spec).findings] == ([rule] if rule else [])


def test_spec_and_runtime_above_512_kib_are_rejected() -> None:
    spec = merged(COMMAND, {"framework.command": ["x" * 60_000] * 8})
    runtime = {"defaults": {"cluster": {"head": {"podTemplate": large(50_000)}}}}
    assert validate_job("sum", spec).findings == ()
    (finding,) = validate_job("sum", spec, runtime).findings
    assert (finding.field, finding.rule) == ("spec", "size")


def large(size: int) -> dict[str, Any]:
    """A podTemplate with a text of this length."""
    return {"metadata": {"annotations": {"a": "x" * size}}}


def test_the_free_json_of_a_job_is_bounded_together() -> None:
    spec = merged(BUILTIN, {"cluster.head": {"podTemplate": large(30_000)}})
    assert validate_job("sum", spec).findings == ()
    spec = merged(spec, {"cluster.workers": [{"name": "w", "podTemplate": large(36_000)}]})
    (finding,) = validate_job("sum", spec).findings
    assert (finding.field, finding.rule) == ("spec.cluster.workers[0].podTemplate", "size")
    assert finding.value == "36037 bytes"
    assert "together 66074 bytes, and their maximum is 65536" in finding.message


def test_the_free_json_of_a_job_and_its_runtime_is_bounded_together() -> None:
    spec = merged(BUILTIN, {"cluster.head": {"podTemplate": large(30_000)}})
    kwargs = {"defaults": {"rollout": {"engineKwargs": {"a": "x" * 36_000}}}}
    assert validate_runtime(kwargs) == ()
    (finding,) = validate_job("sum", spec, kwargs).findings
    assert (finding.field, finding.rule) == ("spec.rollout.engineKwargs", "size")


def test_a_runtime_with_too_much_free_json_is_rejected() -> None:
    (finding,) = validate_runtime({"defaults": {"rollout": {"engineKwargs": {"a": "x" * 2**16}}}})
    assert (finding.field, finding.rule) == ("spec.defaults.rollout.engineKwargs", "size")


@pytest.mark.parametrize(
    "change",
    [
        {"training": {f"trainBatchSiz{index}": 1 for index in range(20_000)}},
        {"cluster.env": [{"name": f"NCCL_SOCKET_IFNAME{index}" + "_" * 240, "value": "\0"} for index in range(128)]},
        {"training": {"totalSteps": 1, "trainBatchSize": 2**31 - 1, "ppoMicroBatchSizePerDevice": 7}},
        {"training.fsdp.fsdpSize": 2**31 - 1, **gpus(1024, 4096)},
        {"algorithm.advEstimator": "g" * 100_000},
        {"cluster.head.nodeSelector": {"a" * 5000 + "!": "x"}},
    ],
)  # fmt: skip
def test_hostile_manifests_are_validated_quickly(change: dict[str, Any]) -> None:
    """The webhook must respond within its timeout: validation takes less time than for a thousand usual manifests."""
    hostile = merged(BUILTIN, change)
    assert validate_job("sum", hostile).findings
    usual = processor_seconds(lambda: [validate_job("sum", BUILTIN) for _ in range(1000)])
    # The best of three, because a busy machine only makes a run slower.
    assert min(processor_seconds(lambda: validate_job("sum", hostile)) for _ in range(3)) < usual


def processor_seconds(work: Callable[[], object]) -> float:
    start = time.process_time()
    work()
    return time.process_time() - start


def test_without_the_runtime_only_rules_on_given_fields_apply() -> None:
    spec = {"runtimeRef": {"name": "cpu"}, "training": {"trainBatchSize": 31, "ppoMiniBatchSize": 8}}
    assert fields(validate_job("sum", spec).findings) == ["spec.training.ppoMiniBatchSize"]
    spec["training"] = {"trainBatchSize": 31}
    assert validate_job("sum", spec).findings == ()


def test_job_and_runtime_are_validated_as_one_spec() -> None:
    pool = {"name": "a", "resources": {"cpu": "1", "memory": "2Gi"}}
    runtime = {"defaults": {"training": {"trainBatchSize": 30}}, "nodePools": [pool], "images": {"cpu": "i"}}
    spec = merged(BUILTIN, {"runtimeRef.name": "cpu", "training": None, "cluster": None})
    spec["training"] = {"totalSteps": 1, "ppoMiniBatchSize": 16}
    (finding,) = validate_job("sum", spec, runtime).findings
    assert finding.field == "spec.training.ppoMiniBatchSize"
    assert "trainBatchSize 30" in finding.message


def test_group_without_a_pool_gets_the_first_pool_with_its_accelerator() -> None:
    resources = {"cpu": "1", "memory": "2Gi"}
    gpu, amd = ({"resourceName": f"{vendor}.com/gpu", "count": 8} for vendor in ("nvidia", "amd"))
    pools = [{"name": "cpus", "resources": resources}, {"name": "gpus", "resources": resources, "accelerator": gpu}]

    def pool_of(group: dict[str, object]) -> object:
        return resolve({"cluster": {"workers": [group]}}, {"nodePools": pools})["cluster"]["workers"][0]["pool"]

    assert pool_of({"accelerator": gpu}) == "gpus"
    assert pool_of({}) == pool_of({"accelerator": amd}) == pool_of({"accelerator": gpu, "pool": "cpus"}) == "cpus"


def test_a_jobs_empty_env_keeps_the_runtimes_env() -> None:
    runtime = {"defaults": {"cluster": {"env": [{"name": "A", "value": "1"}]}}}
    job = merged(BUILTIN, {"runtimeRef.name": "r", "cluster.env": []})
    spec = validate_job("sum", job, runtime).spec
    assert spec
    assert [each.name for each in spec.cluster.env] == ["A"]


def test_a_jobs_env_precedes_the_runtimes_env() -> None:
    runtime = {"defaults": {"cluster": {"env": [{"name": "A", "value": "1"}, {"name": "NCCL_DEBUG", "value": "INFO"}]}}}
    job = merged(BUILTIN, {"runtimeRef.name": "r", **{"cluster.env": [{"name": "NCCL_DEBUGS", "value": "1"}]}})
    assert fields(validate_job("sum", job, runtime).findings) == ["spec.cluster.env[0].name"]


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ({"defaults": {"data": {"preset": "arithmetic", "path": "/d"}}}, "spec.defaults.data.path"),
        ({"defaults": {"security": {"runAsUser": 0}}}, "spec.defaults.security.runAsUser"),
        ({"defaults": env("NCCL_DEBUGS")}, "spec.defaults.cluster.env[0].name"),
        ({"nodePools": [{"name": "a", "resources": {"cpu": "0", "memory": "1Gi"}}]}, "spec.nodePools[0].resources.cpu"),
        ({"nodePools": [{"name": "a", "resources": {"cpu": "1", "memory": "1Gi"}}] * 2}, "spec.nodePools[1]"),
        ({"limits": [{"field": "spec.rollout.n", "max": 8}]}, "spec.limits[0].field"),
        ({"limits": [{"field": "spec.cluster.workers", "max": 8}]}, "spec.limits[0].field"),
        ({"limits": [{"field": "spec.training.seed", "max": 8, "min": 9}]}, "spec.limits[0].min"),
        ({"limits": [{"field": "spec.training.seed"}]}, "spec.limits[0]"),
        ({"defaults": {"model": {"dtype": "bfloat16"}, "training": {"trainBatchSize": 31}}}, None),
    ],
)  # fmt: skip
def test_runtimes(spec: dict[str, Any], field: str | None) -> None:
    assert fields(validate_runtime(spec)) == ([field] if field else [])


@pytest.mark.parametrize(
    ("limit", "field", "fix"),
    [
        ({"field": "spec.training.trainBatchSize", "max": 16}, "spec.training.trainBatchSize", "use 16 or less"),
        ({"field": "spec.rollout.responsesPerPrompt", "min": 16}, "spec.rollout.responsesPerPrompt", "use 16 or more"),
        ({"field": "spec.cluster.workers[].replicas", "max": 1}, f"{WORKERS}.replicas", "use 1 or less"),
        ({"field": "spec.cluster.workers[].resources.memory", "max": 2**30}, f"{WORKERS}.resources.memory", "1073"),
        ({"field": "spec.cluster.image", "allowed": ["localhost/*"]}, "spec.cluster.image", "use one of localhost/*"),
        ({"field": "spec.storage.hfHome", "allowed": ["/x"]}, "spec.storage.hfHome", "set it to one of /x"),
        ({"field": "spec.storage.hfHome", "allowed": ["/x"], "optional": True}, None, ""),
        ({"field": "spec.activeDeadlineSeconds", "max": 3600}, "spec.activeDeadlineSeconds", "set it to 3600 or less"),
        ({"field": "spec.pendingDeadlineSeconds", "min": 1, "max": 3}, "spec.pendingDeadlineSeconds", "1 or more"),
        ({"field": "spec.scheduling.queueName", "allowed": ["a"]}, "spec.scheduling.queueName", "set it to one of a"),
        ({"field": "spec.cluster.workers[].accelerator.count", "max": 8}, None, ""),
        ({"field": "spec.cluster.workers[].nodeSelector.*", "allowed": ["a"]}, None, ""),
        ({"field": "spec.cluster.head.podTemplate.spec.hostNetwork", "allowed": ["false"]}, None, ""),
        ({"field": "spec.security.supplementalGroups[]", "allowed": ["none"]}, None, ""),
        ({"field": "spec.cluster.image", "allowed": ["registry.example/*"]}, None, ""),
        ({"field": "spec.data.shuffle", "allowed": ["false"]}, "spec.data.shuffle", "use one of false"),
    ],
)  # fmt: skip
def test_limits(limit: dict[str, Any], field: str | None, fix: str) -> None:
    found = validate_job("sum", BUILTIN, {"limits": [limit]}).findings
    assert [each.field for each in found] == ([field] if field else [])
    assert all(fix in each.fix and each.rule == "runtime-limit" for each in found)


def test_a_limit_on_an_absent_field_is_met_by_a_default_or_the_label_of_the_queue() -> None:
    limit = {"field": "spec.activeDeadlineSeconds", "max": 3600}
    runtime = {"limits": [limit], "defaults": {"activeDeadlineSeconds": 600}}
    assert validate_job("sum", BUILTIN, runtime).findings == ()
    queue = {"limits": [{"field": "spec.scheduling.queueName", "allowed": ["small"]}]}
    assert validate_job("sum", BUILTIN, queue, queue_label="small").findings == ()


def test_a_limit_on_a_block_that_a_command_does_not_use_does_not_bind() -> None:
    checkpoint = {"field": "spec.checkpoint.resumeFromJob", "allowed": ["x"]}
    limits = [checkpoint, {"field": "spec.storage.hfHome", "allowed": ["/x"]}]
    spec = {"framework": {"type": "command", "command": ["true"]}, "cluster": BUILTIN["cluster"]}
    assert fields(validate_job("sum", spec, {"limits": limits}).findings) == ["spec.storage.hfHome"]
    assert "spec.checkpoint.resumeFromJob" in fields(validate_job("sum", BUILTIN, {"limits": limits}).findings)


@pytest.mark.parametrize(
    ("maximum", "value"),
    [
        ({"workers": 5}, "6 workers"),
        ({"workers": 6}, None),
        ({"accelerators": 31}, "32 accelerators"),
        ({"accelerators": 32}, None),
        ({"accelerators": 0, "workers": 1}, "6 workers"),
    ],
)
def test_maximums_hold_for_all_worker_groups_together(maximum: dict[str, int], value: str | None) -> None:
    resources = {"cpu": "8", "memory": "64Gi"}
    devices = {"resourceName": "nvidia.com/gpu", "count": 8}
    groups = [
        {"name": "train", "replicas": 4, "resources": resources, "accelerator": devices},
        {"name": "cpu", "replicas": 2, "resources": resources},
    ]
    command = {"framework": {"type": "command", "command": ["true"]}}
    spec = {**command, "cluster": {"image": "registry.example/trainer", "workers": groups}}
    runtime = {"maxPerJob": maximum}
    assert validate_runtime(runtime) == ()
    found = validate_job("sum", spec, runtime).findings
    assert (found[0].value if found else None) == value
    assert all(each.field == "spec.cluster.workers" and "use at most" in each.fix for each in found)


def test_a_maximum_for_a_job_is_not_empty() -> None:
    assert fields(validate_runtime({"maxPerJob": {}})) == ["spec.maxPerJob"]


def test_only_mutable_blocks_may_change() -> None:
    new = {**BUILTIN, "suspend": True, "activeDeadlineSeconds": 9}
    assert validate_change(BUILTIN, new) == ()
    assert fields(validate_change(BUILTIN, merged(BUILTIN, {"training.seed": 1}))) == ["spec.training"]


def test_a_default_that_an_update_adds_is_a_change() -> None:
    old = {**BUILTIN, **workers(), "rewards": [{"name": "exact"}]}
    new = {**BUILTIN, **workers(name="workers"), "rewards": [{"name": "exact", "weight": 1.0}]}
    assert fields(validate_change(old, new)) == ["spec.rewards", "spec.cluster"]


def test_validation_does_not_change_its_input() -> None:
    for index in range(50):
        made = random_manifest(Random(index))
        before = copy.deepcopy(made)
        validate_manifest(made, {"platform": {"defaults": workers()}})
        assert made == before


def test_name_of_a_runtime() -> None:
    assert fields(validate_manifest(manifest({}, RUNTIME_KIND, name="team_a"), {})) == ["metadata.name"]
    assert validate_manifest(manifest({}, RUNTIME_KIND, name="team-a.example"), {}) == ()
