"""Every field of spec.algorithm and spec.training changes a known number of the real off-policy update.

The rows are computed by hand. A field without a row fails a test, as does a row with the default's number.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest
import torch
import torch.distributed as dist
from torch._C._distributed_c10d import HashStore
from torch.distributed.device_mesh import init_device_mesh
from torch.testing import assert_close

from rlt_api.blocks.algorithm import Algorithm, PolicyLoss
from rlt_api.blocks.evaluation import Evaluation
from rlt_api.blocks.model import Model
from rlt_api.blocks.training import Training
from rlt_api.model import ApiModel
from rlt_api.spec.training_config import TrainingConfig
from rlt_api.validation.warnings import LOSSES_THAT_READ
from rlt_trainer.algorithms.kl_controller import KlController
from rlt_trainer.batches.pairs import Pairs
from rlt_trainer.batches.response import Response
from rlt_trainer.batches.rollout_batch import RolloutBatch
from rlt_trainer.batches.scores import Scores
from rlt_trainer.batches.sequences import Experience, MiniBatch, Sequences
from rlt_trainer.batches.update_result import OwnPass, UpdateResult
from rlt_trainer.data.prompt import Prompt
from rlt_trainer.driver.data_parallel import DataParallel
from rlt_trainer.driver.experience import TrainingBatch, build_experience
from rlt_trainer.policy.actor import Actor
from rlt_trainer.policy.critic import Critic
from rlt_trainer.policy.log_probs import response_log_probs
from rlt_trainer.policy.micro_batches import MicroBatchSize, split_micro_batches
from rlt_trainer.policy.model import load_model
from rlt_trainer.telemetry.stopwatch import Stopwatch
from rlt_trainer.workers.train_worker import TrainWorker

pytestmark = pytest.mark.usefixtures("process_group")
Json = dict[str, Any]
HERE = Path(__file__).parent
SEQUENCES = Sequences.pad([[50, 51], [60]], [[70, 71, 72], [80]], pad_token_id=0)
RATIOS = torch.tensor([[2.0, 0.5, 0.6], [4.0, 1.0, 1.0]])
"""Of the current to the old probabilities: beyond every bound of a clip. The last two are padding."""
ADVANTAGES = torch.tensor([[1.0, 1.0, -1.0], [-1.0, 0.0, 0.0]])
DIVERGENCE = torch.tensor([[0.5, -0.25, 0.1], [0.3, 0.0, 0.0]])
"""Log-probability of the policy minus the reference's."""
SELECTED = torch.tensor([[False, True, False], [False, False, False]])
"""The token that clip_cov and kl_cov select."""
TEMPERATURE = 0.7


class Update:
    """An actor on one rank whose batch is off-policy."""

    def __init__(self, files: str, algorithm: Json, training: Json | None = None) -> None:
        self.actor = Actor(
            files,
            model=Model(),
            dtype=torch.float32,
            mesh=init_device_mesh("cpu", (1,)),
            algorithm=Algorithm.model_validate({"klLossCoef": 0.0, **algorithm}),
            training=Training.model_validate({"totalSteps": 10, "learningRate": 1e-3, **(training or {})}),
            temperature=TEMPERATURE,
            max_response_length=8,
        )
        self.log_probs = self.actor.log_probs(SEQUENCES)[0]
        self.has_top = algorithm.get("distillation", {}).get("lossMode") == "forward_kl_topk"

    def step(self, advantages: torch.Tensor = ADVANTAGES) -> UpdateResult:
        old = self.log_probs - RATIOS.log()
        reference = self.log_probs - DIVERGENCE
        teacher = (self.log_probs + 0.5)[..., None] if self.has_top else reference
        experience = Experience(
            SEQUENCES,
            old,
            advantages,
            ref_log_probs=reference,
            teacher_log_probs=teacher,
            teacher_ids=SEQUENCES.responses[..., None] if self.has_top else None,
            selected=SELECTED,
        )
        return self.actor.update(MiniBatch(experience, total_tokens=4, total_sequences=2))

    def state(self) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Return the output layer, and AdamW's averages of its gradient and of its square."""
        weight = self.actor.model.get_output_embeddings().weight  # type: ignore[no-untyped-call]
        averages = self.actor.optimizers[0].state[weight]
        return tuple(each.full_tensor().clone() for each in (weight, averages["exp_avg"], averages["exp_avg_sq"]))


