"""Weights in FP8 are compared with those that were sent: each must be the nearest value."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from rlt_trainer.rollout import fp8_weights
from rlt_trainer.rollout.fp8_weights import count_wrong_elements

FORMATS = (torch.float8_e4m3fn, torch.float8_e4m3fnuz)
"""Of NVIDIA's GPUs and of AMD's MI300."""


def quantize(weight: Tensor, dtype: torch.dtype = torch.float8_e4m3fn) -> tuple[Tensor, Tensor]:
    """As vLLM's Fp8PtpcOnlineLinearMethod (vllm/model_executor/layers/quantization/online/fp8.py, vLLM 0.32)."""
    largest = 224.0 if dtype == torch.float8_e4m3fnuz else 448.0
    scales = weight.abs().amax(-1, keepdim=True).float() / torch.tensor(largest)
    scales = scales.clamp_min(1 / (largest * 512))
    return (weight / scales).clamp(-largest, largest).to(dtype), scales


def build_weight() -> Tensor:
    """Build outputs of different sizes, with zeros, and with weights that are tiny beside the largest of their row."""
    torch.manual_seed(0)
    weight = torch.randn(48, 64) * torch.logspace(-9, 3, 48)[:, None]
    weight[:, :8] *= 1e-4  # below the smallest normal number of FP8
    weight[0] = 0
    weight[1, 0] = -0.0
    return weight.bfloat16()


@pytest.mark.parametrize("dtype", FORMATS)
def test_a_quantized_weight_has_no_wrong_element(dtype: torch.dtype) -> None:
    weight = build_weight()
    assert count_wrong_elements(weight, *quantize(weight, dtype)) == 0


def test_the_formulas_of_vllm_have_no_wrong_element() -> None:
    from vllm.model_executor.layers.quantization.online import fp8

    weight = build_weight()
    scales = fp8._fp8_channel_scale(weight.abs().amax(-1, keepdim=True))
    assert count_wrong_elements(weight, fp8._fp8_quant_per_channel(weight, scales), scales) == 0


@pytest.mark.parametrize("dtype", FORMATS)
@pytest.mark.parametrize("step", [-1, 1])
def test_every_element_that_is_not_the_nearest_value_is_counted(dtype: torch.dtype, step: int) -> None:
    weight = build_weight()
    values, scales = quantize(weight, dtype)
    bits = values.view(torch.int8).clone()
    is_inside = (values.float().abs() > 0) & (values.float().abs() < torch.finfo(dtype).max)
    bits[is_inside] += step  # a neighbor
    changed = bits.view(dtype)
    exact = weight / scales
    is_nearest = (changed.float() - exact).abs() <= 1.0001 * (values.float() - exact).abs()  # in the middle of both
    is_wrong = ~is_nearest  # NaN, too
    assert is_wrong[is_inside].float().mean() > 0.99
    assert count_wrong_elements(weight, changed, scales) == int(is_wrong.sum())
    one = values.view(torch.int8).clone()
    one[40, 3] += step
    assert count_wrong_elements(weight, one.view(dtype), scales) == 1


def test_a_value_for_zero_is_counted() -> None:
    weight = build_weight()
    values, scales = quantize(weight)
    bits = values.view(torch.int8).clone()
    bits[0, 5] = 1
    assert count_wrong_elements(weight, bits.view(values.dtype), scales) == 1


@pytest.mark.parametrize("factor", [0.5, 0.9, 1.01, 2.0, float("nan"), float("inf")])
def test_a_wrong_scale_is_counted(factor: float) -> None:
    weight = build_weight()
    values, scales = quantize(weight)
    scales[40] *= factor
    wrong = count_wrong_elements(weight, values, scales)
    assert 0 < wrong <= 64


def test_a_scale_that_saturates_is_counted() -> None:
    weight = build_weight()
    scales = quantize(weight)[1] * 0.5
    values = (weight / scales).clamp(-448, 448).to(torch.float8_e4m3fn)
    assert count_wrong_elements(weight, values, scales) >= 47  # the largest of each output but 0


def test_weights_of_another_step_are_counted() -> None:
    weight = build_weight()
    values, scales = quantize(weight * 1.05)
    assert count_wrong_elements(weight, values, scales) > weight.numel() / 4


def test_another_shape_is_counted_completely() -> None:
    weight = build_weight()
    values, scales = quantize(weight)
    assert count_wrong_elements(weight, values.t(), scales) == weight.numel()
    assert count_wrong_elements(weight, values, scales.t()) == weight.numel()
    assert count_wrong_elements(weight, values, scales.max().reshape(1, 1)) == weight.numel()
    square = weight[:, :48]
    values, scales = quantize(square)
    assert count_wrong_elements(square, values.t(), scales) > square.numel() / 2


def test_the_comparison_does_not_depend_on_its_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    weight = build_weight()
    values, scales = quantize(weight)
    bits = values.view(torch.int8).clone()
    bits[::7] += 1
    changed = bits.view(values.dtype)
    whole = count_wrong_elements(weight, changed, scales)
    monkeypatch.setattr(fp8_weights, "CHUNK_ELEMENTS", 100)
    assert count_wrong_elements(weight, changed, scales) == whole > 0
