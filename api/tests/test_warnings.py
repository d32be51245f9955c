"""Warnings about valid specs."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, get_args

import pytest
import yaml
from cases import CASES

from rlt_api.blocks.algorithm import Algorithm, Estimator, PolicyLoss
from rlt_api.spec.job_spec import RLTrainingJobSpec
from rlt_api.validation.validate import validate_job
from rlt_api.validation.warnings import ESTIMATORS_THAT_READ, LOSSES_THAT_READ, SELECTIONS_THAT_READ, find_warnings

EXAMPLES = sorted((Path(__file__).parents[2] / "examples").glob("*.yaml"))
STEP = {"name": "data", "command": ["python3", "get.py"]}
FUNCTION = {"name": "mine:function"}
SEPARATE = {"mode": "separate", "workerGroup": "rollout", "staleness": {"maxSteps": 2}}


def warnings(
    algorithm: dict[str, Any] | None = None,
    rollout: dict[str, Any] | None = None,
    training: dict[str, Any] | None = None,
) -> list[str]:
    blocks = {"algorithm": algorithm or {}, "rollout": rollout or {}, "training": training or {}}
    spec = {**blocks, "cluster": {}, "failurePolicy": {"maxRestarts": 0}}
    return list(find_warnings(RLTrainingJobSpec.model_validate(spec)))


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_the_examples_have_no_settings_without_effect(path: Path) -> None:
    jobs = [each for each in yaml.safe_load_all(path.read_text()) if each and each["kind"] == "RLTrainingJob"]
    for job in jobs:
        found = find_warnings(RLTrainingJobSpec.model_validate(job["spec"]))
        assert not [each for each in found if "does not use" in each or "without a correction" in each]


@pytest.mark.parametrize(
    ("path", "storage", "env", "expected"),
    [
        ("Qwen/Qwen3-8B", {}, [], True),
        ("Qwen/Qwen3-8B", {"claimName": "runs"}, [], False),
        ("Qwen/Qwen3-8B", {"modelCache": {"claimName": "models", "readOnly": True}}, [], False),
        ("Qwen/Qwen3-8B", {"hfHome": "/opt/models"}, [], False),
        ("Qwen/Qwen3-8B", {}, [{"name": "HF_HUB_OFFLINE", "value": "1"}], False),
        ("/opt/models/qwen3", {}, [], False),
    ],
)
def test_a_download_that_no_volume_keeps(
    path: str, storage: dict[str, Any], env: list[dict[str, str]], expected: bool
) -> None:
    spec = {"model": {"path": path}, "storage": storage, "cluster": {"env": env}}
    found = list(find_warnings(RLTrainingJobSpec.model_validate(spec)))
    assert any("each pod of each attempt downloads it" in each for each in found) is expected


def test_invalid_jobs_have_warnings_as_well() -> None:
    specs = [spec for case in CASES if (spec := validate_job(case.name, case.spec).spec)]
    found = [list(find_warnings(spec)) for spec in specs]
    assert all(each.startswith("spec.") and each.isprintable() for every in found for each in every)
    assert any(found)


@pytest.mark.parametrize(
    ("algorithm", "expected"),
    [
        (
            {"policyLoss": "gspo", "clipRatioC": 3.0},
            "clipRatioC: 3.0: policyLoss gspo does not use it; it is used",
        ),
        ({"policyLoss": "sapo", "clipRatio": 0.3}, "clipRatio: 0.3: policyLoss sapo does not use it"),
        ({"tauNeg": 1.2}, "tauNeg: 1.2: policyLoss vanilla does not use it; it is used by sapo"),
        ({"clipCovUb": 4.0}, "clipCovUb: 4.0: policyLoss vanilla does not use it; it is used by clip_cov"),
        (
            {"policyLoss": "clip_cov", "klCovRatio": 0.1},
            "klCovRatio: 0.1: policyLoss clip_cov does not use it; it is used by kl_cov",
        ),
        ({"lam": 0.95}, "lam: 0.95: advEstimator grpo does not use it; it is used by gae"),
        ({"advEstimator": "remax", "gamma": 0.99}, "gamma: 0.99: advEstimator remax does not use it"),
        ({"advEstimator": "rloo", "normAdvByStdInGrpo": False}, "normAdvByStdInGrpo: False: advEstimator rloo"),
        ({"klLossCoef": 0, "klLossType": "kl"}, "klLossType: kl: klLossCoef 0 does not use it; remove it"),
        ({"klInReward": {"targetKl": 0.2}}, "klInReward.targetKl: 0.2: type fixed does not use it"),
        (
            {"distillation": {"modelPath": "/t", "topk": 8}},
            "distillation.topk: 8: lossMode k1 does not use it; it is used by forward_kl_topk",
        ),
        (
            {"distillation": {"modelPath": "/t", "logProbMinClamp": -9}},
            "distillation.logProbMinClamp: -9.0: lossMode k1 does not use it; it is used by forward_kl_topk",
        ),
    ],
)
def test_a_setting_that_nothing_reads_is_named(algorithm: dict[str, Any], expected: str) -> None:
    (warning,) = warnings(algorithm)
    assert warning.startswith(f"spec.algorithm.{expected}")


def test_settings_that_are_read_have_no_warning() -> None:
    assert not warnings({"policyLoss": "sapo", "tauNeg": 1.2})
    assert not warnings({"clipRatioC": 3.0, "clipRatioHigh": 0.3, "normAdvByStdInGrpo": False})
    assert not warnings({"policyLossFunction": FUNCTION, "tauNeg": 1.2, "advantageFunction": FUNCTION, "lam": 0.5})
    assert not warnings({"klInReward": {"type": "adaptive", "targetKl": 0.2}})


def test_stale_responses_without_a_correction_are_warned_about() -> None:
    (warning,) = warnings(rollout=SEPARATE)
    assert warning.startswith("spec.rollout.staleness.maxSteps: 2: responses of older weights")
    assert not warnings({"rolloutCorrection": {}}, SEPARATE)


@pytest.mark.parametrize(
    ("correction", "rollout", "expected"),
    [
        (
            {},
            {"topP": 0.9},
            "topP: 0.9: the engine reports the probabilities among the kept tokens alone, and the trainer",
        ),
        ({}, {"topP": 0.9}, "so that the ratio of rolloutCorrection is from 0.9 to 1 where both agree; use topP 1"),
        ({"lowerThreshold": 0.5}, {"topP": 0.9}, "from 0.9 to 1"),
        (
            {},
            {"topK": 50, "topP": 0.9},
            "the ratio of rolloutCorrection is below 1 where both agree; use topP 1 and topK -1",
        ),
        ({"bypassMode": True}, {"topP": 0.9}, "so that the ratio of the loss is from 0.9 to 1 where both agree"),
        ({"rejection": "token_k1", "rejectionThreshold": 1.2}, {"topP": 0.9}, "from 0.9 to 1"),
        ({"rejection": "token_k1", "rejectionThreshold": 1.1}, {"topP": 0.9}, None),  # an error
        ({"rejection": "seq_mean_k2", "rejectionThreshold": 0.006}, {"topP": 0.9}, "from 0.9 to 1"),
        ({"rejection": "seq_max_k3", "rejectionThreshold": 0.005}, {"topP": 0.9}, None),  # an error
        ({"level": "none"}, {"topP": 0.9}, None),
        ({}, {"topP": 1.0, "topK": 0}, None),
        (None, {"topP": 0.9}, None),
    ],
)
def test_weights_of_a_truncated_distribution_are_warned_about(
    correction: dict[str, Any] | None, rollout: dict[str, Any], expected: str | None
) -> None:
    found = warnings({} if correction is None else {"rolloutCorrection": correction}, rollout)
    assert len(found) == (expected is not None)
    assert not expected or expected in found[0]


def test_other_losses_than_the_clipped_ones_have_a_gradient_in_bypass_mode() -> None:
    algorithm = {"rolloutCorrection": {"bypassMode": True}, "policyLoss": "cispo"}
    (found,) = warnings(algorithm, {"topP": 0.5})
    assert "the ratio of the loss is from 0.5 to 1" in found
    assert not warnings({**algorithm, "policyLoss": "vanilla"}, {"topP": 0.5})  # an error


def test_kl_cov_needs_a_second_optimizer_step() -> None:
    algorithm = {"policyLoss": "kl_cov"}
    one = {"trainBatchSize": 8, "ppoMiniBatchSize": 8}
    (found,) = warnings(algorithm, training=one)
    assert "adds no distance from the old policy" in found
    assert not warnings(algorithm, training={**one, "ppoMiniBatchSize": 4})
    assert not warnings(algorithm, training={**one, "ppoEpochs": 2})


HUB = {"data": {"hub": {"name": "openai/gsm8k"}}, "rewards": [{"name": "gsm8k"}]}
MODEL = {"path": "Qwen/Qwen3-0.6B"}
GPUS = {"resources": {"cpu": "500m", "memory": "64Gi"}, "accelerator": {"resourceName": "nvidia.com/gpu", "count": 8}}
GPUS_64 = {**GPUS, "resources": {"cpu": "64", "memory": "512Gi"}}
FILES = {"data": {"files": ["/data/a.parquet"]}}
MOUNT = {"spec": {"containers": [{"name": "ray-worker", "volumeMounts": [{"name": "d", "mountPath": "/data"}]}]}}


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        (
            {"model": MODEL, "training": {"learningRate": 1.0}, "cluster": {"workers": [GPUS_64]}},
            "spec.training.learningRate: 1: is much higher",
        ),
        ({"model": MODEL, "training": {"learningRate": 1e-5}, "cluster": {"workers": [GPUS_64]}}, None),
        (
            {"model": MODEL, "cluster": {"workers": [{}]}},
            "no accelerators, and the job trains on CPUs; add accelerator",
        ),
        ({"rollout": {"gpuMemoryUtilization": 0.5}, "cluster": {"workers": [{"pool": "p"}]}}, "0.5: pool p has no acc"),
        (
            {"model": {"path": "Qwen/Qwen3-8B-AWQ"}, "cluster": {"workers": [GPUS_64]}},
            "the weights are quantized (AWQ)",
        ),
        ({"rewards": [{"name": "math", "weight": 0}]}, "spec.rewards[0].weight: 0: the score has no effect"),
        (
            {"failurePolicy": {"progressDeadlineSeconds": 60}, "cluster": {"workers": [GPUS_64]}},
            "use 300 or more, or 0",
        ),
        ({"cluster": {"env": [{"name": "A", "value": "$HOME/x"}]}}, "$HOME is not replaced; use $(HOME)"),
        (
            {"cluster": {"env": [{"name": "HF_HOME", "value": "/root/.cache"}]}},
            "the pods run as user 1000, who may not",
        ),
        ({"cluster": {"env": [{"name": "TRANSFORMERS_CACHE", "value": "/d"}]}}, "transformers 5 does not read it"),
        (
            {
                "cluster": {
                    "workers": [GPUS_64],
                    "env": [{"name": f"NCCL_{name}_DISABLE", "value": "1"} for name in ("P2P", "SHM")],
                }
            },
            "P2P and SHM are both off",
        ),
        (
            {"rollout": {"multiTurn": {"tools": [{"name": "python"}], "maxTurns": 1}}},
            "maxTurns: 1: the conversation ends",
        ),
        (
            {"rollout": {"multiTurn": {"environment": "calculator", "format": "hermes"}}},
            "has an effect only with tools",
        ),
        ({"rollout": {"multiTurn": {"openenv": {"url": "http://echo:8000"}, "maxToolResponseLength": 100}}}, None),
        (
            {"rollout": {"multiTurn": {"openenv": {"url": "ws://localhost:8000"}}}},
            "openenv.url: ws://localhost:8000: localhost is the pod itself",
        ),
        (
            {"rewards": [{"judge": {"baseUrl": "http://localhost:8000/v1", "model": "m"}}]},
            "localhost is the pod itself",
        ),
        ({"rewards": [{"judge": {"baseUrl": "http://judge:8000", "model": "m"}}]}, "use http://judge:8000/v1"),
        ({"model": {"fromSeed": {}}, "training": {"learningRate": 0.01}}, None),
        ({"cluster": {"workers": [GPUS]}}, "workers[0].resources.cpu: 500m: is less than one CPU for each of the 8"),
        (
            {"training": {"totalSteps": 10}, "evaluation": [{"name": "test", "every": 11}]},
            "spec.evaluation[0].every: 11: is above training.totalSteps 10",
        ),
        ({"training": {"totalSteps": 10}, "evaluation": [{"name": "test", "every": 10}]}, None),
        (FILES, "spec.data.files[0]: /data/a.parquet: is on no volume of the job (/mnt/rlt)"),
        ({**FILES, "storage": {"mountPath": "/data"}}, None),
        ({**FILES, "cluster": {"workers": [{"podTemplate": MOUNT}]}}, None),
        ({"model": {"path": "/models/a"}}, "spec.model.path: /models/a: is on no volume"),
        (HUB, "spec.rewards[0].name: gsm8k: scores 0 without '#### '"),
        ({**HUB, "rewards": [{"name": "gsm8k", "options": {"method": "flexible"}}]}, None),
        ({**HUB, "rewards": [{"name": "math"}]}, None),
    ],
)
def test_an_unlikely_value_is_warned_about(spec: dict[str, Any], expected: str | None) -> None:
    warnings = find_warnings(RLTrainingJobSpec.model_validate(spec))
    found = [each for each in warnings if not re.search("memory|downloads it", each)]
    assert len(found) == (expected is not None), found
    assert not expected or expected in found[0]


COMMAND = {"type": "command", "command": ["python3", "a.py"]}


def variable(name: str, value: str = "1", **spec: Any) -> dict[str, Any]:
    return {"cluster": {"env": [{"name": name, "value": value}]}, **spec}


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        (variable("VLLM_ATTENTION_BACKEND", "FLASH_ATTN"), "set spec.rollout.engineKwargs.attention_backend"),
        (
            variable("VLLM_USE_DEEP_GEMM_MOE"),
            "VLLM_USE_DEEP_GEMM_MOE: vLLM 0.32.0 does not have this variable; did you",
        ),
        (
            variable("VLLM_USE_V1"),
            "spec.cluster.env[0].name: VLLM_USE_V1: vLLM 0.32.0 does not have this variable; rem",
        ),
        (variable("VLLM_LOGGING_LEVEL"), None),
        (variable("VLLM_ATTENTION_BACKEND", framework=COMMAND), None),
        (variable("NCCL_DEBUG", "trace", framework=COMMAND), "spec.cluster.env[0].value: trace: prints every call"),
        (variable("NCCL_DEBUG", "INFO"), None),
        ({"rollout": {"gpuMemoryUtilization": 0.95}, "cluster": {"workers": [GPUS]}}, "leaves 5% of the device"),
        ({"rollout": {"gpuMemoryUtilization": 0.9}, "cluster": {"workers": [GPUS]}}, None),
        ({"rollout": {"gpuMemoryUtilization": 0.95}}, "no accelerators, and the job trains on CPUs"),
        (
            {"preflight": {"level": "full"}, "framework": COMMAND},
            "spec.preflight.level: full: the program is not a known",
        ),
        ({"preflight": {"level": "full", "command": ["./smoke.sh"]}, "framework": COMMAND}, None),
        ({"preflight": {"command": ["./smoke.sh"]}, "framework": COMMAND}, "spec.preflight.command: given: it is"),
        ({"preflight": {"level": "full"}}, None),
        (
            {"framework": {"prepare": [STEP]}},
            "spec.framework.prepare: given: without a PVC its files",
        ),
        ({"framework": {"prepare": [STEP]}, "storage": {"claimName": "data"}}, None),
        (
            {"security": {"ptrace": True}},
            "spec.security.ptrace: true: Kubernetes gives added capabilities to root only",
        ),
        ({"security": {"ptrace": True, "privileged": True}}, None),
        (
            {"observability": {"debugger": "ray"}, "cluster": {"rayVersion": "2.9.0"}},
            "spec.observability.debugger: ray: spec.cluster.rayVersion is 2.9.0",
        ),
        ({"observability": {"debugger": "ray"}, "cluster": {"rayVersion": "2.39.0"}}, None),
        ({"observability": {"debugger": "legacy"}, "cluster": {"rayVersion": "2.9.0"}}, None),
    ],
)
def test_a_setting_without_effect_is_warned_about(spec: dict[str, Any], expected: str | None) -> None:
    found = list(find_warnings(RLTrainingJobSpec.model_validate(spec)))
    found = [each for each in found if "was not validated" not in each and "resources.cpu" not in each]
    assert len(found) == (expected is not None), found
    assert not expected or expected in found[0]


def test_the_tables_name_fields_and_choices() -> None:
    assert {*LOSSES_THAT_READ, *SELECTIONS_THAT_READ, *ESTIMATORS_THAT_READ} <= Algorithm.model_fields.keys()
    assert {each for names in LOSSES_THAT_READ.values() for each in names} <= set(get_args(PolicyLoss))
    assert {each for names in ESTIMATORS_THAT_READ.values() for each in names} <= set(get_args(Estimator))
