"""Framework roll: fields of a spec that ROLL has no setting for, and overrides that contradict the pods."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from pydantic import JsonValue

from rlt_api.findings.finding import Finding, printable
from rlt_api.frameworks.arguments import Argument, parse_overrides
from rlt_api.frameworks.command.devices import count_devices
from rlt_api.frameworks.roll.keys import list_problems
from rlt_api.frameworks.roll.settings import ESTIMATORS, KL_PENALTIES, POLICY_LOSSES, build_config
from rlt_api.frameworks.run import Run
from rlt_api.frameworks.validation_set import list_evaluation
from rlt_api.rules.unsupported import REMOVE, TYPE, Unsupported, build_findings, list_model
from rlt_api.spec.job_spec import RLTrainingJobSpec
from rlt_pod.command.roll_layout import list_contradictions

OVERRIDES = "spec.framework.overrides"
RULE = "framework-overrides"
PODS = ("num_nodes", "num_gpus_per_node")
"""Keys that ROLL computes from the devices, whatever the config gives (roll/configs/base_config.py)."""

FIELDS = {
    "rollout_batch_size": "spec.training.trainBatchSize",
    "gradient_accumulation_steps": "spec.training.ppoMiniBatchSize",
    "max_model_len": "spec.rollout.maxModelLen",
    "tensor_parallel_size": "spec.rollout.tensorParallelSize",
    "ulysses_size": "spec.training.contextParallelSize",
    "fsdp_size": "spec.training.fsdp.fsdpSize",
}
"""Last part of a key -> the field that gives it without an override."""


def validate_roll_fields(spec: RLTrainingJobSpec) -> Iterator[Finding]:
    """framework.type roll rejects fields that change the training and have no counterpart in ROLL's RLVR pipeline."""
    entries = [*_list_sources(spec), *_list_rewards(spec), *_list_algorithm(spec)]
    yield from build_findings(spec, [*entries, *_list_training(spec), *_list_running(spec)])


def validate_roll_overrides(spec: RLTrainingJobSpec) -> Iterator[Finding]:
    """framework.overrides are settings of ROLL such as actor_infer.strategy_args.strategy_name=sglang. Their types
    agree with ROLL's config, and devices, parallel sizes and batch sizes fit together and fit the pods."""
    overrides = spec.framework.overrides
    for index, text in enumerate(overrides):
        if not re.fullmatch(r"[A-Za-z_][\w.-]*=.*", text, re.DOTALL):
            field = f"{OVERRIDES}[{index}]"
            message = "is not a setting of ROLL"
            fix = "write KEY=VALUE, such as actor_train.model_args.attn_implementation=fa2"
            yield Finding(field, printable(text), message, fix, rule=RULE, involved=(TYPE,))
    if spec.model is None or spec.data is None or next(validate_roll_fields(spec), None):
        return
    arguments = parse_overrides(overrides)
    for argument in arguments:
        if argument.key in PODS:
            message = "follows from the devices of the roles"
            fix = "remove it, and change the worker group"
            yield _build_finding(argument, argument.value, message, fix)
    config = build_config(spec, Run("", "", ""))
    for problem in list_problems(config):
        if not problem.unknown:
            value = _show(config, problem.key)
            yield _build_finding(_find(arguments, problem.key), value, problem.message, problem.fix)
    for contradiction in list_contradictions(config, count_devices(spec.cluster.workers)):
        owner = _find(arguments, contradiction.key)
        value = f"{contradiction.key}={contradiction.value}"
        field = "" if owner else FIELDS.get(contradiction.key.rpartition(".")[2], "")
        yield _build_finding(owner, value, contradiction.message, contradiction.fix, field)


def _find(arguments: tuple[Argument, ...], key: str) -> Argument | None:
    """The last override of the key, of its block, or of its role."""
    role = f"{key.partition('.')[0]}."
    owners = [argument for argument in arguments if f"{key}.".startswith(f"{argument.key}.")]
    found = owners or [argument for argument in arguments if argument.key.startswith(role)] or [*arguments]
    return found[-1] if found else None


def _build_finding(argument: Argument | None, value: str, message: str, fix: str, field: str = "") -> Finding:
    field = field or (f"{OVERRIDES}[{argument.index}]" if argument else OVERRIDES)
    return Finding(field, printable(value), message, fix, rule=RULE, involved=(TYPE, "spec.cluster.workers"))


def _show(config: Mapping[str, JsonValue], key: str) -> str:
    value: JsonValue = dict(config)
    for part in key.split("."):
        value = value.get(part) if isinstance(value, dict) else None
    return f"{key}={value}"


