"""Jobs with framework roll: one that gives every supported block, and a table of different ones."""

from __future__ import annotations

from typing import Any

from job_specs import merged
from verl_jobs import VERL

from rlt_api.spec.accelerator_defaults import add_accelerator_defaults
from rlt_api.spec.job_spec import RLTrainingJobSpec

GROUP = VERL["cluster"]["workers"][0]
CLASS = {"function": {"name": "team.rewards:LengthReward", "configMap": "rewards"}}
ROLL: dict[str, Any] = {**VERL, "framework": {"type": "roll"}, "data": {"files": ["/mnt/rlt/math/train.jsonl"]}}
SUITE = {"name": "test", "data": {"files": ["/mnt/rlt/math/test.jsonl"]}, "every": 5}
TRAIN = "actor_train"
INFER = "actor_infer"
OPTIONS = "strategy_args.strategy_config"
MEGATRON = [f"{TRAIN}.strategy_args.strategy_name=megatron_train"]
COMPLETE = merged(
    ROLL,
    {
        "evaluation": [SUITE],
        "model.lora": {"rank": 16},
        "rewards": [CLASS],
        "algorithm": {"klInReward": {"type": "adaptive"}, "rolloutCorrection": {}, "critic": {}},
        "training.lrSchedule": {},
        "training.fsdp": {},
        "training.reference": {},
        "rollout.staleness": {},
    },
)
"""Every block that ROLL supports. Not valid: grpo has no critic."""

