"""Log-probabilities in chunks, and their gradients, equal the full logits'."""

from __future__ import annotations

import pytest
import torch
from peak_bytes import PeakBytes
from torch import Tensor
from torch.testing import assert_close

from rlt_trainer.policy import log_probs as module
from rlt_trainer.policy.log_probs import token_log_probs
from rlt_trainer.policy.logit_chunk import LogitScale

SCALES = [LogitScale(), LogitScale(1.7), LogitScale(0.5, softcap=2.0)]


@pytest.fixture(autouse=True)
def _small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CHUNK_ELEMENTS", 3 * 11)


def inputs(*, bias: bool) -> tuple[Tensor, Tensor, Tensor | None, Tensor]:
    generator = torch.Generator().manual_seed(0)
    hidden, weight, offset = (
        torch.randn(shape, generator=generator, dtype=torch.float64, requires_grad=True)
        for shape in ((7, 5), (11, 5), (11,))
    )
    return hidden, weight, offset if bias else None, torch.randint(11, (7,), generator=generator)


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("bias", [False, True])
def test_log_probs_and_entropy_equal_torchs(scale: LogitScale, bias: bool) -> None:
    hidden, weight, offset, targets = inputs(bias=bias)
    logits = torch.nn.functional.linear(hidden, weight, offset)
    if scale.softcap is not None:
        logits = scale.softcap * torch.tanh(logits / scale.softcap)
    expected = torch.distributions.Categorical(logits=logits * scale.scale)
    log_probs, entropy = token_log_probs(hidden, weight, offset, targets, scale)
    assert_close(log_probs, expected.log_prob(targets))  # type: ignore[no-untyped-call]
    assert_close(entropy, expected.entropy())  # type: ignore[no-untyped-call]


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("bias", [False, True])
def test_gradients_equal_finite_differences(scale: LogitScale, bias: bool) -> None:
    hidden, weight, offset, targets = inputs(bias=bias)

    def compute(hidden: Tensor, weight: Tensor, offset: Tensor | None = None) -> tuple[Tensor, Tensor]:
        return token_log_probs(hidden, weight, offset, targets, scale)

    assert torch.autograd.gradcheck(compute, (hidden, weight) if offset is None else (hidden, weight, offset))


@pytest.mark.parametrize("scale", SCALES)
def test_several_targets_of_a_token_have_the_gradients_of_finite_differences(scale: LogitScale) -> None:
    """The second column repeats the first."""
    hidden, weight, _, first = inputs(bias=False)
    targets = torch.stack([first, first, (first + 3) % 11], dim=-1)

    def compute(hidden: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
        return token_log_probs(hidden, weight, None, targets, scale)

    log_probs, _ = compute(hidden, weight)
    for column in range(3):
        assert torch.equal(log_probs[:, column], token_log_probs(hidden, weight, None, targets[:, column], scale)[0])
    assert torch.autograd.gradcheck(compute, (hidden, weight))


def test_a_frozen_output_layer_gets_no_gradient() -> None:
    hidden, weight, _, targets = inputs(bias=False)
    frozen = weight.detach()
    token_log_probs(hidden, frozen, None, targets, LogitScale())[0].sum().backward()  # type: ignore[no-untyped-call]
    assert frozen.grad is None
    assert hidden.grad is not None


def test_an_empty_batch_has_gradient_0() -> None:
    hidden, weight, _, targets = inputs(bias=False)
    log_probs, _ = token_log_probs(hidden[:0], weight, None, targets[:0], LogitScale())
    log_probs.sum().backward()  # type: ignore[no-untyped-call]
    assert hidden.grad is not None
    assert not hidden.grad.any()


def test_a_float32_head_does_not_round_the_logits_of_bfloat16() -> None:
    generator = torch.Generator().manual_seed(0)
    hidden, weight = (
        torch.randn(shape, generator=generator).bfloat16().requires_grad_() for shape in ((7, 64), (11, 64))
    )
    targets = torch.randint(11, (7,), generator=generator)
    exact = (hidden.double() @ weight.double().T).log_softmax(-1)[torch.arange(7), targets].detach()

    def error(scale: LogitScale) -> float:
        log_probs, _ = token_log_probs(hidden, weight, None, targets, scale)
        return float((log_probs.detach() - exact).abs().max())

    assert error(LogitScale(float32=True)) < 1e-5 < 1e-3 < error(LogitScale())
    token_log_probs(hidden, weight, None, targets, LogitScale(float32=True))[0].sum().backward()  # type: ignore[no-untyped-call]
    assert hidden.grad is not None
    assert weight.grad is not None
    expected = (hidden @ weight.T).float().log_softmax(-1)[torch.arange(7), targets].sum()
    for found, gradient in zip(
        (hidden.grad, weight.grad), torch.autograd.grad(expected, (hidden, weight)), strict=True
    ):
        assert_close(found, gradient, atol=0.1, rtol=0.05)


def test_the_gradient_of_the_weights_is_added_up_in_place() -> None:
    hidden = torch.randn(6, 128, requires_grad=True)
    weight = torch.randn(1000, 128, requires_grad=True)
    counted = PeakBytes()
    with counted:
        token_log_probs(hidden, weight, None, torch.zeros(6, dtype=torch.int64), LogitScale())[0].sum().backward()  # type: ignore[no-untyped-call]
    assert counted.peak < 2.5 * weight.nbytes  # the weights, their gradient, and chunks of one token