def loss(files: str, algorithm: Json, training: Json) -> float:
    return Update(files, algorithm, training).step().shares["actor/pg_loss"]


def cispo_weight(files: str, algorithm: Json, training: Json) -> float:
    """The weight of the first token, whose ratio is 2: the loss of that token alone is -weight * log-probability."""
    update = Update(files, algorithm, training)
    only = torch.zeros_like(ADVANTAGES)
    only[0, 0] = 4.0  # the mean is over four tokens
    return -update.step(only).shares["actor/pg_loss"] / float(update.log_probs[0, 0])


def kl(files: str, algorithm: Json, training: Json) -> float:
    return Update(files, {"klLossCoef": 0.1, **algorithm}, training).step().shares["actor/kl_loss"]


def gradient(files: str, algorithm: Json, training: Json) -> float:
    """The norm of the gradient without advantages, as a multiple of that with both coefficients at 0.1."""
    zeros = torch.zeros_like(ADVANTAGES)
    unit = {"klLossCoef": 0.1} if "klLossCoef" in algorithm or not algorithm else {"entropyCoeff": 0.1}
    mine = Update(files, algorithm or {"klLossCoef": 0.001}, training).step(zeros).grad_norm
    return mine / Update(files, unit, training).step(zeros).grad_norm


def teacher_distance(files: str, algorithm: Json, training: Json) -> float:
    return Update(files, algorithm, training).step().shares["distillation/abs_loss"]


def top_divergence(files: str, algorithm: Json, training: Json) -> float:
    """The loss per probability of the teacher's one token, whose log-probability is 0.5 above the policy's."""
    shares = Update(files, algorithm, training).step().shares
    return shares["distillation/loss"] / shares.get("distillation/teacher_mass", 1.0)


def teacher_gradient(files: str, algorithm: Json, training: Json) -> float:
    """The gradient norm, as a multiple of the distillation's alone with a coefficient of 0.1."""
    unit = {"distillation": {"modelPath": "/teacher", "lossCoef": 0.1}}
    alone = Update(files, unit).step(torch.zeros_like(ADVANTAGES))
    return Update(files, algorithm, training).step().grad_norm / alone.grad_norm


def chosen_reward(files: str, algorithm: Json, training: Json) -> float:
    """The implicit reward of the first response, whose log-probability is 0.35 above the reference's."""
    update = Update(files, algorithm, training)
    mask = SEQUENCES.response_mask
    reference = ((update.log_probs - DIVERGENCE) * mask).sum(-1)
    return update.actor.preference_step(Pairs.split(SEQUENCES, reference), 1).shares["rewards/chosen"]


def decay(files: str, algorithm: Json, training: Json) -> float:
    """The relative decrease of a weight without gradient, per learning rate."""
    update = Update(files, algorithm, training)
    before = update.actor.model.get_output_embeddings().weight.full_tensor().clone()  # type: ignore[no-untyped-call]
    update.step(torch.zeros_like(ADVANTAGES))
    return float((1 - update.state()[0].detach() / before).median()) / 1e-3


def change(files: str, algorithm: Json, training: Json) -> float:
    """The largest change of a weight in the first step of AdamW, which is the learning rate."""
    update = Update(files, algorithm, {"weightDecay": 0.0, **training})
    before = update.actor.model.get_output_embeddings().weight.full_tensor().clone()  # type: ignore[no-untyped-call]
    update.step()
    return float((update.state()[0] - before).detach().abs().max())


def averages(files: str, algorithm: Json, training: Json) -> float:
    """(1 - beta1)^2 / (1 - beta2): a gradient's first average, squared, divided by the first average of its square."""
    update = Update(files, algorithm, training)
    update.step()
    _, average, squares = update.state()
    row = int(squares.flatten().argmax())
    return float(average.flatten()[row] ** 2 / squares.flatten()[row])


def clipped_norm(files: str, algorithm: Json, training: Json) -> float:
    """The norm of the gradient that reaches the optimizer, from its first averages: 0.1 times the gradient."""
    update = Update(files, algorithm, training)
    update.step()
    state = update.actor.optimizers[0].state
    return float(sum(each["exp_avg"].full_tensor().square().sum() for each in state.values()).sqrt()) / 0.1


def rate(files: str, algorithm: Json, training: Json) -> float:
    """The learning rate of step 6 of 10, as a share of training.learningRate."""
    update = Update(files, algorithm, training)
    update.actor.set_step(6)
    return update.step().learning_rate / 1e-3