def _list_sources(spec: RLTrainingJobSpec) -> Iterator[Unsupported]:
    yield from list_model(spec)
    data = spec.data
    frozen = bool(spec.model and spec.model.freeze_vision_tower)
    liger = bool(spec.model and spec.model.use_liger)
    yield "spec.model.useLiger", liger, "its trainer with FSDP2 has no option for it", REMOVE
    yield "spec.model.freezeVisionTower", frozen, "its pipeline for images is another program", REMOVE
    if data:
        reason = "it reads files with the columns messages, ground_truth, tag and id"
        for source in ("preset", "hub", "inline"):
            yield f"spec.data.{source}", getattr(data, source) is not None, reason, "write them, and use data.files"
        reason = "its rewards read the answers from the column ground_truth"
        yield "spec.data.answerKey", data.answer_key not in ("answer", "ground_truth"), reason, REMOVE
        yield "spec.data.filters", bool(data.filters), "it trains on all rows", REMOVE
        yield "spec.data.mixture", bool(data.mixture), "it has equal parts of its domains", REMOVE
        yield "spec.data.curriculum", data.curriculum is not None, "it has no option for it", REMOVE
        reason = "its pipeline for images is another program"
        yield "spec.data.imageKey", data.image_key is not None, reason, REMOVE
        yield "spec.data.chatTemplate", data.chat_template is not None, "it uses the tokenizer's", REMOVE
        reason = "it removes longer prompts"
        yield "spec.data.overlongPrompts", data.overlong_prompts != "filter", reason, REMOVE
        yield "spec.data.shuffle", not data.shuffle, "it always shuffles", REMOVE
    yield from list_evaluation(spec, "it reads files with the columns messages, ground_truth, tag and id")


def _list_rewards(spec: RLTrainingJobSpec) -> Iterator[Unsupported]:
    fix = "remove it, use name: math, or a class in function.name, or framework.overrides such as rewards.NAME.…"
    for index, reward in enumerate(spec.rewards):
        field = f"spec.rewards[{index}]"
        reason = "it has a rule for mathematics"
        yield f"{field}.name", reward.name not in (None, "math"), reason, fix
        for name in ("model", "judge"):
            yield f"{field}.{name}", getattr(reward, name) is not None, "its judges are other workers", fix
        yield f"{field}.env", bool(reward.env), "the class runs with the variables of the pod", REMOVE
        yield f"{field}.weight", reward.weight != 1, "each row has one reward", REMOVE
        yield field, index > 0, "each row has one reward", REMOVE


def _list_algorithm(spec: RLTrainingJobSpec) -> Iterator[Unsupported]:
    algorithm = spec.algorithm
    field = "spec.algorithm"
    yield f"{field}.convention", algorithm.convention != "verl", "it has its own formulas", REMOVE
    for name, path in {"advantage_function": "advantageFunction", "policy_loss_function": "policyLossFunction"}.items():
        yield f"{field}.{path}", getattr(algorithm, name) is not None, "it has no setting for it", REMOVE
    reason = f"it has {', '.join(ESTIMATORS)}"
    yield f"{field}.advEstimator", algorithm.adv_estimator not in ESTIMATORS, reason, REMOVE
    reason = "it discounts the rewards of grpo"
    discounts = algorithm.gamma != 1 and algorithm.adv_estimator in ("grpo", "reinforce_plus_plus_baseline")
    yield f"{field}.gamma", discounts, reason, REMOVE
    yield f"{field}.policyLoss", algorithm.policy_loss not in POLICY_LOSSES, "it has vanilla and gspo", REMOVE
    reason = "its constant is 1 + 2 x clipRatio: use dual_clip_loss=true in framework.overrides"
    yield f"{field}.clipRatioC", algorithm.clip_ratio_c is not None, reason, REMOVE
    yield f"{field}.klLossType", algorithm.kl_loss_type != "low_var_kl", "its KL loss is k3", REMOVE
    if control := algorithm.kl_in_reward:
        reason = f"it has {', '.join(KL_PENALTIES)}"
        yield f"{field}.klInReward.estimator", control.estimator not in KL_PENALTIES, reason, REMOVE
    reason = "use rewards.math_rule.query_filter_config and is_use_additional_prompts in framework.overrides"
    yield f"{field}.filterGroups", algorithm.filter_groups is not None, reason, REMOVE
    yield f"{field}.overlongBuffer", algorithm.overlong_buffer is not None, "it has no such penalty", REMOVE
    yield f"{field}.topEntropyQuantile", algorithm.top_entropy_quantile < 1, "it has no option for it", REMOVE
    yield f"{field}.dpo", algorithm.dpo is not None, "its DPO is another pipeline", REMOVE
    reason = "its distillation is another pipeline"
    yield f"{field}.distillation", algorithm.distillation is not None, reason, REMOVE
    reason = "with FSDP2 it has no option for it"
    yield f"{field}.routerAuxLossCoef", algorithm.router_aux_loss_coef > 0, reason, REMOVE
    yield f"{field}.routerBiasUpdateRate", algorithm.router_bias_update_rate > 0, reason, REMOVE
    yield f"{field}.routerReplay", algorithm.router_replay != "disabled", reason, REMOVE
    if correction := algorithm.rollout_correction:
        reason = "its own settings decide whether it computes the log-probabilities again"
        yield f"{field}.rolloutCorrection.bypassMode", correction.bypass_mode, reason, REMOVE
        reason = "use train_infer_correction.filters in framework.overrides"
        yield f"{field}.rolloutCorrection.level", correction.level == "none", reason, REMOVE
        yield f"{field}.rolloutCorrection.rejection", correction.rejection is not None, reason, REMOVE
        yield f"{field}.rolloutCorrection.lowerThreshold", correction.lower_threshold is not None, reason, REMOVE
    if critic := algorithm.critic:
        yield f"{field}.critic.modelRevision", critic.model_revision is not None, "it loads the newest revision", REMOVE


