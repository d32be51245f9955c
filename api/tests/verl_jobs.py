"""Jobs with framework verl: one that gives every supported block, and a table of different ones."""

from __future__ import annotations

from typing import Any

from job_specs import merged

from rlt_api.frameworks.run import Run
from rlt_api.spec.accelerator_defaults import add_accelerator_defaults
from rlt_api.spec.job_spec import RLTrainingJobSpec

RUN = Run("sum", "team", "/mnt/rlt/runs/sum-1")
VERL: dict[str, Any] = {
    "framework": {"type": "verl"},
    "model": {"path": "Qwen/Qwen2.5-7B-Instruct"},
    "data": {"files": ["/mnt/rlt/gsm8k/train.parquet"]},
    "training": {"totalSteps": 100, "trainBatchSize": 128},
    "checkpoint": {"saveFreq": 10},
    "storage": {"claimName": "runs"},
    "cluster": {
        "image": "registry.example/verl:0.9.1",
        "workers": [
            {
                "replicas": 2,
                "resources": {"cpu": "32", "memory": "512Gi", "sharedMemory": "64Gi"},
                "accelerator": {"resourceName": "nvidia.com/gpu", "count": 8, "memory": "80Gi"},
            }
        ],
    },
}
FUNCTION = {"function": {"name": "scoring:compute_score", "configMap": "rewards"}}
COMPLETE = merged(
    VERL,
    {
        "evaluation": [{"name": "test", "data": {"files": ["/mnt/rlt/gsm8k/test.parquet"]}, "every": 5}],
        "model.lora": {"rank": 16},
        "rewards": [FUNCTION],
        "algorithm": {
            "klInReward": {},
            "filterGroups": {},
            "overlongBuffer": {"length": 64},
            "rolloutCorrection": {"lowerThreshold": 0.5},
            "critic": {},
            "policyLoss": "sapo",
        },
        "training.lrSchedule": {},
        "training.fsdp": {},
        "training.reference": {},
    },
)
"""Every block that verl supports. Not valid: a critic and group filtering exclude each other."""
SEPARATE: dict[str, Any] = {
    "rollout": {"mode": "separate", "workerGroup": "engines"},
    "cluster.workers": [
        VERL["cluster"]["workers"][0],
        {**VERL["cluster"]["workers"][0], "name": "engines", "replicas": 3},
    ],
}
"""A second group, which generates."""