def value_update(files: str, block: Json) -> tuple[Critic, UpdateResult]:
    """Update a critic whose values are 1 above the old ones and equal to the returns."""
    critic = Critic(
        files,
        model=Model(),
        dtype=torch.float32,
        mesh=init_device_mesh("cpu", (1,)),
        algorithm=Algorithm.model_validate({"advEstimator": "gae", "critic": block}),
        training=Training(total_steps=9),
        max_response_length=8,
    )
    values = critic.values(SEQUENCES)
    experience = Experience(SEQUENCES, values, values, values=values - 1, returns=values)
    return critic, critic.update(MiniBatch(experience, 4, 2))


def value_loss(files: str, algorithm: Json, training: Json) -> float:
    return value_update(files, algorithm.get("critic", {}))[1].shares["critic/vf_loss"]


def value_rate(files: str, algorithm: Json, training: Json) -> float:
    return value_update(files, algorithm.get("critic", {}))[1].learning_rate


class OneWorker:
    """A train worker with known log-probabilities and values."""

    def __len__(self) -> int:
        return 1

    def each(self, method: Callable[..., Any], *columns: Sequence[Any]) -> list[Any]:
        ((sequences,),) = columns
        known = {TrainWorker.ref_log_probs: -2.5, TrainWorker.values: 0.25}.get(method, -2.0)
        values = np.full(sum(sequences.response_lengths()), known, dtype=np.float32)
        return [(values, -values) if method is TrainWorker.log_probs else (values,)]


def experience(algorithm: Json, controller: KlController | None = None) -> TrainingBatch:
    """Build the experience of two responses to one prompt. The scores are 1 and 0."""
    total = torch.tensor([1.0, 0.0])
    batch = RolloutBatch(
        [Prompt(0, (1, 2), "1+1=", "2", "2", "sums")] * 2,
        [Response((7, 8), (-3.0, -2.5)), Response((7,), (-2.0,))],  # ratios e, e^0.5 and 1
        [""] * 2,
        Scores(total, {"exact": total}, total.isnan(), {}),
        torch.zeros(2),
        torch.tensor([0.25, 0.25]),
    )
    blocks: Json = {
        "job": "tiny",
        "namespace": "default",
        "runDirectory": "run",
        "workers": 1,
        "devicesPerWorker": 0,
        "cpusPerWorker": 1,
        "model": {"fromSeed": {}},
        "data": {"preset": "arithmetic"},
        "rewards": [{"name": "exact"}],
        "algorithm": {"klLossCoef": 0.0, **algorithm},
        "training": {"totalSteps": 1, "ppoMiniBatchSize": 1},
        "rollout": {"responsesPerPrompt": 2},
        "checkpoint": {},
    }
    config = TrainingConfig.model_validate(blocks)
    result = build_experience(
        config,
        batch,
        data_parallel=DataParallel(OneWorker(), context_parallel_size=1),
        kl_controller=controller,
        pad_token_id=0,
        stopwatch=Stopwatch(),
    )
    values = np.full(2, -2.0, dtype=np.float32)  # of the first response, which is the first mini-batch
    return result.complete(config, [[UpdateResult({}, 0.0, False, 0.0, OwnPass((0,), values, -values))]])


def advantage(files: str, algorithm: Json, training: Json) -> float:
    return float(experience(algorithm).experience.advantages[0, 0])


def first_return(files: str, algorithm: Json, training: Json) -> float:
    """The return of the first token in two: with values of 0.25, 0.25 gamma + 0.75 gamma lambda."""
    returns = experience({"advEstimator": "gae", "critic": {}, **algorithm}).experience.returns
    assert returns is not None
    return float(returns[0, 0])


def kl_controller(algorithm: Json) -> KlController:
    block = Algorithm.model_validate(algorithm).kl_in_reward
    assert block is not None
    return KlController(block.type, block.kl_coef, target=block.target_kl, horizon=block.horizon)  # as in loop.py


def reward(files: str, algorithm: Json, training: Json) -> float:
    """The reward of the first response: its score minus the coefficient times two tokens' divergence of 0.5."""
    algorithm = {"klInReward": {}, **algorithm}
    return float(experience(algorithm, kl_controller(algorithm)).rewards[0])


