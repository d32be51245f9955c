"""A small job of verl 0.9.1 that trains on a CPU, for the tests that run it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rlt_api.blocks.model import Model, SeededModel
from rlt_trainer.data.byte_tokenizer import EOS
from rlt_trainer.data.gsm8k import build_gsm8k_rows
from rlt_trainer.data.preset_files import write_parquet
from rlt_trainer.policy.model_files import prepare_model_files

TINY = {"seed": 1, "hiddenSize": 64, "intermediateSize": 128, "numHiddenLayers": 2, "numAttentionHeads": 2}
SCORING = """
def compute_score(data_source, solution_str, ground_truth, extra_info=None):
    return len(set(solution_str)) / max(1, len(solution_str))
"""
"""A reward that differs between the responses of a model with random weights, so that there is a gradient."""
ON_CPU = (
    "+actor_rollout_ref.model.override_config.attn_implementation=sdpa",
    "++actor_rollout_ref.rollout.enable_sleep_mode=false",
    "+ray_kwargs.ray_init.num_gpus=1",
)
"""What verl needs on a CPU (docs/frameworks/verl.md)."""
SMALL = (
    "actor_rollout_ref.rollout.agent.num_workers=1",
    "actor_rollout_ref.rollout.checkpoint_engine.update_weights_bucket_megabytes=16",
    "++actor_rollout_ref.rollout.engine_kwargs.vllm.distributed_executor_backend=uni",
    "data.dataloader_num_workers=0",
    "ray_kwargs.ray_init.num_cpus=8",
    "+ray_kwargs.ray_init.include_dashboard=false",
    "+ray_kwargs.ray_init.object_store_memory=100000000",
    "reward.num_workers=1",
    "transfer_queue.backend.SimpleStorage.num_data_storage_units=1",
)
"""Fewer processes and less memory than verl's defaults. num_cpus counts Ray's actors, not threads."""
ON_POLICY = "actor_rollout_ref.rollout.calculate_log_probs=true"
"""verl compares vLLM's probabilities of the sampled tokens with the trainer's."""
VARIABLES = {
    "VERL_USE_EXTERNAL_MODULES": "verl_cpu",
    "VERL_PLATFORM": "cpu",
    "VERL_ENGINE_DEVICE": "cuda",
    "HF_HUB_OFFLINE": "1",
    "OMP_NUM_THREADS": "1",
    "RAY_prestart_worker_first_driver": "0",
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",  # the worker is in the process of the scheduler
    "VLLM_NO_USAGE_STATS": "1",
}


def write_model(target: Path) -> Path:
    """Write a model with a tokenizer in which the end of a message has Qwen's name, as verl requires for qwen3."""
    folder = Path(prepare_model_files(Model(from_seed=SeededModel.model_validate(TINY)), target))
    for file in (folder / "tokenizer.json", folder / "tokenizer_config.json"):
        file.write_text(file.read_text().replace(EOS, "<|im_end|>"))
    return folder


def build_manifest(model: Path, folder: Path, steps: int) -> dict[str, Any]:
    """Build a job of GRPO on one device, and write its data and its reward to the folder."""
    questions = [{"question": f"What is {n} + {n}?", "answer": f"#### {2 * n}"} for n in range(16)]
    rows = build_gsm8k_rows([(f"row {number}", row) for number, row in enumerate(questions)], "train")
    write_parquet(rows, folder / "train.parquet")
    (folder / "scoring.py").write_text(SCORING)
    group = {"replicas": 1, "resources": {"cpu": "2", "memory": "8Gi", "sharedMemory": "1Gi"}}
    overrides = [*ON_CPU, *SMALL, ON_POLICY, f"+ray_kwargs.ray_init._temp_dir={folder}/ray"]
    spec = {
        "framework": {"type": "verl", "overrides": overrides},
        "model": {"path": str(model), "dtype": "float32", "useRemovePadding": False},
        "data": {
            "files": [f"{folder}/train.parquet"],
            "maxPromptLength": 128,
            "maxResponseLength": 16,
            "overlongPrompts": "error",
        },
        "rewards": [{"function": {"name": "scoring:compute_score"}}],
        "algorithm": {"advEstimator": "grpo", "klLossCoef": 0},
        "training": {
            "totalSteps": steps,
            "trainBatchSize": 2,
            "learningRate": 0.001,
            "useTorchCompile": False,
        },
        "rollout": {"responsesPerPrompt": 4, "enforceEager": True, "freeCacheEngine": False, "maxNumSeqs": 8},
        "checkpoint": {"saveFreq": 1},
        "storage": {"claimName": "runs", "mountPath": str(folder)},
        "cluster": {
            "image": "registry.example/verl:0.9.1",
            "workers": [{**group, "accelerator": {"resourceName": "nvidia.com/gpu", "count": 1}}],
        },
    }
    metadata = {"name": "tiny", "namespace": "test", "uid": "11111111", "generation": 1, "resourceVersion": "1"}
    return {"apiVersion": "rlt.dev/v1alpha1", "kind": "RLTrainingJob", "metadata": metadata, "spec": spec}