TABLE: dict[str, dict[str, Any]] = {
    "default": {},
    "one-gpu": {"cluster.workers": [{**VERL["cluster"]["workers"][0], "replicas": 1}]},
    "amd": {
        "cluster.workers": [
            {
                **VERL["cluster"]["workers"][0],
                "accelerator": {"resourceName": "amd.com/gpu", "count": 8, "memory": "192Gi"},
            }
        ]
    },
    "epochs": {"training.totalSteps": None, "training.totalEpochs": 15},
    "mini-batches": {"training.ppoMiniBatchSize": 32, "training.ppoMicroBatchSizePerDevice": 4},
    "log-prob-batches": {
        "training.logProbMicroBatchSizePerDevice": 8,
        "training.reference.logProbMicroBatchSizePerDevice": 4,
    },
    "dynamic": {"training.useDynamicBsz": True, "training.ppoMaxTokenLenPerDevice": 16384},
    "learning": {"training.learningRate": 3e-7, "training.weightDecay": 0.0, "training.betas": [0.9, 0.95]},
    "cosine": {"training.lrSchedule": {"type": "cosine", "warmupSteps": 5, "minRatio": 0.1}},
    "seed": {"training.seed": 7, "data.shuffle": False, "training.ppoEpochs": 2, "training.gradClip": 0.5},
    "hsdp": {"training.fsdp": {"fsdpSize": 8}},
    "offload": {
        "training.fsdp": {"paramOffload": True, "optimizerOffload": True, "reshardAfterForward": False},
        "training.reference": {"paramOffload": True},
    },
    "ulysses": {"training.contextParallelSize": 4, "model.useRemovePadding": True},
    "compile": {"training.useTorchCompile": True, "model.enableGradientCheckpointing": False},
    "validation": {
        "evaluation": [
            {
                "name": "test",
                "data": {"files": ["/mnt/rlt/gsm8k/test.parquet"]},
                **{"every": 5, "beforeTrain": True, "responsesPerPrompt": 4, "temperature": 0.7},
            }
        ],
    },
    "lengths": {"data.maxPromptLength": 2048, "data.maxResponseLength": 16384, "data.overlongPrompts": "left"},
    "files": {"data.files": ["/mnt/rlt/my data/a.parquet", "/mnt/rlt/b,c=d.parquet"], "data.promptKey": "messages"},
    "images": {"data.imageKey": "pictures"},
    "chat-template": {"data.chatTemplate": "{% for m in messages %}'{{ m['content'] }}' \\ ${x}\n{% endfor %}\\"},
    "local-model": {"model.path": "/mnt/rlt/models/Qwen 7B", "model.trustRemoteCode": True},
    "lora": {"model.lora": {"rank": 32, "alpha": 64}},
    "lora-modules": {"model.lora": {"rank": 8, "targetModules": ["q_proj", "v_proj"]}},
    "grpo-without-kl": {"algorithm.klLossCoef": 0},
    "dr-grpo": {"algorithm.normAdvByStdInGrpo": False, "algorithm.lossAggMode": "seq-mean-token-sum-norm"},
    "clip-higher": {"algorithm.clipRatioLow": 0.2, "algorithm.clipRatioHigh": 0.28, "algorithm.clipRatioC": 10.0},
    "kl-in-reward": {"algorithm.klLossCoef": 0, "algorithm.klInReward": {"type": "adaptive", "klCoef": 0.05}},
    "entropy": {"algorithm.entropyCoeff": 0.001, "algorithm.klLossType": "mse"},
    "overlong": {"algorithm.overlongBuffer": {"length": 128, "penaltyFactor": 0.5}},
    **{
        name: {"algorithm.advEstimator": name}
        for name in ("rloo", "reinforce_plus_plus", "reinforce_plus_plus_baseline", "remax", "opo", "grpo_passk")
    },
    "ppo": {"algorithm": {"advEstimator": "gae", "lam": 0.95, "gamma": 0.99, "critic": {}}},
    "ppo-critic": {
        "algorithm": {
            "advEstimator": "gae",
            "critic": {
                "modelPath": "Qwen/Qwen2.5-1.5B-Instruct",
                "learningRate": 1e-5,
                "ppoMicroBatchSizePerDevice": 4,
                "warmupSteps": 10,
                "cliprangeValue": 0.2,
                "paramOffload": True,
                "optimizerOffload": True,
            },
        }
    },
    "sampling": {"rollout": {"responsesPerPrompt": 16, "temperature": 0.8, "topP": 0.95, "topK": 50}},
    "engine": {
        "rollout": {
            "tensorParallelSize": 4,
            "gpuMemoryUtilization": 0.6,
            "enforceEager": True,
            "maxModelLen": 4096,
            "maxNumSeqs": 512,
            "maxNumBatchedTokens": 16384,
            "enableChunkedPrefill": True,
            "freeCacheEngine": False,
        }
    },
    "engine-kwargs": {
        "rollout.engineKwargs": {"enable_prefix_caching": False, "swap_space": 8, "hf_overrides": {"a": [1, "b"]}}
    },
    "function": {"rewards": [{**FUNCTION, "options": {"bonus": 0.1, "method": "strict", "tags": ["a", "true"]}}]},
    "package": {"rewards": [{"function": {"name": "team.scoring.gsm8k:compute_score", "configMap": "rewards"}}]},
    "checkpoints": {"checkpoint": {"saveFreq": 5, "maxToKeep": 2}},
    "resume-path": {"checkpoint": {"resume": "path", "resumeFromPath": "/mnt/rlt/runs/x/checkpoints/global_step_5"}},
    "no-resume": {"checkpoint": {"saveFreq": 5, "resume": "never"}},
    "trackers": {
        "observability": {
            "wandb": {"apiKey": {"name": "wandb", "key": "key"}, "project": "1e5", "proxy": "http://proxy:3128"},
            "tensorboard": {},
        }
    },
    "timeline": {"observability.timeline": {"file": "/mnt/rlt/timeline.json"}},
    "overrides": {"framework.overrides": ["actor_rollout_ref.actor.shuffle=true", "++trainer.mine={a:1}"]},
}
"""Name -> changes of VERL, valid for versions 0.5 and 0.9."""
ONLY_0_9: dict[str, dict[str, Any]] = {
    "frozen-vision-tower": {"data.imageKey": "images", "model.freezeVisionTower": True},
    **{name: {"algorithm.policyLoss": name} for name in ("gspo", "cispo", "sapo", "clip_cov", "kl_cov")},
    "dapo": {
        "algorithm": {
            "klLossCoef": 0,
            "clipRatioHigh": 0.28,
            "filterGroups": {"metric": "acc", "maxNumGenBatches": 10},
            "overlongBuffer": {"length": 64},
        }
    },
    "correction": {"algorithm.rolloutCorrection": {"level": "sequence", "threshold": 5.0}},
    "icepop": {"algorithm.rolloutCorrection": {"lowerThreshold": 0.5, "threshold": 5.0}},
    "rejection": {
        "algorithm.rolloutCorrection": {"level": "none", "rejection": "seq_mean_k1", "rejectionThreshold": 1.01}
    },
    "kl-plus": {"algorithm.klLossType": "low_var_kl+"},
    "float32": {"model.dtype": "float32", "model.path": "Qwen/Qwen2.5-0.5B-Instruct"},
    "jsonl": {"data.files": ["/mnt/rlt/train.jsonl"]},
    "module": {"rewards": [{"function": {"name": "team.scoring:compute_score"}, "concurrency": 16}]},
    "profiler": {"observability.profiler": {"steps": [3, 4]}},
    "one-step-off": {"rollout.staleness": {}},
    "separate": SEPARATE,
    "asynchronous": {
        **SEPARATE,
        "rollout.staleness": {"maxSteps": 2},
        "training.ppoMiniBatchSize": 32,
        "algorithm.rolloutCorrection": {},
        "model.lora": {"rank": 16},
    },
}
"""The same for version 0.9 alone."""


def resolve(changes: dict[str, Any], version: str = "0.9") -> RLTrainingJobSpec:
    """Return the spec of VERL with changes, with the defaults for GPUs."""
    spec = merged(VERL, {"framework.version": version, **changes})
    return RLTrainingJobSpec.model_validate(add_accelerator_defaults(spec), by_alias=True, by_name=False)