def coefficient(files: str, algorithm: Json, training: Json) -> float:
    """The coefficient after one step of two responses, whose divergence is 0.5."""
    controller = kl_controller(algorithm)
    experience(algorithm, controller)
    return controller.coefficient


def weight(files: str, algorithm: Json, training: Json) -> float:
    weights = experience({"rolloutCorrection": {}, **algorithm}).experience.weights
    return 1.0 if weights is None else float(weights[0, 0])


def old_log_prob(files: str, algorithm: Json, training: Json) -> float:
    """The old policy's log-probability of the first token: the trainer's, or the engine's."""
    return float(experience(algorithm).experience.old_log_probs[0, 0])


def trained_tokens(files: str, algorithm: Json, training: Json) -> float:
    return float(experience({"rolloutCorrection": {}, **algorithm}).experience.sequences.response_mask.sum())


@dataclass(frozen=True)
class Row:
    """One field, the settings that it needs, and the number that it must give."""

    field: str
    value: Any
    measure: Callable[[str, Json, Json], float]
    expected: float
    given: Json | None = None
    """Other fields, nested. The same without `field` must give another number."""

    def settings(self, *, with_field: bool = True) -> tuple[Json, Json]:
        """Return the blocks algorithm and training."""
        blocks: Json = {"algorithm": {}, "training": {}}
        for path, value in (deepcopy(self.given or {}) | ({self.field: self.value} if with_field else {})).items():
            *parents, name = path.split(".")
            block = blocks
            for parent in parents:
                block = block.setdefault(parent, {})
            block[name] = value
        return blocks["algorithm"], blocks["training"]


A = "algorithm"
T = "training"
E = "evaluation"
LR = f"{T}.lrSchedule"
CORRECTION = f"{A}.rolloutCorrection"
REWARD_KL = f"{A}.klInReward"
DISTILLATION = f"{A}.distillation"
TEACHER = {f"{DISTILLATION}.modelPath": "/teacher"}
TEACHER_TOP = TEACHER | {f"{DISTILLATION}.lossMode": "forward_kl_topk"}
LINEAR = {f"{LR}.type": "linear"}
ADAPTIVE = {f"{REWARD_KL}.klCoef": 1.0, f"{REWARD_KL}.type": "adaptive", f"{REWARD_KL}.horizon": 10}
SEQUENCE_RATIO = 0.6 ** (1 / 3)


def soft(ratio: float, tau: float) -> float:
    return 4 / tau / (1 + math.exp(-tau * (ratio - 1)))


def sapo_loss(positive: float, negative: float) -> float:
    gains = soft(2.0, positive) + soft(0.5, positive)
    losses = soft(0.6, negative) + soft(4.0, negative)
    return (losses - gains) / 4


