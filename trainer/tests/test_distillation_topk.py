"""Distillation by the teacher's most likely tokens: loss, gradient, teacher and update."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from in_process import train
from peak_bytes import PeakBytes
from torch import Tensor
from torch.distributed.device_mesh import init_device_mesh
from torch.testing import assert_close

from rlt_api.blocks.algorithm import Algorithm, Distillation
from rlt_api.blocks.model import Model, SeededModel
from rlt_api.blocks.training import Training
from rlt_api.rules.memory_parts import TOP_TOKEN_BYTES
from rlt_api.spec.training_config import TrainingConfig
from rlt_trainer.algorithms.losses import forward_kl_topk
from rlt_trainer.batches.sequences import Experience, MiniBatch, Sequences
from rlt_trainer.data.tokenizer import load_tokenizer
from rlt_trainer.driver.input_validation import validate_teacher
from rlt_trainer.policy import log_probs as module
from rlt_trainer.policy.actor import Actor
from rlt_trainer.policy.forward import forward_responses
from rlt_trainer.policy.log_probs import response_log_probs, token_log_probs, top_log_probs
from rlt_trainer.policy.logit_chunk import LogitScale
from rlt_trainer.policy.model import load_model
from rlt_trainer.policy.model_files import prepare_model_files
from rlt_trainer.policy.teacher import Teacher

MakeConfig = Callable[..., TrainingConfig]
TEACHER = {"seed": 9, "hiddenSize": 32, "intermediateSize": 64, "numHiddenLayers": 1, "numAttentionHeads": 2}
TOPK = {"lossMode": "forward_kl_topk", "useTaskRewards": False}
K = 5
VOCABULARY = 262
SEQUENCES = Sequences.pad(
    [[50, 51], [60], [61, 62], [63]], [[70, 71, 72], [80], [81, 82], [83, 84, 85]], pad_token_id=0
)
EVERY = torch.ones(4, 6, dtype=torch.bool)


@pytest.fixture(scope="module")
def teacher_files(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("teacher")
    return prepare_model_files(Model(from_seed=SeededModel.model_validate(TEACHER)), folder)


def distributions(vocabulary: int = 9) -> tuple[Tensor, Tensor]:
    """Logits of the policy, and log-probabilities of the teacher: [4, 6, V]."""
    generator = torch.Generator().manual_seed(0)
    shape = (4, 6, vocabulary)
    logits, others = (torch.randn(shape, generator=generator, dtype=torch.float64) * 2 for _ in range(2))
    return logits.requires_grad_(), others.log_softmax(-1)


def compute_by_hand(logits: Tensor, teacher: Tensor, k: int, bound: float, minimum: float) -> Tensor:
    """The loss of one place, from all tokens' logits [V] and log-probabilities [V], token by token."""
    log_q = logits - logits.exp().sum().log()
    terms = []
    for token in sorted(range(len(teacher)), key=lambda each: -float(teacher[each]))[:k]:
        log_p = max(float(teacher[token]), minimum)
        floor = torch.tensor(minimum, dtype=torch.float64)
        terms.append(math.exp(log_p) * (log_p - torch.maximum(log_q[token], floor)))
    return torch.stack(terms).sum().clamp(0, bound)


@pytest.mark.parametrize(("bound", "minimum"), [(10.0, None), (0.3, None), (10.0, -2.0)])
def test_loss_and_gradient_equal_a_computation_token_by_token(bound: float, minimum: float | None) -> None:
    logits, teacher = distributions()
    top = teacher.topk(K)
    log_q = logits.log_softmax(-1).gather(-1, top.indices)
    found = forward_kl_topk(log_q, top.values, EVERY, max_clamp=bound, min_log_prob=minimum).loss
    expected = torch.stack(
        [
            torch.stack([compute_by_hand(*place, K, bound, minimum or -1e9) for place in zip(*row, strict=True)])
            for row in zip(logits, teacher, strict=True)
        ]
    )
    assert_close(found, expected)
    assert_close(torch.autograd.grad(found.sum(), logits), torch.autograd.grad(expected.sum(), logits))


