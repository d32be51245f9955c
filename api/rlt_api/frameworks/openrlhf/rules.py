"""Framework openrlhf: fields of a spec that OpenRLHF has no option for, and options that contradict the pods."""

from __future__ import annotations

import re
from collections.abc import Iterator

from rlt_api.findings.finding import Finding, printable, remove, use
from rlt_api.frameworks.openrlhf.options import describe_option
from rlt_api.frameworks.openrlhf.settings import ESTIMATORS, KL_ESTIMATORS, POLICY_LOSSES, SCHEDULERS
from rlt_api.frameworks.validation_set import list_evaluation
from rlt_api.rules.locations import list_files
from rlt_api.rules.unsupported import REMOVE, TYPE, Unsupported, build_findings, list_model
from rlt_api.spec.job_spec import RLTrainingJobSpec

OVERRIDES = "spec.framework.overrides"
PLACEMENT = re.compile(r"--(?:(?:actor|ref|critic|reward)\.num_(?:nodes|gpus_per_node)|vllm\.num_engines)(?:=|$)")
"""Options that follow from the pods."""
LENGTHS = ("maxModelLen", "maxNumSeqs", "maxNumBatchedTokens", "enableChunkedPrefill")


def validate_openrlhf_fields(spec: RLTrainingJobSpec) -> Iterator[Finding]:
    """framework.type openrlhf rejects fields that change the training and have no counterpart in OpenRLHF."""
    entries = [*_list_sources(spec), *_list_rewards(spec), *_list_algorithm(spec)]
    yield from build_findings(spec, [*entries, *_list_training(spec), *_list_rollout(spec)])


def validate_openrlhf_overrides(spec: RLTrainingJobSpec) -> Iterator[Finding]:
    """framework.overrides are options of OpenRLHF 0.11 such as --ds.overlap_comm or --ds.zpg=8, one in each item, and
    do not place the models. Its parser ends with an error for others."""
    rule = "framework-overrides"
    for index, text in enumerate(spec.framework.overrides):
        field = f"{OVERRIDES}[{index}]"
        if not re.fullmatch(r"--[a-z][a-z0-9_.]*(=.*)?", text, re.DOTALL):
            message = "is not an option of OpenRLHF"
            fix = "write --NAME=VALUE, or --NAME for a flag, such as --ds.overlap_comm"
            yield Finding(field, printable(text), message, fix, rule=rule, involved=(TYPE,))
        elif PLACEMENT.match(text):
            message = "follows from the pods of spec.cluster.workers"
            fix = "remove it, and change the worker group"
            yield Finding(field, printable(text), message, fix, rule=rule, involved=(TYPE,))
        elif problem := describe_option(text.removeprefix("--").partition("=")[0]):
            message, _, fix = problem.partition("; ")
            meant = re.fullmatch(r"did you mean (--\S+)\?", fix)
            edits = use(field, text.replace(text.partition("=")[0], meant[1], 1)) if meant else remove(field)
            yield Finding(field, printable(text), message, fix, rule=rule, involved=(TYPE,), edits=edits)


def _list_sources(spec: RLTrainingJobSpec) -> Iterator[Unsupported]:
    model = spec.model
    data = spec.data
    yield from list_model(spec)
    if model:
        reason = "use its --actor.freeze_visual_encoder in framework.overrides"
        yield "spec.model.freezeVisionTower", model.freeze_vision_tower, reason, REMOVE
        yield "spec.model.dtype", model.dtype != "bfloat16", "it trains in bfloat16", REMOVE
    if data:
        for source in ("preset", "inline"):
            reason = "it reads files and data sets of the Hugging Face hub"
            yield f"spec.data.{source}", getattr(data, source) is not None, reason, "use data.files or data.hub"
        for name in ("config", "revision"):
            given = data.hub is not None and getattr(data.hub, name) is not None
            yield f"spec.data.hub.{name}", given, "it has no option for it", "use data.files"
        yield "spec.data.filters", bool(data.filters), "it trains on all rows", REMOVE
        yield "spec.data.mixture", bool(data.mixture), "use its --data.prompt_probs in framework.overrides", REMOVE
        yield "spec.data.curriculum", data.curriculum is not None, "it has no option for it", REMOVE
        reason = "set its options of images in framework.overrides"
        yield "spec.data.imageKey", data.image_key is not None, reason, REMOVE
        yield "spec.data.chatTemplate", data.chat_template is not None, "it uses the tokenizer's", REMOVE
        reason = "it does not limit prompts"
        yield "spec.data.overlongPrompts", data.overlong_prompts != "filter", reason, REMOVE
        yield "spec.data.shuffle", not data.shuffle, "it always shuffles", REMOVE
    yield from _list_evaluation(spec)
    for field, path in list_files(spec):
        yield field, "," in path or "@" in path, "it splits paths at , and @", "rename it"