ROWS = (
    Row(f"{A}.convention", "trl", cispo_weight, 1.5, {f"{A}.policyLoss": "cispo", f"{A}.clipRatioHigh": 1.5}),
    Row(f"{A}.advEstimator", "rloo", advantage, 1.0),
    Row(f"{A}.normAdvByStdInGrpo", False, advantage, 0.5),
    Row(f"{A}.gamma", 0.5, first_return, 0.5),
    Row(f"{A}.lam", 0.5, first_return, 0.625),
    Row(f"{A}.policyLoss", "gspo", loss, (-2 * SEQUENCE_RATIO + SEQUENCE_RATIO + 4.0) / 4),
    Row(f"{A}.tauPos", 2.0, loss, sapo_loss(2.0, 1.05), {f"{A}.policyLoss": "sapo"}),
    Row(f"{A}.tauNeg", 2.0, loss, sapo_loss(1.0, 2.0), {f"{A}.policyLoss": "sapo"}),
    Row(f"{A}.ppoKlCoef", 0.3, loss, (-2 - 0.5 + 0.6 + 4.0 + 0.3 * math.log(2)) / 4, {f"{A}.policyLoss": "kl_cov"}),
    Row(f"{A}.clipRatio", 0.3, loss, (-1.3 - 0.5 + 0.7 + 4.0) / 4),
    Row(f"{A}.clipRatioLow", 0.3, loss, (-1.2 - 0.5 + 0.7 + 4.0) / 4),
    Row(f"{A}.clipRatioHigh", 0.5, loss, (-1.5 - 0.5 + 0.8 + 4.0) / 4),
    Row(f"{A}.clipRatioC", 3.0, loss, (-1.2 - 0.5 + 0.8 + 3.0) / 4),
    Row(f"{A}.klLossCoef", 0.3, gradient, 3.0),
    Row(f"{A}.klLossType", "mse", kl, (0.5**2 + 0.25**2 + 0.1**2 + 0.3**2) / 2 / 4),
    Row(f"{REWARD_KL}.klCoef", 0.1, reward, 1 - 0.1 * 2 * 0.5),
    Row(f"{REWARD_KL}.estimator", "mse", reward, 1 - 0.1 * 2 * 0.125, {f"{REWARD_KL}.klCoef": 0.1}),
    Row(f"{REWARD_KL}.type", "adaptive", coefficient, 1 + 0.2 * 2 / 10, ADAPTIVE | {f"{REWARD_KL}.type": "fixed"}),
    Row(f"{REWARD_KL}.targetKl", 1.0, coefficient, 1 - 0.2 * 2 / 10, ADAPTIVE),
    Row(f"{REWARD_KL}.horizon", 5, coefficient, 1 + 0.2 * 2 / 5, ADAPTIVE),
    Row(f"{A}.entropyCoeff", 0.3, gradient, 3.0, {}),
    Row(f"{A}.lossAggMode", "seq-mean-token-mean", loss, ((-1.2 - 0.5 + 0.8) / 3 + 4.0) / 2),
    Row(f"{CORRECTION}.level", "sequence", weight, math.exp(1.5), {f"{CORRECTION}.threshold": 10.0}),
    Row(f"{CORRECTION}.threshold", 2.5, weight, 2.5),
    Row(f"{CORRECTION}.lowerThreshold", 0.5, weight, 0.0),
    Row(f"{CORRECTION}.rejection", "seq_mean_k1", trained_tokens, 1.0, {f"{CORRECTION}.rejectionThreshold": 2.0}),
    Row(
        f"{CORRECTION}.rejectionThreshold",
        1.5,
        trained_tokens,
        1.0,
        {f"{CORRECTION}.rejection": "token_k1", f"{CORRECTION}.rejectionThreshold": 2.0},
    ),
    Row(f"{CORRECTION}.bypassMode", True, old_log_prob, -3.0),
    Row(f"{DISTILLATION}.lossMode", "forward_kl_topk", top_divergence, 0.5, TEACHER),
    Row(f"{DISTILLATION}.logProbMinClamp", -1.0, top_divergence, 0.0, TEACHER_TOP),
    Row(f"{DISTILLATION}.lossMaxClamp", 0.2, teacher_distance, (0.2 + 0.2 + 0.1 + 0.2) / 4, TEACHER),
    Row(f"{DISTILLATION}.lossCoef", 0.3, teacher_gradient, 3.0, TEACHER | {f"{DISTILLATION}.useTaskRewards": False}),
    Row(f"{DISTILLATION}.useTaskRewards", False, teacher_gradient, 10.0, TEACHER),
    Row(f"{A}.dpo.beta", 0.5, chosen_reward, 0.5 * (0.5 - 0.25 + 0.1), {f"{A}.dpo": {}}),
    Row(f"{A}.critic.learningRate", 1e-3, value_rate, 1e-3),
    Row(f"{A}.critic.cliprangeValue", 0.25, value_loss, (1 - 0.25) ** 2 / 2),
    Row(f"{T}.learningRate", 1e-2, change, 1e-2),
    Row(f"{T}.weightDecay", 0.5, decay, 0.5),
    Row(f"{T}.betas", [0.8, 0.9], averages, (1 - 0.8) ** 2 / (1 - 0.9)),
    Row(f"{T}.gradClip", 1e-3, clipped_norm, 1e-3),
    Row(f"{LR}.type", "linear", rate, 1 - 6 / 11, {LR: {}}),
    Row(f"{LR}.warmupSteps", 4, rate, 1 - 2 / 7, LINEAR),
    Row(f"{LR}.decaySteps", 7, rate, 1 - 6 / 8, LINEAR),
    Row(f"{LR}.minRatio", 0.5, rate, 0.5 + 0.5 * (1 - 6 / 11), LINEAR),
)

