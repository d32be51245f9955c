"""Warnings about valid specs that are probably a mistake: for `rlt validate` and the webhook."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from rlt_api.blocks.algorithm import Algorithm
from rlt_api.frameworks.command.launchers import warn_launchers
from rlt_api.frameworks.command.shell_words import warn_shell_words
from rlt_api.frameworks.registry import get_framework
from rlt_api.frameworks.warnings import warn_framework
from rlt_api.model import ApiModel
from rlt_api.rules.evaluation import warn_late_suites
from rlt_api.rules.memory import explain_long_micro_batch, explain_missing_memory_check
from rlt_api.rules.services import warn_urls
from rlt_api.rules.volume_size import warn_small_volume
from rlt_api.spec.hub_downloads import is_on_hub
from rlt_api.spec.job_spec import RLTrainingJobSpec
from rlt_api.validation.environment_warnings import (
    warn_cache_folders,
    warn_environment,
    warn_old_debugger,
    warn_slow_transport,
    warn_unexpanded_values,
)
from rlt_api.validation.template_shape import warn_template_shape
from rlt_api.validation.unlikely_values import (
    warn_answer_form,
    warn_few_cpus,
    warn_learning_rate,
    warn_paths_outside_volumes,
    warn_quantized_model,
    warn_settings_without_effect,
    warn_short_deadline,
    warn_training_on_cpus,
    warn_turns,
    warn_utilization,
    warn_weights,
)

CLIPPING_LOSSES = ("vanilla", "gspo", "cispo", "geo_mean", "dppo_tv", "dppo_kl", "clip_cov")
LOSSES_THAT_READ = {
    "clip_ratio": CLIPPING_LOSSES,
    "clip_ratio_low": CLIPPING_LOSSES,
    "clip_ratio_high": CLIPPING_LOSSES,
    "clip_ratio_c": ("vanilla", "dppo_tv", "dppo_kl"),
    "tau_pos": ("sapo",),
    "tau_neg": ("sapo",),
    "ppo_kl_coef": ("kl_cov",),
}
"""Settings of spec.algorithm -> the values of policyLoss that read them."""
SELECTIONS_THAT_READ = {
    "clip_cov_ratio": ("clip_cov",),
    "clip_cov_lb": ("clip_cov",),
    "clip_cov_ub": ("clip_cov",),
    "kl_cov_ratio": ("kl_cov",),
}
"""Settings of spec.algorithm -> the values of policyLoss whose selection of tokens reads them."""
ESTIMATORS_THAT_READ = {
    "norm_adv_by_std_in_grpo": ("grpo", "grpo_passk"),
    "gamma": ("gae", "reinforce_plus_plus"),
    "lam": ("gae",),
}
"""Settings of spec.algorithm -> the values of advEstimator that read them."""


def find_warnings(spec: RLTrainingJobSpec) -> Iterator[str]:
    """Yield one sentence for each warning, with the field and its value first."""
    yield from warn_template_shape(spec)
    yield from warn_few_cpus(spec)
    yield from warn_environment(spec)
    yield from warn_slow_transport(spec)
    yield from warn_cache_folders(spec)
    yield from warn_old_debugger(spec)
    yield from warn_settings_without_effect(spec)
    yield from warn_shell_words(spec)
    yield from warn_launchers(spec)
    yield from warn_urls(spec)
    yield from warn_turns(spec)
    yield from warn_short_deadline(spec)
    yield from warn_unexpanded_values(spec)
    yield from warn_framework(spec)
    if get_framework(spec).reads_fields:
        yield from _warn_restarts_without_checkpoint(spec)
        yield from _warn_download_without_volume(spec)
        yield from _warn_memory(spec)
        yield from _warn_staleness_without_correction(spec)
        yield from _warn_unread_settings(spec.algorithm)
        yield from _warn_kl_cov_without_distance(spec)
        yield from warn_learning_rate(spec)
        yield from warn_training_on_cpus(spec)
        yield from warn_weights(spec)
        yield from warn_quantized_model(spec)
        yield from warn_utilization(spec)
        yield from warn_small_volume(spec)
        yield from warn_paths_outside_volumes(spec)
        yield from warn_answer_form(spec)
        yield from warn_late_suites(spec)


def _warn_restarts_without_checkpoint(spec: RLTrainingJobSpec) -> Iterator[str]:
    """A new attempt resumes only from a checkpoint that outlives the pods of the failed one."""
    restarts = spec.failure_policy.max_restarts
    checkpoint = spec.checkpoint
    storage = spec.storage
    if restarts == 0:
        return
    if checkpoint.resume == "never":
        reason = "checkpoint.resume is never"
        fix = "use checkpoint.resume: auto"
    elif checkpoint.save_freq < 1:
        reason = f"checkpoint.saveFreq is {checkpoint.save_freq}"
        fix = "set checkpoint.saveFreq to 1 or more"
    elif not storage.keeps_checkpoints:
        reason = "checkpoints are deleted with the pods without storage.claimName or storage.storageClassName"
        fix = "set one of them"
    else:
        return
    yield f"spec.failurePolicy.maxRestarts: {restarts}: each attempt starts from step 0, because {reason}; {fix}"


def _warn_download_without_volume(spec: RLTrainingJobSpec) -> Iterator[str]:
    """Without a volume, a downloaded model is lost with each pod."""
    storage = spec.storage
    if spec.model is None or not is_on_hub(spec):
        return
    if storage.outlives_pods or storage.model_cache or storage.hf_home:
        return
    reason = "each pod of each attempt downloads it, because the job has no volume that keeps it"
    fix = "set storage.claimName, storage.storageClassName or storage.modelCache"
    yield f"spec.model.path: {spec.model.path}: {reason}; {fix}"


def _warn_memory(spec: RLTrainingJobSpec) -> Iterator[str]:
    """A job may run out of memory that is accepted: if a size is unknown, or if responses are longer than expected."""
    if missing := explain_missing_memory_check(spec):
        field, fix = missing
        yield f"{field}: none: whether the job fits into the memory of its accelerators was not validated; {fix}"
    elif total := explain_long_micro_batch(spec):
        yield (
            f"spec.training.ppoMicroBatchSizePerDevice: {spec.training.ppo_micro_batch_size_per_device}: an update may "
            f"run out of memory. If all sequences of a micro-batch have the maximum length, it needs {total}; use "
            "useDynamicBsz: true, which limits the tokens of a micro-batch, or less"
        )


def _warn_staleness_without_correction(spec: RLTrainingJobSpec) -> Iterator[str]:
    """Stale responses have other probabilities than the policy: PPO's ratio alone ignores the difference."""
    if spec.rollout.staleness is not None and spec.algorithm.rollout_correction is None:
        yield (
            f"spec.rollout.staleness.maxSteps: {spec.rollout.staleness.max_steps}: responses of older weights are used "
            "without a correction; add algorithm.rolloutCorrection, {} uses the defaults"
        )