def _list_evaluation(spec: RLTrainingJobSpec) -> Iterator[Unsupported]:
    reads = "it reads files and data sets of the Hugging Face hub"
    yield from list_evaluation(spec, reads, reads_hub=True)
    for index, suite in enumerate(spec.evaluation):
        field = f"spec.evaluation[{index}]"
        hub = suite.data.hub if suite.data else None
        for name in ("config", "revision"):
            given = hub is not None and getattr(hub, name) is not None
            yield f"{field}.data.hub.{name}", given, "it has no option for it", "use data.files"
        yield f"{field}.beforeTrain", suite.before_train, "it validates after steps", REMOVE


def _list_rewards(spec: RLTrainingJobSpec) -> Iterator[Unsupported]:
    fix = "use rewards[].function or rewards[].model"
    yield "spec.rewards", not spec.rewards, "it has no rules for data sets", fix
    for index, reward in enumerate(spec.rewards):
        field = f"spec.rewards[{index}]"
        function = reward.function
        for name in ("name", "judge"):
            yield f"{field}.{name}", getattr(reward, name) is not None, "it has no option for it", fix
        reason = "it calls reward_func(queries, prompts, labels) of a file"
        is_other = bool(function and not function.name.endswith(":reward_func"))
        yield f"{field}.function.name", is_other, reason, "name the function reward_func"
        yield f"{field}.function.configMap", bool(function and function.config_map is None), reason, "add configMap"
        for name, given in {"options": reward.options, "env": reward.env, "concurrency": reward.concurrency}.items():
            yield f"{field}.{name}", bool(given), "it has no option for it", REMOVE
        yield f"{field}.weight", reward.weight != 1, "it has one reward", REMOVE
        yield field, index > 0, "it has one reward", REMOVE


def _list_algorithm(spec: RLTrainingJobSpec) -> Iterator[Unsupported]:
    algorithm = spec.algorithm
    field = "spec.algorithm"
    yield f"{field}.convention", algorithm.convention != "verl", "it has its own formulas", REMOVE
    reason = "it has no option for it"
    yield f"{field}.advantageFunction", algorithm.advantage_function is not None, reason, REMOVE
    yield f"{field}.policyLossFunction", algorithm.policy_loss_function is not None, reason, REMOVE
    reason = f"it has {', '.join(ESTIMATORS)}"
    yield f"{field}.advEstimator", algorithm.adv_estimator not in ESTIMATORS, reason, REMOVE
    yield f"{field}.policyLoss", algorithm.policy_loss not in POLICY_LOSSES, "it has vanilla and gspo", REMOVE
    reason = f"it has {', '.join(KL_ESTIMATORS)}"
    yield f"{field}.klLossType", algorithm.kl_loss_type not in KL_ESTIMATORS, reason, REMOVE
    reason = "it has token-mean and seq-mean-token-mean"
    yield f"{field}.lossAggMode", algorithm.loss_agg_mode.startswith("seq-mean-token-sum"), reason, REMOVE
    reason = "use its --algo.dynamic_filtering_enable in framework.overrides"
    yield f"{field}.filterGroups", algorithm.filter_groups is not None, reason, REMOVE
    reason = "it weights responses of the maximum length by --reward.stop_properly_penalty_coef"
    yield f"{field}.maskTruncatedCompletions", algorithm.mask_truncated_completions, reason, REMOVE
    yield f"{field}.topEntropyQuantile", algorithm.top_entropy_quantile < 1, "it has no option for it", REMOVE
    yield f"{field}.dpo", algorithm.dpo is not None, "its DPO is another program", REMOVE
    yield f"{field}.distillation", algorithm.distillation is not None, "it has no option for it", REMOVE
    reason = "its loss takes the tokens of a micro-batch together: use its option in framework.overrides"
    yield f"{field}.routerAuxLossCoef", algorithm.router_aux_loss_coef > 0, reason, REMOVE
    reason = "it has no option for it"
    yield f"{field}.routerBiasUpdateRate", algorithm.router_bias_update_rate > 0, reason, REMOVE
    yield f"{field}.routerReplay", algorithm.router_replay != "disabled", reason, REMOVE
    if control := algorithm.kl_in_reward:
        both = algorithm.kl_loss_coef > 0
        yield f"{field}.klInReward", both, "it has one KL term", "remove it, or set klLossCoef: 0"
        yield f"{field}.klInReward.type", control.type != "fixed", "its coefficient is fixed", REMOVE
        reason = f"it has {', '.join(KL_ESTIMATORS)}"
        yield f"{field}.klInReward.estimator", control.estimator not in KL_ESTIMATORS, reason, REMOVE
    if correction := algorithm.rollout_correction:
        reason = "it corrects tokens"
        yield f"{field}.rolloutCorrection.level", correction.level != "token", reason, REMOVE
        reason = "it always computes the log-probabilities of the policy"
        yield f"{field}.rolloutCorrection.bypassMode", correction.bypass_mode, reason, REMOVE
        reason = "it corrects tokens"
        yield f"{field}.rolloutCorrection.rejection", correction.rejection is not None, reason, REMOVE
    if critic := algorithm.critic:
        yield f"{field}.critic.modelRevision", critic.model_revision is not None, "it loads the newest revision", REMOVE