ELSEWHERE = {
    f"{A}.advantageFunction.name": "test_loop.py::test_user_defined_functions",
    f"{A}.advantageFunction.configMap": "test_loop.py::test_user_defined_functions",
    f"{A}.policyLossFunction.name": "test_policy_actor.py::test_a_user_defined_loss_is_used",
    f"{A}.policyLossFunction.configMap": "test_loop.py::test_user_defined_functions",
    f"{A}.filterGroups.metric": "test_loop.py::test_dynamic_sampling_keeps_only_groups_that_differ",
    f"{A}.filterGroups.maxNumGenBatches": "test_loop.py::test_dynamic_sampling_without_a_result_fails",
    f"{A}.overlongBuffer.length": "test_algorithms_shaping.py::"
    "test_the_overlong_penalty_grows_linearly_within_its_buffer",
    f"{A}.overlongBuffer.penaltyFactor": "test_algorithms_shaping.py::"
    "test_the_overlong_penalty_grows_linearly_within_its_buffer",
    f"{A}.maskTruncatedCompletions": "test_experience.py::test_truncated_responses_are_masked_and_count_in_their_group",
    f"{A}.topEntropyQuantile": "test_top_entropy.py::test_the_update_learns_from_the_selected_tokens_alone",
    **{
        f"{A}.{field}": "test_covariance.py::test_each_setting_changes_the_selected_tokens"
        for field in ("clipCovRatio", "clipCovLb", "clipCovUb", "klCovRatio")
    },
    f"{DISTILLATION}.modelPath": "test_distillation.py::test_a_teacher_is_loaded_by_path_and_revision",
    f"{DISTILLATION}.modelRevision": "test_distillation.py::test_a_teacher_is_loaded_by_path_and_revision",
    f"{DISTILLATION}.topk": "test_distillation_topk.py::test_the_teacher_returns_its_most_likely_tokens",
    f"{A}.routerAuxLossCoef": "test_policy_router_loss.py::test_the_coefficient_scales_the_gradient",
    f"{A}.routerBiasUpdateRate": "test_policy_router_bias.py::test_an_update_moves_the_biases_by_the_rate",
    f"{A}.routerReplay": "test_router_replay.py::test_the_update_uses_recorded_experts",
    f"{A}.critic.modelPath": "test_driver.py::test_a_critic_starts_from_the_policys_model_or_its_own",
    f"{A}.critic.modelRevision": "test_driver.py::test_a_critic_starts_from_the_policys_model_or_its_own",
    f"{A}.critic.warmupSteps": "test_loop.py::test_the_policy_is_not_updated_while_the_critic_warms_up",
    f"{A}.critic.useRemovePadding": "test_policy_critic.py::test_packed_values_equal_padded_values",
    f"{T}.collectiveTimeoutSeconds": "test_policy_mesh.py::test_a_collective_ends_at_its_timeout",
    f"{E}.name": "test_loop.py::test_a_run_with_two_suites_equals_one_without",
    f"{E}.every": "test_loop.py::test_a_suite_is_scored_when_due",
    f"{E}.beforeTrain": "test_loop.py::test_a_suite_is_scored_when_due",
    f"{E}.responsesPerPrompt": "test_loop.py::test_a_suite_of_several_responses_has_their_metrics",
    f"{E}.temperature": "test_loop.py::test_a_suite_of_several_responses_has_their_metrics",
    f"{E}.data.preset": "test_loop.py::test_suites_have_their_own_data_and_the_first_one_selects_the_best_checkpoint",
    **{
        f"{E}.data.{field}": "test_data_suites.py::test_a_suite_has_the_jobs_data_with_another_source"
        for field in (
            *("path", "files", "promptKey", "answerKey", "filters.column", "filters.values"),
            *(f"hub.{name}" for name in ("name", "config", "split", "revision")),
        )
    },
    f"{E}.promoteIf.metric": "test_evaluation_gate.py::test_best_and_maj_count_all_responses_of_a_prompt",
    f"{E}.promoteIf.gainAbove": "test_evaluation_gate.py::test_both_limits_apply",
    f"{E}.promoteIf.minimum": "test_evaluation_gate.py::test_both_limits_apply",
    f"{T}.totalEpochs": "test_every_setting_counts.py::test_epochs_are_converted_to_steps",
    f"{T}.optimizer": "test_policy_optimizers.py::test_muon_updates_the_matrices_of_the_layers_as_torchs_muon",
    f"{T}.seed": "test_data_dataset.py::test_epochs_and_seeds_differ_in_order",
    **{
        f"{T}.{field}": "test_every_setting_counts.py::test_batches_steps_and_warmup_follow_their_settings"
        for field in (
            *("totalSteps", "trainBatchSize", "ppoMiniBatchSize", "ppoEpochs"),
            *("warmup.steps", "warmup.batchSize", "warmup.learningRate"),
        )
    },
}
"""The other fields with an effect on numbers -> the test of that effect."""
MEMORY_AND_SPEED = (
    {
        f"{T}.{field}"
        for field in (
            *("strategy", "ppoMicroBatchSizePerDevice", "logProbMicroBatchSizePerDevice", "useDynamicBsz"),
            *(
                "ppoMaxTokenLenPerDevice",
                "contextParallelSize",
                "expertParallelSize",
                "useTorchCompile",
                "fsdp.fsdpSize",
                "fsdp.paramOffload",
            ),
            *("fsdp.optimizerOffload", "fsdp.reshardAfterForward", "reference.logProbMicroBatchSizePerDevice"),
            *("reference.fsdpSize", "reference.paramOffload"),
        )
    }
    | {
        f"{A}.critic.{field}"
        for field in ("ppoMicroBatchSizePerDevice", "enableGradientCheckpointing", "paramOffload", "optimizerOffload")
    }
    | {f"{DISTILLATION}.paramOffload"}
)
"""Fields that must not change a number (test_policy_ranks.py and test_policy_expert_parallel.py
compare most of them)."""


