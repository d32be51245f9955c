"""The validation rules: each finding names field, value and fix; a valid spec has none."""

from __future__ import annotations

from typing import Any

import pytest
from cases import CASES, Case
from job_specs import (
    BUILTIN,
    COMMAND,
    QWEN_7B,
    Json,
    env,
    evaluated,
    files,
    gpus,
    merged,
    openenv,
    separate_engines,
    suite,
)

from rlt_api.rules.environment import find_meant_name, known_names
from rlt_api.rules.layout import count_train_workers
from rlt_api.spec.job_spec import RLTrainingJobSpec
from rlt_api.validation.rules import list_all_rules
from rlt_api.validation.validate import validate_job


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_invalid_spec_has_a_finding(case: Case) -> None:
    found = [each for each in validate_job(case.name, case.spec).findings if each.rule == case.rule]
    assert [each.field for each in found] == [case.at]
    assert case.fix in found[0].fix
    assert all((each.value, each.message, each.fix) and str(each).isprintable() for each in found)


def test_every_rule_has_a_case() -> None:
    specs = [validate_job(case.name, case.spec).spec for case in CASES]
    unused = [rule.__name__ for rule in list_all_rules() if not any(list(rule(spec)) for spec in specs if spec)]
    assert unused == []


VALID: list[Json] = [
    {},
    {"storage": {"claimName": "c", "mountPath": "/data"}, "checkpoint": {"saveFreq": 5}},
    {"training": {"trainBatchSize": 96, "ppoMiniBatchSize": 32, "ppoMicroBatchSizePerDevice": 1000}, **gpus(8, 4)},
    {"training": {"trainBatchSize": 128}, "model": QWEN_7B, **gpus(8, 2)},
    separate_engines(tensor_parallel_size=16, replicas=4),
    {"model": {"path": "mistralai/Mixtral-8x7B-v0.1", "fromSeed": None}, **gpus(1)},
    {"model": {"path": "/mnt/models/mine", "fromSeed": None}, **gpus(1)},
    env("NCCL_DEBUG", "NCCL_A_FUTURE_VARIABLE", "MY_NCCL_DEBUG", "TORCH_NCCL_TRACE_BUFFER_SIZE", "HF_TOKEN", "NCL"),
    env("VLLM_LOGGING_LEVEL", "RAY_DEBUG"),
]


IMAGES = (
    "trainer",
    "localhost:5000/trainer",
    "[::1]:5000/trainer:1",
    "nvcr.io/nvidia/pytorch:25.01-py3",
    "rocm/verl:verl-0.4.1.post0_ubuntu22.04_rocm6.3.4-numa-patch_vllm0.8.5_sglang0.4.6.post4",
    f"ghcr.io/a/b__c/d-e.f:v1.0_X@sha256:{'0' * 64}",
)
MODELS = ("gpt2", "Qwen/Qwen2.5-7B-Instruct", "deepseek-ai/DeepSeek-R1-Distill-Qwen-1.5B", "/mnt/models/My Model@1")
VALID += [{"cluster.image": image} for image in IMAGES]
VALID += [{"model": {"path": path, "fromSeed": None}, **gpus(8)} for path in MODELS]
VALID += [
    {**files("/mnt/rlt/a.parquet", "/mnt/rlt/b.jsonl", "/mnt/rlt/c.json")},
    {**files("/mnt/rlt/a.parquet"), **suite(data={"files": ["/mnt/rlt/b.parquet"]})},
    {"rollout.multiTurn.environment": "mine.games:Chess"},
    {"rollout.multiTurn": {"agent": {"name": "mine:solve"}, "sandbox": {}}},
    {"rollout.multiTurn": {"environment": "calculator", "sandbox": {}}, "rewards": [{"function": {"name": "a:score"}}]},
    {"rollout.multiTurn": {"agent": {"command": ["mini"], "rewardFile": "reward.txt"}, "sandbox": {}}},
    {**openenv(actionPattern="(?s)<move>(.*?)</move>"), **files("/mnt/rlt/a.parquet"), "rewards": []},
    evaluated({}),
    evaluated({"steps": [0]}, **gpus(8), model=QWEN_7B),
    evaluated({"checkpoints": "/mnt/rlt/runs/a/checkpoints", "steps": [0, 10, "latest"]}),
    {"storage": {"claimName": "c", "mountPath": "/tmp/runs"}},
    {"publish": [{"hub": "lab/math-grpo_1.5", "public": True}, {"bucket": "s3://models/math", "secretName": "s3"}]},
    {
        "publish": [{"hub": "lab/math"}],
        "storage.modelCache": {"claimName": "c", "readOnly": True},
        "cluster.env": [{"name": "HF_HUB_OFFLINE", "value": "0"}],
    },
    {"publish": [{"bucket": "s3://runs/a/models/math"}], "storage.bucket": "s3://runs/a"},
    {"publish": [{"registry": "oci://registry.lab:5000/a/math__x-1.5:v1"}, {"registry": "oci://localhost:5000/a"}]},
]


@pytest.mark.parametrize("change", VALID)
def test_valid_spec_has_no_finding(change: Json) -> None:
    assert validate_job("sum", merged(BUILTIN, change)).findings == ()


def test_trainer_rules_do_not_apply_to_a_command() -> None:
    assert validate_job("sum", COMMAND).findings == ()


def test_known_variables_are_not_reported_as_misspelled() -> None:
    assert len(known_names()) > 500
    assert [name for name in known_names() if find_meant_name(name)] == []


@pytest.mark.parametrize("name", ["a" * 41, "1st", "a.b", "-a", "a-", "A", "ä", ""])
def test_names_that_kuberay_cannot_use_are_rejected(name: str) -> None:
    found = validate_job(name, BUILTIN).findings
    assert {each.field for each in found} == {"metadata.name"}
    assert not validate_job(found[-1].fix.removeprefix("use "), BUILTIN).findings


def test_memory_finding_shows_the_sum() -> None:
    reference = {"algorithm.klLossCoef": 0.01, "training.reference": {"paramOffload": False}}
    spec = merged(BUILTIN, {"model": QWEN_7B, **reference, **gpus(1)})
    (finding,) = validate_job("sum", spec).findings
    for part in (
        "24.8 GiB float32 weights",
        "49.5 GiB AdamW's",
        "12.4 GiB bfloat16 reference weights",
        "GiB activations of 16384 tokens",
        "during the update",
        "more than its 80 GiB",
        "6.65B",
    ):
        assert part in finding.message


def test_train_workers_are_accelerators_or_pods() -> None:
    def group(change: Any) -> Any:
        return RLTrainingJobSpec.model_validate(merged(BUILTIN, change)).cluster.workers[0]

    assert count_train_workers(group({})) == 2
    assert count_train_workers(group(gpus(8, 2))) == 16
