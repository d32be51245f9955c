"""The memory of accelerators: what is rejected, with which sum and fix, and what is not validated."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from job_specs import BUILTIN, QWEN_7B, gpus, merged, pairs

from rlt_api.findings.finding import Finding
from rlt_api.rules.device_memory import list_moments
from rlt_api.rules.memory_parts import GIB
from rlt_api.rules.model_shape import KNOWN
from rlt_api.rules.model_size import model_size
from rlt_api.rules.weight_sync_buffers import BUCKET_BYTES, weight_sync_bytes
from rlt_api.spec.job_spec import RLTrainingJobSpec
from rlt_api.validation.validate import validate_job
from rlt_api.validation.warnings import find_warnings

README_JOB = {
    "model": {"path": "/mnt/rlt/models/Qwen3-0.6B", "fromSeed": None},
    "data": {"preset": "gsm8k", "path": "/mnt/rlt/gsm8k", "maxPromptLength": 512, "maxResponseLength": 512},
    "algorithm": {"advEstimator": "grpo", "klLossCoef": 0.001},
    "training": {"totalSteps": 200, "trainBatchSize": 256, "ppoMiniBatchSize": 64},
    "rollout": {"responsesPerPrompt": 8, "gpuMemoryUtilization": 0.5},
    **gpus(8, 2),
}
EXAMPLES = Path(__file__).parents[2] / "examples"
OVERHEAD = "4 GiB for CUDA, NCCL and CUDA graphs of trainer and engine"
OFFLOAD = {"paramOffload": True, "optimizerOffload": True}


def find(change: Any) -> tuple[Finding, ...]:
    return validate_job("job", merged(BUILTIN, change)).findings


KEPT_REFERENCE = {"training.reference": {"paramOffload": False}}


def test_the_job_of_the_readme_fits() -> None:
    assert find(README_JOB) == ()


def test_it_does_not_fit_with_the_defaults_of_cpus() -> None:
    """32 rows of 1,024 tokens, 72 KB saved for each token and layer: 61 GiB, next to vLLM's 40 GiB."""
    cpu = {
        "model.enableGradientCheckpointing": False,
        "model.useRemovePadding": False,
        "rollout.freeCacheEngine": False,
        "training.useDynamicBsz": False,
    }
    (finding,) = find({**README_JOB, **cpu})
    assert finding.rule == "accelerator-memory"
    assert "GiB activations of 32768 tokens" in finding.message
    assert "40 GiB for vLLM" in finding.message
    assert "during the update" in finding.message


@pytest.mark.parametrize(
    ("path", "memory", "fits"),
    [("Qwen/Qwen2.5-72B", "24Gi", False), ("Qwen/Qwen2.5-7B", "24Gi", False), ("Qwen/Qwen2.5-7B", "80Gi", True)],
)
def test_lora_needs_the_frozen_weights_and_the_engine(path: str, memory: str, fits: bool) -> None:
    """In bfloat16: twice 12.4 GiB for 7B, of which the trainer and the engine have one each."""
    model = {"path": path, "fromSeed": None, "lora": {"rank": 8}}
    assert (find({"model": model, **gpus(1, memory=memory)}) == ()) is fits


@pytest.mark.parametrize(("memory", "fits"), [("48Gi", False), ("141Gi", True)])
def test_a_mixture_of_experts_is_in_memory_completely(memory: str, fits: bool) -> None:
    """30e9 parameters on 8 devices, and the experts of one layer: 0.6e9 weights and gradients in bfloat16."""
    model = {"path": "Qwen/Qwen3-30B-A3B", "fromSeed": None}
    rollout = {**README_JOB["rollout"], "tensorParallelSize": 4}
    found = find({**README_JOB, "model": model, "rollout": rollout, **gpus(8, memory=memory)})
    assert [finding.rule for finding in found] == ([] if fits else ["accelerator-memory"])
    assert all("+ 2.25 GiB gathered experts of a layer +" in finding.message for finding in found)


@pytest.mark.parametrize(("size", "gathered"), [(1, "2.25 GiB"), (8, "0.281 GiB")])
def test_expert_parallelism_divides_the_gathered_experts(size: int, gathered: str) -> None:
    model = {"path": "Qwen/Qwen3-30B-A3B", "fromSeed": None}
    changes = {"model": model, "rollout.tensorParallelSize": 4, "training.expertParallelSize": size}
    (finding,) = find({**README_JOB, **changes, **gpus(8, memory="48Gi")})
    assert f"+ {gathered} gathered experts of a layer +" in finding.message


