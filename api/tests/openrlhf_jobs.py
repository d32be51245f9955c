"""Jobs with framework openrlhf: one that gives every supported block, and a table of different ones."""

from __future__ import annotations

from typing import Any

from job_specs import merged
from verl_jobs import VERL

from rlt_api.spec.accelerator_defaults import add_accelerator_defaults
from rlt_api.spec.job_spec import RLTrainingJobSpec

FUNCTION = {"function": {"name": "scoring:reward_func", "configMap": "rewards"}}
OPENRLHF: dict[str, Any] = {
    **VERL,
    "framework": {"type": "openrlhf"},
    "training": {"totalEpochs": 2, "trainBatchSize": 128},
    "rewards": [FUNCTION],
}
SUITE = {"name": "test", "data": {"files": ["/mnt/rlt/gsm8k/test.parquet"]}, "every": 5}
COMPLETE = merged(
    OPENRLHF,
    {
        "evaluation": [SUITE],
        "model.lora": {"rank": 16},
        "algorithm": {
            "klLossCoef": 0,
            "klInReward": {},
            "overlongBuffer": {"length": 64},
            "rolloutCorrection": {"lowerThreshold": 0.5},
            "critic": {},
        },
        "training.lrSchedule": {"type": "cosine"},
        "training.fsdp": {},
        "training.reference": {},
    },
)
"""Every block that OpenRLHF supports. Not valid: grpo has no critic."""

TABLE: dict[str, dict[str, Any]] = {
    "default": {},
    "mini-batches": {"training.ppoMiniBatchSize": 32, "training.ppoMicroBatchSizePerDevice": 4},
    "dynamic": {"training.useDynamicBsz": True, "training.ppoMaxTokenLenPerDevice": 16384},
    "learning": {"training.learningRate": 3e-7, "training.weightDecay": 0.01, "training.betas": [0.9, 0.95]},
    "cosine": {"training.lrSchedule": {"type": "cosine", "minRatio": 0.1}},
    "offload": {"training.fsdp": {"optimizerOffload": True}, "training.reference": {"paramOffload": True}},
    "zero-2": {"training.fsdp": {"reshardAfterForward": False}},
    "ring-attention": {"training.contextParallelSize": 4},
    "compile": {"training.useTorchCompile": True, "model.enableGradientCheckpointing": False},
    "validation": {"evaluation": [{**SUITE, "responsesPerPrompt": 4, "temperature": 0.7}]},
    "hub": {
        "data.files": None,
        "data": {"hub": {"name": "org/math", "split": "train"}},
        "evaluation": [{"name": "test", "data": {"hub": {"name": "org/math"}}, "every": 5}],
    },
    "columns": {"data.promptKey": "my question", "data.answerKey": "solution"},
    "lora": {"model.lora": {"rank": 8, "targetModules": ["q_proj", "v_proj"]}},
    "without-kl": {"algorithm.klLossCoef": 0},
    "dr-grpo": {"algorithm.normAdvByStdInGrpo": False, "algorithm.lossAggMode": "seq-mean-token-mean"},
    "clip-higher": {"algorithm.clipRatioHigh": 0.28, "algorithm.clipRatioC": 10.0},
    "kl-in-reward": {"algorithm.klLossCoef": 0, "algorithm.klInReward": {"klCoef": 0.05}},
    "k2": {"algorithm.klLossType": "mse", "algorithm.entropyCoeff": 0.01},
    "overlong": {"algorithm.overlongBuffer": {"length": 128, "penaltyFactor": 0.5}},
    "gspo": {"algorithm.policyLoss": "gspo"},
    "tis": {"algorithm.rolloutCorrection": {"threshold": 5.0}},
    "icepop": {"algorithm.rolloutCorrection": {"threshold": 5.0, "lowerThreshold": 0.5}},
    **{
        name: {"algorithm.advEstimator": name}
        for name in ("rloo", "reinforce_plus_plus", "reinforce_plus_plus_baseline")
    },
    "ppo": {
        "algorithm": {
            "advEstimator": "gae",
            "lam": 0.95,
            "klLossCoef": 0,
            "klInReward": {},
            "critic": {"modelPath": "Qwen/Qwen2.5-1.5B-Instruct", "learningRate": 9e-6, "warmupSteps": 5},
        }
    },
    "engine": {"rollout": {"tensorParallelSize": 4, "gpuMemoryUtilization": 0.6, "freeCacheEngine": False}},
    "sampling": {"rollout": {"responsesPerPrompt": 16, "temperature": 0.8, "topP": 0.95}},
    "reward-model": {"rewards": [{"model": "org/reward-model"}]},
    "checkpoints": {
        "checkpoint": {"saveFreq": 5, "maxToKeep": 2, "keepBest": True},
        "evaluation": [SUITE],
    },
    "no-resume": {"checkpoint": {"saveFreq": 5, "resume": "never"}},
    "trackers": {"observability": {"wandb": {"apiKey": {"name": "w", "key": "k"}, "project": "p"}, "tensorboard": {}}},
    "overrides": {"framework.overrides": ["--ds.overlap_comm", "--ds.zpg=8"]},
}
"""Name -> changes of OPENRLHF."""


def resolve(changes: dict[str, Any]) -> RLTrainingJobSpec:
    """Return the spec of OPENRLHF with changes, with the defaults for GPUs."""
    spec = add_accelerator_defaults(merged(OPENRLHF, changes))
    return RLTrainingJobSpec.model_validate(spec, by_alias=True, by_name=False)