TABLE: dict[str, dict[str, Any]] = {
    "default": {},
    "one-gpu": {
        "cluster.workers": [{**GROUP, "replicas": 1, "accelerator": {**GROUP["accelerator"], "count": 1}}],
        "model.path": "Qwen/Qwen2.5-0.5B-Instruct",
    },
    "amd": {"cluster.workers": [{**GROUP, "accelerator": {"resourceName": "amd.com/gpu", "count": 8}}]},
    "mini-batches": {"training.ppoMiniBatchSize": 32, "training.ppoMicroBatchSizePerDevice": 4},
    "log-prob-batches": {
        "training.logProbMicroBatchSizePerDevice": 8,
        "training.reference": {"logProbMicroBatchSizePerDevice": 4},
    },
    "learning": {"training.learningRate": 3e-7, "training.weightDecay": 0.0, "training.betas": [0.9, 0.95]},
    "cosine": {"training.lrSchedule": {"type": "cosine", "warmupSteps": 5}},
    "linear": {"training.lrSchedule": {"type": "linear"}},
    "epochs-of-a-batch": {"training.ppoEpochs": 2, "training.seed": 7, "training.gradClip": 0.5},
    "hsdp": {"training.fsdp": {"fsdpSize": 8, "reshardAfterForward": False}},
    "ulysses": {"training.contextParallelSize": 4, "model.useRemovePadding": True},
    "no-checkpointing": {"model.enableGradientCheckpointing": False},
    "timeout": {"training.collectiveTimeoutSeconds": 5400},
    "validation": {"evaluation": [{**SUITE, "responsesPerPrompt": 4, "temperature": 0.7}]},
    "lengths": {"data.maxPromptLength": 2048, "data.maxResponseLength": 16384},
    "files": {"data.files": ["/mnt/rlt/a.parquet", "/mnt/rlt/${b}.parquet"], "data.promptKey": "chat"},
    "local-model": {"model.path": "/mnt/rlt/models/qwen", "model.trustRemoteCode": True},
    "lora": {"model.lora": {"rank": 32, "alpha": 64}},
    "lora-modules": {"model.lora": {"rank": 8, "targetModules": ["q_proj", "v_proj"]}},
    "float32": {"model.dtype": "float32", "model.path": "Qwen/Qwen2.5-0.5B-Instruct"},
    "without-kl": {"algorithm.klLossCoef": 0},
    "dr-grpo": {"algorithm.normAdvByStdInGrpo": False, "algorithm.lossAggMode": "seq-mean-token-sum-norm"},
    "clip-higher": {"algorithm.clipRatioLow": 0.2, "algorithm.clipRatioHigh": 0.28},
    "kl-in-reward": {"algorithm.klLossCoef": 0, "algorithm.klInReward": {"klCoef": 0.05, "estimator": "abs"}},
    "adaptive-kl": {"algorithm.klLossCoef": 0, "algorithm.klInReward": {"type": "adaptive", "targetKl": 0.2}},
    "entropy": {"algorithm.entropyCoeff": 0.001, "algorithm.maskTruncatedCompletions": True},
    "gspo": {"algorithm.policyLoss": "gspo"},
    "correction": {"algorithm.rolloutCorrection": {"level": "sequence", "threshold": 5.0}},
    "reinforce-plus-plus": {"algorithm": {"advEstimator": "reinforce_plus_plus", "gamma": 0.99}},
    "baseline": {"algorithm.advEstimator": "reinforce_plus_plus_baseline"},
    "ppo": {"algorithm": {"advEstimator": "gae", "lam": 0.95, "gamma": 0.99, "critic": {}}},
    "ppo-critic": {
        "algorithm": {
            "advEstimator": "gae",
            "critic": {
                "modelPath": "Qwen/Qwen2.5-1.5B-Instruct",
                "learningRate": 9e-6,
                "ppoMicroBatchSizePerDevice": 4,
                "warmupSteps": 10,
                "cliprangeValue": 0.2,
            },
        }
    },
    "sampling": {
        "rollout": {"responsesPerPrompt": 16, "temperature": 0.8, "topP": 0.95, "topK": 50, "stop": ["</answer>"]}
    },
    "engine": {
        "rollout": {
            "tensorParallelSize": 4,
            "gpuMemoryUtilization": 0.6,
            "enforceEager": True,
            "maxModelLen": 4096,
            "maxNumSeqs": 512,
            "maxNumBatchedTokens": 16384,
            "enableChunkedPrefill": True,
        }
    },
    "engine-kwargs": {"rollout.engineKwargs": {"enable_prefix_caching": False, "block_size": 16}},
    "class": {"rewards": [{**CLASS, "options": {"reward_type": "soft"}, "concurrency": 16}]},
    "math": {"rewards": [{"name": "math"}]},
    "checkpoints": {"checkpoint": {"saveFreq": 5, "maxToKeep": 2}},
    "resume-path": {"checkpoint": {"resume": "path", "resumeFromPath": "/mnt/rlt/runs/x/checkpoints/1/checkpoint-5"}},
    "no-resume": {"checkpoint": {"saveFreq": 5, "resume": "never"}},
    "no-save": {"checkpoint": {"saveFreq": -1}},
    "wandb": {"observability.wandb": {"apiKey": {"name": "wandb", "key": "key"}, "project": "1e5"}},
    "tensorboard": {"observability.tensorboard": {}},
    "timeline": {"observability.timeline": {}},
    "separate": {
        "cluster.workers": [{**GROUP, "name": "train"}, {**GROUP, "name": "rollout", "replicas": 1}],
        "rollout": {"mode": "separate", "workerGroup": "rollout"},
    },
    "asynchronous": {
        "cluster.workers": [{**GROUP, "name": "rollout"}, {**GROUP, "name": "train"}],
        "rollout": {"mode": "separate", "workerGroup": "rollout", "staleness": {"maxSteps": 2}},
    },
    "megatron": {
        "framework.overrides": [
            *MEGATRON,
            f"{TRAIN}.{OPTIONS}.tensor_model_parallel_size=2",
            f"{TRAIN}.{OPTIONS}.pipeline_model_parallel_size=2",
            f"{TRAIN}.{OPTIONS}.expert_model_parallel_size=4",
        ]
    },
    "megatron-context": {
        "framework.overrides": [*MEGATRON, f"{TRAIN}.{OPTIONS}.context_parallel_size=2"],
        "training.ppoMiniBatchSize": 32,
    },
    "sglang": {
        "framework.overrides": [f"{INFER}.strategy_args.strategy_name=sglang"],
        "rollout.tensorParallelSize": 2,
    },
    "reference-apart": {
        "framework.overrides": [
            f"{TRAIN}.device_mapping=list(range(0,8))",
            f"{INFER}.device_mapping=list(range(0,8))",
            "reference.device_mapping=list(range(8,16))",
            "reference.strategy_args.strategy_name=megatron_infer",
        ]
    },
    "cispo": {"framework.overrides": [f"{TRAIN}.pg_variant=cispo", "dual_clip_loss=true", "reward_clip=10"]},
    "objects": {
        "framework.overrides": ['system_envs={"NVTE_TORCH_COMPILE": "0"}', 'tag_to_template={"aime": "qwen3"}']
    },
}
"""Name -> changes of ROLL."""


def resolve(changes: dict[str, Any]) -> RLTrainingJobSpec:
    """Return the spec of ROLL with changes, with the defaults for GPUs."""
    spec = add_accelerator_defaults(merged(ROLL, changes))
    return RLTrainingJobSpec.model_validate(spec, by_alias=True, by_name=False)