@pytest.mark.parametrize(("changes", "fits"), [({}, False), ({"rollout.quantization": "fp8"}, True)])
def test_quantized_weights_have_one_byte(changes: dict[str, Any], fits: bool) -> None:
    """Of at least 6.65e9 parameters, the 6.53e9 of the linear layers have one byte: 12.4 GiB become 6.31 GiB."""
    job = {"model": QWEN_7B, "rollout.gpuMemoryUtilization": 0.15, "training.fsdp": OFFLOAD, **gpus(8), **changes}
    found = [each for each in find(job) if each.rule == "engine-memory"]
    assert (found == []) is fits
    assert all("the engine's bfloat16 weights need" in each.message for each in found)
    (small,) = find({**job, "rollout.quantization": "fp8", "rollout.gpuMemoryUtilization": 0.05})
    assert "the engine's fp8 and bfloat16 weights need 6.31 GiB" in small.message


@pytest.mark.parametrize("offload", [{}, OFFLOAD])
def test_offload_does_not_make_room_for_the_update(offload: dict[str, bool]) -> None:
    """Weights, gradients and moments of 7B need 99 GiB during the optimizer step."""
    (finding,) = find({"model": QWEN_7B, "training.fsdp": offload, **gpus(1)})
    assert "during the update" in finding.message
    assert "Offload" not in finding.fix


def test_offload_makes_room_for_the_engine() -> None:
    job = {"model": QWEN_7B, "algorithm.klLossCoef": 0, "rollout.gpuMemoryUtilization": 0.85, **gpus(4)}
    (finding,) = find(job)
    assert "during the sync" in finding.message
    assert find({**job, "training.fsdp": OFFLOAD}) == ()


def test_muon_has_one_moment_of_the_layers_matrices() -> None:
    """At least 6.65 B parameters, of which 6.53 B are in the layers: 8 * 6.65 - 4 * 6.53 = 27.1 GB."""
    job = {"model": QWEN_7B, "algorithm.klLossCoef": 0, **gpus(1)}
    (adamw,) = find(job)
    (muon,) = find({**job, "training.optimizer": "muon"})
    assert "49.5 GiB AdamW's float32 moments" in adamw.message
    assert "25.2 GiB float32 moments of Muon and AdamW" in muon.message


def test_moments_of_8_bits_need_a_quarter_and_their_scales() -> None:
    """At least 6.65 B parameters: 2 * (1 + 4 / 128) * 6.65 = 13.7 GB."""
    job = {"model": QWEN_7B, "algorithm.klLossCoef": 0, "rollout.freeCacheEngine": False, **gpus(1)}
    (finding,) = find({**job, "training.optimizer": "adamw_8bit"})
    assert "12.8 GiB AdamW's 8-bit moments" in finding.message


def test_a_kl_term_in_the_reward_needs_a_reference_too() -> None:
    job = {"model": QWEN_7B, **gpus(1)}
    (without,) = find(job)
    (offloaded,) = find({**job, "algorithm.klInReward": {}})
    (with_term,) = find({**job, "algorithm.klInReward": {}, **KEPT_REFERENCE})
    assert "reference" not in without.message + offloaded.message
    assert "bfloat16 reference weights" in with_term.message


def test_pairs_need_a_reference_and_no_engine() -> None:
    """7B on one device: 4 + 8 + 4 bytes of each weight, and 2 of the reference. The engine's 40 GiB are not counted."""
    (finding,) = find({**pairs(), "model": QWEN_7B, **KEPT_REFERENCE, **gpus(1)})
    assert finding.rule == "accelerator-memory"
    assert "GiB bfloat16 reference weights" in finding.message
    assert "vLLM" not in finding.message
    assert find({**pairs(), "model": QWEN_7B, **KEPT_REFERENCE, **gpus(2)}) == ()


def test_a_micro_batch_has_whole_pairs() -> None:
    job = {**pairs(), "model": QWEN_7B, "training.ppoMicroBatchSizePerDevice": 1, **gpus(1)}
    (finding,) = find(job)
    assert "activations of 2048 tokens" in finding.message
    tokens = {"training.useDynamicBsz": True, "training.ppoMaxTokenLenPerDevice": 2047}
    found = [each for each in find({**job, **tokens, **gpus(2)}) if each.rule == "dynamic-batch"]
    assert [each.fix for each in found] == ["use 2048 or more"]