def leaves(block: type[ApiModel], path: str) -> Iterator[str]:
    """Yield the path of each field that is not a block."""
    for field in block.model_fields.values():
        here = f"{path}.{field.alias}"
        parts = (field.annotation, *get_args(field.annotation))
        inner = [each for each in parts if isinstance(each, type) and issubclass(each, ApiModel)]
        yield from (leaf for each in inner for leaf in leaves(each, here)) if inner else (here,)


def test_every_field_has_a_row() -> None:
    fields = [*leaves(Algorithm, A), *leaves(Training, T), *leaves(Evaluation, E)]
    assert sorted(fields) == sorted([*(row.field for row in ROWS), *ELSEWHERE, *MEMORY_AND_SPEED])
    for place in ELSEWHERE.values():
        file, _, test = place.partition("::")
        assert re.search(rf"^def {test}\(", (HERE / file).read_text(), re.MULTILINE), place


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.field)
def test_a_setting_gives_its_number(row: Row, tiny_model: str) -> None:
    assert row.measure(tiny_model, *row.settings()) == pytest.approx(row.expected, rel=1e-3)
    without = row.measure(tiny_model, *row.settings(with_field=False))
    assert without != pytest.approx(row.expected, rel=1e-2), "the default gives the same number"


FASTER = [{"ppoMicroBatchSizePerDevice": 1}, {"useDynamicBsz": True, "ppoMaxTokenLenPerDevice": 6}]


@pytest.mark.parametrize("training", [*FASTER, {"fsdp": {"paramOffload": True, "optimizerOffload": True}}], ids=str)
def test_memory_settings_change_no_number(training: Json, tiny_model: str) -> None:
    algorithm = {"klLossCoef": 0.1, "entropyCoeff": 0.1, "clipRatioC": 3.0}
    plain = Update(tiny_model, algorithm)
    other = Update(tiny_model, algorithm, training)
    first = plain.step()
    second = other.step()
    assert second.shares == pytest.approx(first.shares, rel=1e-4)
    assert second.grad_norm == pytest.approx(first.grad_norm, rel=1e-4)


@pytest.mark.parametrize("name", LOSSES_THAT_READ)
def test_only_the_losses_that_are_listed_read_a_setting(name: str, tiny_model: str) -> None:
    alias = str(Algorithm.model_fields[name].alias)
    value = 3.0 if alias == "clipRatioC" else 0.5 if alias == "clipRatioHigh" else 0.9 if "tau" in alias else 0.19
    changed = set()
    for policy_loss in get_args(PolicyLoss):
        clip = 1e-4 if policy_loss.startswith("dppo") else 0.05  # of a probability, or of a ratio
        base = {"policyLoss": policy_loss, "clipRatio": clip}
        for advantages in (ADVANTAGES, -ADVANTAGES):
            losses = [
                Update(tiny_model, settings).step(advantages).shares["actor/pg_loss"]
                for settings in (base, base | {alias: value})
            ]
            if losses[0] != losses[1]:
                changed.add(policy_loss)
    assert changed == set(LOSSES_THAT_READ[name])