def _list_training(spec: RLTrainingJobSpec) -> Iterator[Unsupported]:
    training = spec.training
    schedule = spec.training.lr_schedule
    given = training.total_epochs is not None
    reason = "it trains for a number of steps"
    yield "spec.training.totalEpochs", given, reason, "use totalSteps"
    yield "spec.training.optimizer", training.optimizer != "adamw", "it trains with AdamW", REMOVE
    reason = "with FSDP2 it has no option for it"
    given = training.expert_parallel_size > 1
    yield "spec.training.expertParallelSize", given, reason, REMOVE
    yield "spec.training.warmup", training.warmup is not None, "its SFT pipeline is another program", REMOVE
    reason = "with FSDP2 it has fixed micro-batches"
    yield "spec.training.useDynamicBsz", training.use_dynamic_bsz, reason, REMOVE
    if schedule:
        reason = "the rate decays to 0 at the end of the training"
        yield "spec.training.lrSchedule.minRatio", schedule.min_ratio != 0, reason, REMOVE
        yield "spec.training.lrSchedule.decaySteps", schedule.decay_steps is not None, reason, REMOVE


def _list_running(spec: RLTrainingJobSpec) -> Iterator[Unsupported]:
    rollout = spec.rollout
    checkpoint = spec.checkpoint
    observability = spec.observability
    reason = "it generates with vLLM, or with SGLang by framework.overrides"
    yield "spec.rollout.engine", rollout.engine != "vllm", reason, REMOVE
    reason = "its agentic pipeline is another program: use framework.type: command"
    yield "spec.rollout.multiTurn", rollout.multi_turn is not None, reason, REMOVE
    yield "spec.rollout.minP", rollout.min_p > 0, "it has no option for it", REMOVE
    counts = {group.accelerator.count for group in spec.cluster.workers if group.accelerator}
    reason = "all its nodes have the same number of devices"
    fix = "use the same accelerator.count"
    yield "spec.cluster.workers[1].accelerator.count", len(counts) > 1, reason, fix
    yield "spec.checkpoint.keepBest", checkpoint.keep_best, "it keeps the latest checkpoints", REMOVE
    reason = "a checkpoint counts once all of its parts are written"
    yield "spec.checkpoint.asynchronous", checkpoint.asynchronous, reason, REMOVE
    reason = "the status has no path of one of its checkpoints, whose folder is named after a time"
    fix = "use resume: path, with the folder in resumeFromPath"
    yield "spec.checkpoint.resume", checkpoint.resume == "job", reason, fix
    yield "spec.observability.recordSteps", bool(observability.record_steps), "it records no steps", REMOVE
    both = bool(observability.wandb and observability.tensorboard)
    yield "spec.observability.tensorboard", both, "it has one tracker", "remove it, or wandb"
    reason = "use profiler_timeline=true in framework.overrides"
    yield "spec.observability.profiler", observability.profiler is not None, reason, REMOVE
    file = observability.timeline.file if observability.timeline else None
    reason = "it writes a file for each step to profile in the run directory"
    yield "spec.observability.timeline.file", file is not None, reason, REMOVE


RULES = (
    validate_roll_fields,
    validate_roll_overrides,
)