def test_a_teacher_is_sharded_over_the_train_workers() -> None:
    """At least 0.95 * 72e9 parameters in bfloat16 on one device."""
    teacher = {"modelPath": "Qwen/Qwen2.5-72B", "paramOffload": True}
    (finding,) = find(
        {
            "model": QWEN_7B,
            "algorithm": {"klLossCoef": 0, "distillation": {"modelPath": teacher["modelPath"]}},
            **gpus(1),
        }
    )
    assert "127 GiB bfloat16 weights of the teacher" in finding.message
    (offloaded,) = find({"model": QWEN_7B, "algorithm": {"klLossCoef": 0, "distillation": teacher}, **gpus(1)})
    assert "teacher" not in offloaded.message


def test_the_tokens_of_a_teacher_are_counted_on_the_device_and_in_the_head() -> None:
    distillation = {"modelPath": "/mnt/teacher", "lossMode": "forward_kl_topk", "topk": 1024}
    job = {**README_JOB, "algorithm": {"klLossCoef": 0, "distillation": distillation}}
    (head,) = find(job)
    assert head.field == "spec.cluster.head.resources.memory"
    expected = "16 GiB for the teacher's log-probabilities: 2048 responses x 512 tokens x distillation.topk 1024"
    assert expected in head.message
    assert head.fix == "use 17Gi or more with cpu: 1, or a lower topk"
    edited = {**job, "cluster.head": {"resources": {"cpu": "1", "memory": "17Gi"}}}
    assert find(edited) == ()
    small = {**edited, **gpus(8, 2, memory="8Gi")}
    (device,) = [each for each in find(small) if each.rule == "accelerator-memory"]
    assert "GiB log-probabilities of 1024 tokens of the teacher" in device.message


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"model": QWEN_7B, "storage": {"claimName": "runs"}, **gpus()}, None),
        ({"model": {"path": "/mnt/rlt/mine", "fromSeed": None}, **gpus(1)}, "spec.model.parameters"),
        ({}, None),
    ],
)
def test_a_job_whose_memory_is_not_validated_has_a_warning(change: Any, field: str | None) -> None:
    warnings = list(find_warnings(_resolve(change)))
    assert [each.partition(":")[0] for each in warnings] == ([field] if field else [])


def test_an_accelerator_of_unknown_memory_has_a_warning() -> None:
    job = merged(BUILTIN, {"model": QWEN_7B, "storage": {"claimName": "runs"}, **gpus(1)})
    del job["cluster"]["workers"][0]["accelerator"]["memory"]
    assert validate_job("job", job).findings == ()
    (warning,) = find_warnings(RLTrainingJobSpec.model_validate(job))
    assert warning.startswith("spec.cluster.workers[0].accelerator.memory: none: ")
    assert "80Gi" in warning


def sums(spec: RLTrainingJobSpec) -> list[float]:
    """Return the GiB at each moment, on a device of 80 GiB, without the overhead of the two processes."""
    assert spec.model is not None
    size = model_size(spec.model)
    assert size is not None
    moments = list_moments(spec, spec.model, size, 80 * GIB)
    assert all(str(moment.trainer[-1]) == OVERHEAD for moment in moments)
    return [round(moment.bytes / GIB - 4, 1) for moment in moments]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("11-gsm8k-8-gpus", [3.8, 2.7, 40.8]),
        ("13-infiniband", [14.4, 22.1, 52.6]),
        ("14-sixteen-nodes", [30.5, 30.9, 50.6]),
    ],
)
def test_the_phases_of_a_step_do_not_add_up(name: str, expected: list[float]) -> None:
    """The update without the engine, the sync with its weights and buffers, and then with its whole share."""
    spec = yaml.safe_load((EXAMPLES / f"{name}.yaml").read_text())["spec"]
    found = validate_job("job", spec)
    assert found.findings == ()
    assert found.spec is not None
    assert sums(found.spec) == expected


LONG_8B = {
    "model": {"path": "Qwen/Qwen3-8B", "fromSeed": None},
    "data": {"preset": "gsm8k", "path": "/mnt/rlt/gsm8k", "maxPromptLength": 1024, "maxResponseLength": 8192},
    "algorithm.klLossCoef": 0,
    "rollout.responsesPerPrompt": 16,
    "rollout.gpuMemoryUtilization": 0.6,
    "training.ppoMaxTokenLenPerDevice": 32_768,
    **gpus(8),
}


def test_a_sleeping_engine_makes_room_for_long_responses() -> None:
    """Each phase fits. With the engine awake, an update needs 37.3 + 48 + 4 = 89.3 GiB."""
    assert sums(_resolve(LONG_8B)) == [37.3, 30.6, 58.6]
    assert find(LONG_8B) == ()
    (awake,) = find({**LONG_8B, "rollout.freeCacheEngine": False})
    assert "48 GiB for vLLM (gpuMemoryUtilization)" in awake.message
    assert f"+ {OVERHEAD} = 89.3 GiB during the update" in awake.message
    assert awake.fix == "use 0.45 or less"
    assert find({**LONG_8B, "rollout.freeCacheEngine": False, "rollout.gpuMemoryUtilization": 0.45}) == ()