def _list_training(spec: RLTrainingJobSpec) -> Iterator[Unsupported]:
    training = spec.training
    schedule = spec.training.lr_schedule
    fsdp = spec.training.fsdp
    yield "spec.training.totalSteps", training.total_steps is not None, "it trains for epochs", "use totalEpochs"
    yield "spec.training.optimizer", training.optimizer != "adamw", "it trains with AdamW", REMOVE
    reason = "it has no option for it"
    given = training.expert_parallel_size > 1
    yield "spec.training.expertParallelSize", given, reason, REMOVE
    yield "spec.training.warmup", training.warmup is not None, "its SFT trainer is another program", REMOVE
    if schedule:
        yield "spec.training.lrSchedule.type", schedule.type not in SCHEDULERS, "it has no minRatio for it", REMOVE
        reason = "its warm-up is a share of all steps: use --actor.lr_warmup_ratio in framework.overrides"
        yield "spec.training.lrSchedule.warmupSteps", schedule.warmup_steps > 0, reason, REMOVE
        reason = "the decay ends with the training"
        yield "spec.training.lrSchedule.decaySteps", schedule.decay_steps is not None, reason, REMOVE
    if fsdp:
        reason = "DeepSpeed shards over all devices: use --ds.zpg in framework.overrides"
        yield "spec.training.fsdp.fsdpSize", fsdp.fsdp_size is not None, reason, REMOVE
        yield "spec.training.fsdp.paramOffload", fsdp.param_offload, "it offloads the optimizer alone", REMOVE


def _list_rollout(spec: RLTrainingJobSpec) -> Iterator[Unsupported]:
    rollout = spec.rollout
    checkpoint = spec.checkpoint
    observability = spec.observability
    yield "spec.rollout.engine", rollout.engine != "vllm", "it generates with vLLM", REMOVE
    reason = "use framework.type: command for separate and asynchronous engines"
    yield "spec.rollout.mode", rollout.mode != "colocated", reason, REMOVE
    yield "spec.rollout.staleness", rollout.staleness is not None, reason, REMOVE
    reason = "its agents are files, selected by --train.agent_func_path in framework.overrides"
    yield "spec.rollout.multiTurn", rollout.multi_turn is not None, reason, REMOVE
    yield "spec.rollout.topK", rollout.top_k != -1, "it has no option for it", REMOVE
    yield "spec.rollout.minP", rollout.min_p > 0, "it has no option for it", REMOVE
    yield "spec.rollout.stop", bool(rollout.stop), "it has no option for it", REMOVE
    given = rollout.to_json()
    for name in LENGTHS:
        yield f"spec.rollout.{name}", name in given, "it has no option for it", REMOVE
    yield "spec.rollout.quantization", rollout.quantization is not None, "it has no option for it", REMOVE
    given_config = rollout.speculative_config is not None
    yield "spec.rollout.speculativeConfig", given_config, "it has no option for it", REMOVE
    yield "spec.rollout.engineKwargs", bool(rollout.engine_kwargs), "it has no option for it", REMOVE
    yield "spec.checkpoint.asynchronous", checkpoint.asynchronous, "it has no option for it", REMOVE
    reason = "it resumes from the checkpoints of the job alone"
    yield "spec.checkpoint.resume", checkpoint.resume in ("path", "job"), reason, "use resume: auto, or never"
    yield "spec.observability.recordSteps", bool(observability.record_steps), "it records no steps", REMOVE
    yield "spec.observability.profiler", observability.profiler is not None, "it has no profiler", REMOVE
    file = observability.timeline.file if observability.timeline else None
    yield "spec.observability.timeline.file", file is not None, "it has no option for it", REMOVE


RULES = (
    validate_openrlhf_fields,
    validate_openrlhf_overrides,
)