def test_the_update_of_bypass_mode_reports_the_entropy(tiny_model: str) -> None:
    update = Update(tiny_model, {"rolloutCorrection": {"bypassMode": True}})
    entropy = update.actor.log_probs(SEQUENCES)[1][SEQUENCES.response_mask].mean()
    assert update.step().shares["actor/entropy"] == pytest.approx(float(entropy), rel=1e-5)
    assert "actor/entropy" not in Update(tiny_model, {}).step().shares


def test_the_baseline_of_remax_is_not_discounted(tiny_model: str) -> None:
    advantages = experience({"advEstimator": "remax", "gamma": 0.5}).experience.advantages
    assert advantages[:, 0].tolist() == [1 - 0.25, 0 - 0.25]


def test_weights_of_responses_are_bounded_by_exp_20() -> None:
    correction = {"level": "sequence", "threshold": 1e6}
    responses = [Response((7,) * 40, (-3.0,) * 40), Response((7,), (-2.0,))]
    original = RolloutBatch.pad
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            RolloutBatch, "pad", lambda batch, *a, **b: original(replace(batch, responses=responses), *a, **b)
        )
        metrics = experience({"rolloutCorrection": correction}).metrics
    assert metrics["rollout_corr/rollout_is_max"] == pytest.approx(math.exp(20), rel=1e-5)


def test_probes_are_compared_at_temperature_1(tiny_model: str) -> None:
    actor = Update(tiny_model, {}).actor
    model = load_model(tiny_model, torch.float32)
    with torch.no_grad():
        expected, _ = response_log_probs(model, SEQUENCES, temperature=1.0)
        scaled, _ = response_log_probs(model, SEQUENCES, temperature=TEMPERATURE)
    assert_close(actor.probe_log_probs(SEQUENCES), expected, atol=1e-5, rtol=1e-5)
    assert_close(actor.log_probs(SEQUENCES)[0], scaled, atol=1e-5, rtol=1e-5)


def test_a_micro_batch_without_rows_is_not_learned_from(process_group: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """The rank has one micro-batch, another rank has two."""
    monkeypatch.setattr(dist, "all_reduce", lambda count, **_: count.fill_(2))
    size = MicroBatchSize(rows=2, tokens=100)
    (numbers, rows), (none, filler) = split_micro_batches(SEQUENCES.rows(slice(1)), size, torch.device("cpu"))
    assert [numbers.tolist(), none.tolist()] == [[0], []]
    assert rows.response_mask.any()
    assert not filler.response_mask.any()


def test_epochs_are_converted_to_steps(make_config: Callable[..., TrainingConfig]) -> None:
    from rlt_trainer.driver.run import resolve_total_steps

    config = make_config(training={"totalSteps": 0, "totalEpochs": 3, "trainBatchSize": 8})
    assert resolve_total_steps(config, prompts=20).training.total_steps == 7


def test_batches_steps_and_warmup_follow_their_settings(
    make_config: Callable[..., TrainingConfig], monkeypatch: pytest.MonkeyPatch
) -> None:
    from in_process import train

    updates: list[int] = []
    supervised: list[tuple[int, float]] = []
    update = Actor.update
    supervised_step = Actor.supervised_step

    def count_update(actor: Actor, batch: MiniBatch) -> UpdateResult:
        updates.append(len(batch.experience))
        return update(actor, batch)

    def count_supervised(actor: Actor, sequences: Sequences, total_tokens: int) -> UpdateResult:
        supervised.append((len(sequences), actor.learning_rate))
        return supervised_step(actor, sequences, total_tokens)

    monkeypatch.setattr(Actor, "update", count_update)
    monkeypatch.setattr(Actor, "supervised_step", count_supervised)
    training = {"totalSteps": 2, "trainBatchSize": 6, "ppoMiniBatchSize": 2, "ppoEpochs": 3}
    warmup = {"steps": 5, "batchSize": 3, "learningRate": 0.002}
    rewards = [{"name": "regex", "options": {"pattern": "[a-z0-9]"}}]
    dist.destroy_process_group()  # the run has its own
    try:
        train(
            make_config(
                workers=1, training=training | {"warmup": warmup}, rollout={"responsesPerPrompt": 4}, rewards=rewards
            )
        )
    finally:
        dist.init_process_group("gloo", store=HashStore(), rank=0, world_size=1)
    assert updates == [2 * 4] * (2 * 3 * 3)  # steps, epochs, mini-batches
    assert supervised == [(3, 0.002)] * 5