def test_a_sync_needs_the_weights_twice_and_its_buffers() -> None:
    """Merged adapters, whose update fits. The KV cache is not allocated yet. Adapters alone need no buffers."""
    model = {**LONG_8B["model"], "lora": {"rank": 8}}
    job = {"model": model, "rollout.gpuMemoryUtilization": 0.45, **gpus(1, memory="36Gi")}
    (finding,) = find(job)
    weights = "14.2 GiB bfloat16 weights of the engine + 14.2 GiB frozen bfloat16 weights"
    assert f"{weights} + 5.8 GiB buffers of the weight sync + {OVERHEAD} = 38.1 GiB during the sync" in finding.message
    assert find({**job, "model": {**model, "lora": {"rank": 8, "syncAdapters": True}}}) == ()


def test_too_many_tokens_have_the_number_that_fits() -> None:
    """32 GiB hold the activations of 27,648 tokens of 0.5 MB each, beside 18.4 GiB of other parts."""
    job = {**LONG_8B, **gpus(16, memory="32Gi"), "rollout.tensorParallelSize": 4, "rollout.gpuMemoryUtilization": 0.4}
    (finding,) = find(job)
    assert "15.8 GiB activations of 32768 tokens" in finding.message
    assert finding.fix == "use training.ppoMaxTokenLenPerDevice: 27648 or less"
    assert find({**job, "training.ppoMaxTokenLenPerDevice": 27_648}) == ()


@pytest.mark.parametrize(
    ("name", "devices", "gib"),
    [("Qwen3-30B-A3B", 1, 5.41), ("Qwen3-30B-A3B", 8, 4.43), ("Qwen3-8B", 1, 5.8), ("Qwen3-0.6B", 1, 0.87)],
)
def test_a_sync_needs_buffers_for_a_layer_of_experts_or_the_embeddings(name: str, devices: int, gib: float) -> None:
    """Qwen3-30B-A3B: 1.246 GB gathered, 2 x 0.805 of copies, 1.208 in buckets, 1.208 / devices in the engine, and two
    buckets. Qwen3-8B has tables of 1.245 GB: both gathered, a copy, a bucket, and the engine's."""
    size = weight_sync_bytes(KNOWN[name], 2, shared=True, tensor_parallel_size=devices)
    assert size / GIB == pytest.approx(gib, abs=0.005)


@pytest.mark.parametrize("name", KNOWN)
def test_the_layers_without_experts_need_less_than_the_embeddings(name: str) -> None:
    """Gathered, with a copy of one of three equal weights, gate and up in buckets and the engine, and two buckets."""
    shape = KNOWN[name]
    if shape.experts == 1:
        layer = 2 * (shape.layer_parameters + (1 + 2 + 2) * shape.hidden * shape.intermediate) + 2 * BUCKET_BYTES
        assert layer < weight_sync_bytes(shape, 2, shared=True)


LONG = {"data": {"preset": "gsm8k", "path": "/mnt/rlt/gsm8k", "maxPromptLength": 1024, "maxResponseLength": 8192}}


@pytest.mark.parametrize(
    ("settings", "warned"),
    [
        ({}, False),
        ({"training.useDynamicBsz": False}, True),
        ({"training.ppoMicroBatchSizePerDevice": 4}, False),
    ],
)
def test_packed_micro_batches_of_long_responses_have_a_warning(settings: dict[str, Any], warned: bool) -> None:
    """64 sequences of 9,216 tokens. They are rejected only if they are padded: then one long response is enough."""
    job = {
        "model": QWEN_7B,
        "storage": {"claimName": "runs"},
        "rollout.responsesPerPrompt": 16,
        **LONG,
        **gpus(8),
        **settings,
    }
    assert find(job) == ()
    warnings = list(find_warnings(_resolve(job)))
    assert [each.partition(":")[0] for each in warnings] == ["spec.training.ppoMicroBatchSizePerDevice"] * warned
    padded = find({"training.useDynamicBsz": False, **job, "model.useRemovePadding": False})
    assert bool(padded) == ("training.ppoMicroBatchSizePerDevice" not in settings)


def _resolve(change: Any) -> RLTrainingJobSpec:
    spec = validate_job("job", merged(BUILTIN, change)).spec
    assert spec is not None
    return spec