def test_the_loss_of_all_tokens_is_the_kl_divergence() -> None:
    logits, teacher = distributions()
    top = teacher.topk(teacher.shape[-1])
    found = forward_kl_topk(logits.log_softmax(-1).gather(-1, top.indices), top.values, EVERY, max_clamp=100.0)
    terms = torch.nn.functional.kl_div(logits.log_softmax(-1), teacher.exp(), reduction="none")
    assert_close(found.loss, terms.sum(-1))
    (gradient,) = torch.autograd.grad(found.loss.sum(), logits)
    assert_close(gradient, logits.detach().softmax(-1) - teacher.exp())
    for mass in found.metrics.values():
        assert_close(mass, torch.ones_like(mass))


def test_the_gradient_equals_finite_differences() -> None:
    logits, teacher = distributions()
    top = teacher.topk(K)

    def loss(logits: Tensor) -> Tensor:
        log_q = logits.log_softmax(-1).gather(-1, top.indices)
        return forward_kl_topk(log_q, top.values, EVERY, max_clamp=1.0, min_log_prob=-4.0).loss

    assert torch.autograd.gradcheck(loss, logits)


def test_more_probability_than_the_teachers_has_neither_loss_nor_gradient() -> None:
    teacher = torch.tensor([[[0.5, 0.2]]]).log()
    policy = torch.tensor([[[0.6, 0.3]]]).log().requires_grad_()
    found = forward_kl_topk(policy, teacher, torch.ones(1, 1, dtype=torch.bool), max_clamp=10.0)
    assert found.loss.item() == 0
    assert not torch.autograd.grad(found.loss.sum(), policy)[0].any()
    assert found.metrics["distillation/student_mass"].item() == pytest.approx(0.9)
    assert found.metrics["distillation/teacher_mass"].item() == pytest.approx(0.7)


def test_nan_outside_of_the_mask_changes_nothing() -> None:
    logits, teacher = distributions()
    top = teacher.topk(K)
    log_q = logits.log_softmax(-1).gather(-1, top.indices).detach()
    mask = torch.rand(4, 6, generator=torch.Generator().manual_seed(1)) < 0.5
    kept = mask[..., None]
    results = []
    for outside in (0.0, torch.nan):
        ours = torch.where(kept, log_q, outside).requires_grad_()
        loss = forward_kl_topk(ours, torch.where(kept, top.values, outside), mask, max_clamp=10.0).loss
        results.append((loss.detach(), torch.autograd.grad(loss.sum(), ours)[0]))
    assert_close(*results)
    assert not results[1][0][~mask].any()


def test_the_most_likely_tokens_equal_torchs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CHUNK_ELEMENTS", 3 * 11)
    hidden = torch.randn(7, 5)
    weight = torch.randn(11, 5)
    log_p = (hidden @ weight.T * 1.5).log_softmax(-1)
    for vocabulary in (11, 8):
        expected = log_p[:, :vocabulary].topk(4)
        values, ids = top_log_probs(hidden, weight, None, LogitScale(1.5), k=4, vocabulary=vocabulary)
        assert_close(values, expected.values)
        assert ids.dtype == torch.int32
        assert ids.tolist() == expected.indices.tolist()


def load_teacher(
    files: str, *, packed: bool = False, rows: int = 4, vocabulary: int = VOCABULARY, topk: int = K
) -> Teacher:
    return Teacher(
        files,
        distillation=Distillation.model_validate({"modelPath": files, "topk": topk, **TOPK}),
        model=Model(use_remove_padding=packed),
        dtype=torch.float32,
        mesh=init_device_mesh("cpu", (1,)),
        training=Training(total_steps=1, ppo_micro_batch_size_per_device=rows),
        temperature=0.8,
        vocabulary=vocabulary,
    )


