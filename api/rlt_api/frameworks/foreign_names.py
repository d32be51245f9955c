"""Names and values of other programs, and what a job has instead. mapping.toml has the complete list of verl's keys."""

from __future__ import annotations

from rlt_api.frameworks.mapping import load_mapping

FIELDS = {
    "adv_estimator": "spec.algorithm.advEstimator",
    "expert_model_parallel_size": "spec.training.expertParallelSize",
    "gpus": "spec.cluster.workers[].accelerator.count",
    "kl_coef": "spec.algorithm.klInReward.klCoef",
    "kl_loss_coef": "spec.algorithm.klLossCoef",
    "log_prob_micro_batch_size_per_gpu": "spec.training.logProbMicroBatchSizePerDevice",
    "loss_mode": "spec.algorithm.policyLoss",
    "lr": "spec.training.learningRate",
    "lr_warmup_steps": "spec.training.lrSchedule.warmupSteps",
    "model_name_or_path": "spec.model.path",
    "model_path": "spec.model.path",
    "moe_router_bias_update_rate": "spec.algorithm.routerBiasUpdateRate",
    "n": "spec.rollout.responsesPerPrompt",
    "n_gpus_per_node": "spec.cluster.workers[].accelerator.count",
    "nnodes": "spec.cluster.workers[].replicas",
    "num_return_sequences_in_group": "spec.rollout.responsesPerPrompt",
    "ppo_max_token_len_per_gpu": "spec.training.ppoMaxTokenLenPerDevice",
    "ppo_micro_batch_size": "spec.training.ppoMicroBatchSizePerDevice",
    "ppo_micro_batch_size_per_gpu": "spec.training.ppoMicroBatchSizePerDevice",
    "resume_mode": "spec.checkpoint.resume",
    "rollout_batch_size": "spec.training.trainBatchSize",
    "spec.model.name": "spec.model.path",
    "tensor_model_parallel_size": "spec.rollout.tensorParallelSize",
    "total_training_steps": "spec.training.totalSteps",
    "ulysses_sequence_parallel_size": "spec.training.contextParallelSize",
    "val_before_train": "spec.evaluation[].beforeTrain",
}
"""Name of a setting in another program, or path that does not exist -> its field here, where the names differ."""

ESTIMATORS = {
    "dapo": ("grpo", "filterGroups, clipRatioHigh: 0.28 and overlongBuffer"),
    "dr_grpo": ("grpo", "normAdvByStdInGrpo: false and lossAggMode: seq-mean-token-sum-norm"),
    "drgrpo": ("grpo", "normAdvByStdInGrpo: false and lossAggMode: seq-mean-token-sum-norm"),
    "gspo": ("grpo", "policyLoss: gspo"),
    "cispo": ("grpo", "policyLoss: cispo"),
    "sapo": ("grpo", "policyLoss: sapo"),
    "gmpo": ("grpo", "policyLoss: geo_mean"),
    "dppo": ("grpo", "policyLoss: dppo_tv"),
    "gpg": ("grpo", "policyLoss: gpg"),
    "clip_cov": ("grpo", "policyLoss: clip_cov"),
    "kl_cov": ("grpo", "policyLoss: kl_cov"),
    "ppo": ("gae", "critic: {}"),
    "reinforce": ("reinforce_plus_plus", ""),
    "reinforce++": ("reinforce_plus_plus", ""),
    "reinforce++-baseline": ("reinforce_plus_plus_baseline", ""),
    "reinforce++_baseline": ("reinforce_plus_plus_baseline", ""),
}
"""Name of an algorithm -> its advEstimator here, and the other settings of spec.algorithm that belong to it."""


def find_field(name: str, path: str) -> str | None:
    """Return the field for an unknown name: by its path, its name in FIELDS, or the only field of verl's keys of this
    name. A name of one word, such as enabled, counts only below the same block."""
    if known := FIELDS.get(path) or FIELDS.get(name.lower()):
        return known
    end = f".{name}" if "_" in name else "." + ".".join(path.split(".")[-2:])
    settings = [setting for setting in load_mapping().verl if f".{setting.key}".endswith(end)]
    fields = {field for each in settings for field in each.fields}
    return fields.pop() if len(fields) == 1 else None