def _warn_unread_settings(algorithm: Algorithm) -> Iterator[str]:
    """Settings that the chosen loss or estimator does not read."""
    if algorithm.policy_loss_function is None:
        readers = LOSSES_THAT_READ | SELECTIONS_THAT_READ
        yield from _warn_unread(algorithm, readers, f"policyLoss {algorithm.policy_loss}")
    if algorithm.advantage_function is None:
        yield from _warn_unread(algorithm, ESTIMATORS_THAT_READ, f"advEstimator {algorithm.adv_estimator}")
    if algorithm.kl_loss_coef == 0:
        yield from _warn_unread(algorithm, {"kl_loss_type": ()}, "klLossCoef 0")
    if algorithm.kl_in_reward is not None and algorithm.kl_in_reward.type == "fixed":
        path = "spec.algorithm.klInReward"
        yield from _warn_unread(algorithm.kl_in_reward, {"target_kl": (), "horizon": ()}, "type fixed", path)
    if distillation := algorithm.distillation:
        path = "spec.algorithm.distillation"
        readers = dict.fromkeys(("topk", "log_prob_min_clamp"), ("forward_kl_topk",))
        yield from _warn_unread(distillation, readers, f"lossMode {distillation.loss_mode}", path)


def _warn_kl_cov_without_distance(spec: RLTrainingJobSpec) -> Iterator[str]:
    """At the first optimizer step of a batch the policy is the old one: kl_cov adds nothing there."""
    training = spec.training
    size = training.ppo_mini_batch_size or training.train_batch_size
    has_one_update = training.ppo_epochs == 1 and size == training.train_batch_size
    if spec.algorithm.policy_loss == "kl_cov" and has_one_update:
        yield (
            "spec.algorithm.policyLoss: kl_cov: the only optimizer step of a batch adds no distance from the old "
            "policy; use a ppoMiniBatchSize below trainBatchSize, or ppoEpochs above 1"
        )


def _warn_unread(
    block: ApiModel, readers: Mapping[str, tuple[str, ...]], choice: str, path: str = "spec.algorithm"
) -> Iterator[str]:
    for name, choices in readers.items():
        field = type(block).model_fields[name]
        value = getattr(block, name)
        if value != field.default and choice.partition(" ")[2] not in choices:
            used = f"; it is used by {' and '.join(choices)}" if choices else "; remove it"
            yield f"{path}.{field.alias}: {value}: {choice} does not use it{used}"
