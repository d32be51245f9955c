"""Framework verl: fields of a spec that verl has no setting for, and overrides that contradict the pods."""

from __future__ import annotations

import re
from collections.abc import Iterator

from rlt_api.findings.finding import Finding, printable
from rlt_api.frameworks.arguments import parse_overrides
from rlt_api.frameworks.run import Run
from rlt_api.frameworks.validation_set import list_evaluation
from rlt_api.frameworks.verl.settings import is_old, list_settings
from rlt_api.rules.locations import list_files
from rlt_api.rules.unsupported import REMOVE, TYPE, Unsupported, build_findings, list_model
from rlt_api.spec.job_spec import RLTrainingJobSpec

OVERRIDES = "spec.framework.overrides"
PODS = {
    "trainer.nnodes": "spec.cluster.workers[].replicas",
    "trainer.n_gpus_per_node": "spec.cluster.workers[].accelerator.count",
    "actor_rollout_ref.rollout.nnodes": "spec.cluster.workers[].replicas",
    "actor_rollout_ref.rollout.n_gpus_per_node": "spec.cluster.workers[].accelerator.count",
}
"""Key -> the field that determines it. Ray waits for nodes and devices that do not exist."""


def validate_verl_fields(spec: RLTrainingJobSpec) -> Iterator[Finding]:
    """framework.type verl rejects fields that change the training and have no counterpart in the settings of verl."""
    entries = [*_list_sources(spec), *_list_rewards(spec), *_list_learning(spec), *_list_running(spec)]
    if is_old(spec.framework):
        entries += _list_newer_than_0_5(spec)
    yield from build_findings(spec, entries)


def validate_verl_overrides(spec: RLTrainingJobSpec) -> Iterator[Finding]:
    """framework.overrides are Hydra overrides, and do not contradict the number of pods and their accelerators."""
    rule = "framework-overrides"
    for index, text in enumerate(spec.framework.overrides):
        if not re.fullmatch(r"(\+\+?)?[A-Za-z_][\w./@-]*=.*|~[A-Za-z_][\w./@-]*(=.*)?", text, re.DOTALL):
            field = f"{OVERRIDES}[{index}]"
            message = "is not an override of Hydra"
            fix = "write KEY=VALUE, such as trainer.balance_batch=false"
            yield Finding(field, printable(text), message, fix, rule=rule, involved=(TYPE,))
    if spec.model is None or spec.data is None:
        return
    settings = list_settings(spec, Run("", "", ""))
    for argument in parse_overrides(spec.framework.overrides):
        owner = PODS.get(argument.key)
        value = settings.get(argument.key)
        if owner and value is not None and argument.value != str(value):
            field = f"{OVERRIDES}[{argument.index}]"
            given = printable(f"{argument.key}={argument.value}")
            message = f"contradicts {owner}: {value}, so that verl would wait"
            fix = "remove it, and change the worker group"
            yield Finding(field, given, message, fix, rule=rule, involved=(TYPE, owner))


def _list_sources(spec: RLTrainingJobSpec) -> Iterator[Unsupported]:
    yield from list_model(spec)
    data = spec.data
    if data:
        reason = "it reads Parquet files with the columns of verl's examples"
        fix = "write them, and use data.files"
        for source in ("preset", "hub", "inline"):
            yield f"spec.data.{source}", getattr(data, source) is not None, reason, fix
        reason = "it reads the answers from the column reward_model, ground_truth"
        yield "spec.data.answerKey", data.answer_key != "answer", reason, REMOVE
        yield "spec.data.filters", bool(data.filters), "it trains on all rows", REMOVE
        yield "spec.data.mixture", bool(data.mixture), "it has no weights of data sets", REMOVE
        yield "spec.data.curriculum", data.curriculum is not None, "it has no order by difficulty", REMOVE
    yield from list_evaluation(spec, "it reads Parquet files with the columns of verl's examples")


def _list_rewards(spec: RLTrainingJobSpec) -> Iterator[Unsupported]:
    reason = "its rule follows from the column data_source"
    fix = "remove it, or use rewards[].function"
    for index, reward in enumerate(spec.rewards):
        field = f"spec.rewards[{index}]"
        yield f"{field}.name", reward.name is not None, reason, fix
        for name in ("model", "judge"):
            yield f"{field}.{name}", getattr(reward, name) is not None, "it has no field for it", fix
        yield f"{field}.env", bool(reward.env), "the function runs with the variables of the pod", REMOVE
        yield f"{field}.weight", reward.weight != 1, "the function is the whole reward", REMOVE
        yield field, index > 0, "it has one reward function", REMOVE