@pytest.mark.usefixtures("one_rank")
@pytest.mark.parametrize("packed", [False, True])
def test_the_teacher_returns_its_most_likely_tokens(teacher_files: str, packed: bool) -> None:
    """In micro-batches, at the sampling temperature, and without tokens that the policy does not have."""

    def all_log_probs(hidden: Tensor, _: Tensor) -> tuple[Tensor, ...]:
        return ((hidden @ output.weight.T / 0.8).log_softmax(-1),)

    model = load_model(teacher_files, torch.float32)
    output = model.get_output_embeddings()  # type: ignore[no-untyped-call]
    (everything,) = forward_responses(model, SEQUENCES, all_log_probs, packed=False, group=None)
    for vocabulary in (VOCABULARY, 100):
        values, ids = load_teacher(teacher_files, packed=packed, rows=1, vocabulary=vocabulary).log_probs(SEQUENCES)
        expected = everything.detach()[..., :vocabulary].topk(K)
        mask = SEQUENCES.response_attention
        assert_close(values[mask], expected.values[mask])
        assert ids[mask].tolist() == expected.indices[mask].tolist()
        assert not values[~mask].any()


class Student:
    """An actor with the tokens of a teacher for SEQUENCES."""

    def __init__(
        self, files: str, teacher: Teacher, *, packed: bool = False, rows: int = 4, loss_coef: float = 1.0
    ) -> None:
        distillation = {"modelPath": "/teacher", "lossCoef": loss_coef, **TOPK}
        self.actor = Actor(
            files,
            model=Model(use_remove_padding=packed),
            dtype=torch.float32,
            mesh=init_device_mesh("cpu", (1,)),
            algorithm=Algorithm.model_validate({"klLossCoef": 0, "distillation": distillation}),
            training=Training(total_steps=1, learning_rate=1e-2, ppo_micro_batch_size_per_device=rows),
            temperature=0.8,
            max_response_length=8,
        )
        values, ids = teacher.log_probs(SEQUENCES)
        zeros = torch.zeros(SEQUENCES.responses.shape)
        self.experience = Experience(SEQUENCES, zeros, zeros, teacher_log_probs=values, teacher_ids=ids)

    def step(self) -> dict[str, float]:
        tokens = int(self.experience.sequences.response_mask.sum())
        result = self.actor.update(MiniBatch(self.experience, tokens, len(SEQUENCES)))
        return {**result.shares, "grad_norm": result.grad_norm}


@pytest.mark.usefixtures("one_rank")
@pytest.mark.parametrize("options", [{"rows": 1}, {"packed": True, "rows": 3}], ids=str)
def test_the_update_does_not_depend_on_micro_batches_and_packing(
    tiny_model: str, teacher_files: str, options: dict[str, Any]
) -> None:
    teacher = load_teacher(teacher_files)
    plain = Student(tiny_model, teacher)
    other = Student(tiny_model, teacher, **options)
    for _ in range(3):
        expected = plain.step()
        assert other.step() == pytest.approx(expected, rel=1e-4, abs=1e-7)
    assert expected["distillation/loss"] > 1e-3
    assert expected["grad_norm"] > 1e-3


@pytest.mark.usefixtures("one_rank")
def test_the_update_has_the_loss_of_the_policys_own_distribution(tiny_model: str, teacher_files: str) -> None:
    student = Student(tiny_model, load_teacher(teacher_files), loss_coef=0.5)
    assert student.experience.teacher_log_probs is not None
    assert student.experience.teacher_ids is not None
    log_p = student.experience.teacher_log_probs
    model = load_model(tiny_model, torch.float32)
    log_q, _ = response_log_probs(model, SEQUENCES, temperature=0.8, ids=student.experience.teacher_ids)
    assert_close(log_q[..., 0], response_log_probs(model, SEQUENCES, temperature=0.8)[0])
    loss = (log_p.exp() * (log_p - log_q[..., 1:].detach())).sum(-1)[SEQUENCES.response_mask]
    assert float(loss.min()) > 0
    shares = student.step()
    assert shares["distillation/loss"] == pytest.approx(float(loss.mean()), rel=1e-4)
    assert shares["distillation/teacher_mass"] == pytest.approx(
        float(log_p.exp().sum(-1)[SEQUENCES.response_mask].mean()), rel=1e-4
    )