def _list_learning(spec: RLTrainingJobSpec) -> Iterator[Unsupported]:
    algorithm = spec.algorithm
    training = spec.training
    function = "select it by a module of your image and framework.overrides"
    field = "spec.algorithm"
    yield f"{field}.convention", algorithm.convention != "verl", "it has its own formulas", REMOVE
    yield f"{field}.advantageFunction", algorithm.advantage_function is not None, function, REMOVE
    yield f"{field}.policyLossFunction", algorithm.policy_loss_function is not None, function, REMOVE
    reason = "responses of the maximum length always count"
    yield f"{field}.maskTruncatedCompletions", algorithm.mask_truncated_completions, reason, REMOVE
    yield f"{field}.topEntropyQuantile", algorithm.top_entropy_quantile < 1, "it has no option for it", REMOVE
    yield f"{field}.dpo", algorithm.dpo is not None, "it trains with reinforcement learning", REMOVE
    reason = "its teachers use separate GPUs: set its distillation keys in framework.overrides"
    yield f"{field}.distillation", algorithm.distillation is not None, reason, REMOVE
    reason = "its FSDP backend has no option for it"
    yield f"{field}.routerAuxLossCoef", algorithm.router_aux_loss_coef > 0, reason, REMOVE
    yield f"{field}.routerBiasUpdateRate", algorithm.router_bias_update_rate > 0, reason, REMOVE
    yield f"{field}.routerReplay", algorithm.router_replay != "disabled", reason, REMOVE
    critic = algorithm.critic
    schedule = training.lr_schedule
    if critic:
        reason = "it loads the newest revision"
        fix = "copy the revision to a volume, and use its path"
        yield f"{field}.critic.modelRevision", critic.model_revision is not None, reason, fix
    yield "spec.training.optimizer", training.optimizer != "adamw", "it trains with AdamW", REMOVE
    reason = "its FSDP backend has no option for it"
    given = training.expert_parallel_size > 1
    yield "spec.training.expertParallelSize", given, reason, REMOVE
    yield "spec.training.warmup", training.warmup is not None, "its SFT trainer is another program", REMOVE
    if schedule:
        reason = "it has the schedules constant and cosine"
        yield "spec.training.lrSchedule.type", schedule.type == "linear", reason, REMOVE
        reason = "the decay ends with the training"
        yield "spec.training.lrSchedule.decaySteps", schedule.decay_steps is not None, reason, REMOVE


def _list_running(spec: RLTrainingJobSpec) -> Iterator[Unsupported]:
    rollout = spec.rollout
    checkpoint = spec.checkpoint
    yield "spec.rollout.engine", rollout.engine != "vllm", "it generates with vLLM", REMOVE
    yield "spec.rollout.minP", rollout.min_p > 0, "it has no option for it", REMOVE
    yield "spec.rollout.stop", bool(rollout.stop), "it has no option for it", REMOVE
    reason = "its tools and agents are classes in the image, selected by framework.overrides"
    yield "spec.rollout.multiTurn", rollout.multi_turn is not None, reason, REMOVE
    yield "spec.checkpoint.keepBest", checkpoint.keep_best, "it keeps the latest checkpoints", REMOVE
    reason = "verl 0.9 does not resume from checkpoints that it saves asynchronously"
    yield "spec.checkpoint.asynchronous", checkpoint.asynchronous, reason, REMOVE
    yield "spec.observability.recordSteps", bool(spec.observability.record_steps), "it records no steps", REMOVE


def _list_newer_than_0_5(spec: RLTrainingJobSpec) -> Iterator[Unsupported]:
    algorithm = spec.algorithm
    fix = 'remove it, or use framework.version: "0.9"'
    yield "spec.algorithm.policyLoss", algorithm.policy_loss != "vanilla", "version 0.5 has vanilla alone", fix
    yield "spec.algorithm.filterGroups", algorithm.filter_groups is not None, "version 0.5 has no filter", fix
    reason = "version 0.5 has no correction"
    yield "spec.algorithm.rolloutCorrection", algorithm.rollout_correction is not None, reason, fix
    rollout = spec.rollout
    reason = "version 0.5 has no asynchronous trainer in main_ppo"
    yield "spec.rollout.mode", rollout.mode != "colocated", reason, fix
    yield "spec.rollout.staleness", rollout.staleness is not None, reason, fix
    yield "spec.rollout.quantization", rollout.quantization is not None, "version 0.5 has no key for it", fix
    reason = "version 0.5 has no estimators with a +"
    yield "spec.algorithm.klLossType", algorithm.kl_loss_type.endswith("+"), reason, fix
    reason = "version 0.5 trains the vision tower"
    frozen = bool(spec.model and spec.model.freeze_vision_tower)
    yield "spec.model.freezeVisionTower", frozen, reason, fix
    reason = "version 0.5 computes in bfloat16"
    yield "spec.model.dtype", bool(spec.model and spec.model.dtype != "bfloat16"), reason, fix
    profiler = spec.observability.profiler
    yield "spec.observability.profiler", profiler is not None, "version 0.5 has no torch.profiler", fix
    for field, path in list_files(spec):
        yield field, not path.endswith(".parquet"), "version 0.5 reads Parquet alone", fix
    for index, reward in enumerate(spec.rewards):
        reason = "version 0.5 loads a file, not a module of the image"
        in_image = bool(reward.function and reward.function.config_map is None)
        yield f"spec.rewards[{index}].function.name", in_image, reason, "add configMap"


RULES = (
    validate_verl_fields,
    validate_verl_overrides,
)