@pytest.mark.usefixtures("one_rank")
def test_the_policy_approaches_the_teacher(tiny_model: str, teacher_files: str) -> None:
    """With all tokens of the vocabulary, so that the loss is the KL divergence."""
    student = Student(tiny_model, load_teacher(teacher_files, topk=VOCABULARY))
    losses = [student.step()["distillation/loss"] for _ in range(20)]
    assert losses[-1] < losses[0] / 4


def test_the_memory_of_a_token_is_the_predicted_one() -> None:
    """The growth of the peak from 1,088 to 1,600 tokens, at which the loss needs more than a chunk of logits."""
    assert (measure_peak(1600) - measure_peak(1088)) / (512 * 512) == pytest.approx(TOP_TOKEN_BYTES, rel=0.1)


def measure_peak(k: int) -> int:
    """Peak bytes in the forward and backward pass of the loss, with 512 tokens."""
    rows = 8
    width = 64
    vocabulary = 2048
    hidden = torch.randn(rows * width, 16, requires_grad=True)
    weight = torch.randn(vocabulary, 16)
    top = torch.randn(rows, width, vocabulary).log_softmax(-1).topk(k)
    values = top.values.clone()
    numbers = top.indices.int()
    mask = torch.ones(rows, width, dtype=torch.bool)
    counted = PeakBytes()
    with counted:
        ids = numbers.clone()  # on the device
        targets = torch.cat([torch.zeros(rows * width, 1, dtype=torch.int64), ids.flatten(0, 1)], dim=-1)
        log_probs, _ = token_log_probs(hidden, weight, None, targets, LogitScale())
        placed = log_probs.new_zeros(rows * width, k + 1).index_put((torch.arange(rows * width),), log_probs)
        in_rows = placed.view(rows, width, k + 1)[..., 1:]
        forward_kl_topk(in_rows, values.clone(), mask, max_clamp=10.0).loss.sum().backward()  # type: ignore[no-untyped-call]
    return counted.peak


@pytest.mark.parametrize(("topk", "mode"), [(262, "forward_kl_topk"), (263, "k1")])
def test_topk_up_to_the_vocabulary_is_accepted(
    make_config: MakeConfig, teacher_files: str, topk: int, mode: str
) -> None:
    distillation = {"modelPath": teacher_files, "topk": topk, "lossMode": mode}
    config = make_config(algorithm={"distillation": distillation})
    validate_teacher(config, load_tokenizer(config.model))


def test_topk_above_the_vocabulary_is_rejected(make_config: MakeConfig, teacher_files: str) -> None:
    config = make_config(algorithm={"distillation": {"modelPath": teacher_files, "topk": 263, **TOPK}})
    with pytest.raises(ValueError, match=r"distillation\.topk: 263 is above the 262 tokens .* Use 262 or less"):
        validate_teacher(config, load_tokenizer(config.model))


@pytest.mark.slow
def test_a_run_lowers_the_divergence_from_a_teacher_on_the_arithmetic_task(
    make_config: MakeConfig, teacher_files: str
) -> None:
    """With all tokens of the vocabulary, so that the loss is the KL divergence. The teacher has random weights, so that
    the policy does not learn the task."""
    distillation = {"modelPath": teacher_files, "topk": VOCABULARY, **TOPK}
    config = make_config(
        workers=1,
        algorithm={"klLossCoef": 0, "distillation": distillation},
        training={"totalSteps": 25, "trainBatchSize": 8, "ppoMiniBatchSize": 8, "learningRate": 3e-3},
    )
    steps = train(config)
    losses = [step["distillation/loss"] for step in steps]
    assert sum(losses[-5:]) / 5 < losses[0] / 2
    assert all(step["distillation/teacher_mass"] == pytest.approx(1) for step in steps)
    assert all(step["timing_s/teacher"] > 0 for step in steps)
