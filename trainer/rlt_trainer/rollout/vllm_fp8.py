"""The layers that vLLM quantizes to FP8 (rollout.quantization), verified while they are loaded.

vLLM loads a layer in model.dtype, with q, k and v fused and sharded, quantizes it, and copies the result to the place
that its kernels and CUDA graphs read (vllm/model_executor/model_loader/reload/layerwise.py, vLLM 0.32). A layer has the
weights that were sent if the sums over the loaded weights equal those sent, the result is the loaded weights rounded to
FP8, and the place that the kernels read has this result.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from rlt_trainer.rollout.fp8_weights import count_wrong_elements
from rlt_trainer.rollout.vllm_layouts import Layouts
from rlt_trainer.rollout.weight_sums import Summation, sum_elements

PARAMETERS = ("weight", "weight_scale")
"""What a quantized layer has in place of the weight that was sent."""


@dataclass(frozen=True)
class Loaded:
    """A layer at the end of its last load."""

    summation: Summation
    """Of the weight that was loaded, before it was quantized."""
    wrong: Tensor
    """Number of elements that were not rounded to the nearest value: []."""
    elements: int
    result: Tensor
    """The sums over values and scales in FP8: [2]."""


class QuantizedLayers:
    """The quantized layers of a model. It follows each load from its creation."""

    def __init__(self, layers: Mapping[str, Any], layouts: Layouts) -> None:
        """layers: name -> layer, as `find_quantized_layers` returns them."""
        self._layers = layers
        self._layouts = layouts
        self._loaded: dict[str, Loaded] = {}
        for name, layer in layers.items():
            self._follow(name, layer.quant_method)

    def hidden_parameters(self) -> set[str]:
        """Return the names of the parameters that `add_to` stands for."""
        return {f"{name}.{each}" for name in self._loaded for each in PARAMETERS}

    def add_to(self, summation: Summation) -> None:
        """Add the weights that the layers were loaded with."""
        for loaded in self._loaded.values():
            summation.include(loaded.summation)

    def list_wrong(self) -> list[str]:
        """Describe each layer that differs from the weight that it was loaded with. Call it after a load."""
        return list(self._list_wrong())

    def _list_wrong(self) -> Iterator[str]:
        if not self._layers:
            yield "vLLM has quantized no layer"
        changes = {
            name: torch.stack([loaded.wrong, (_sum_result(self._layers[name]) != loaded.result).sum()])
            for name, loaded in self._loaded.items()
        }
        counts = torch.stack(list(changes.values())).tolist() if changes else []  # waits for the device once
        found = dict(zip(changes, counts, strict=True))
        for name in self._layers:
            wrong, changed = found.get(name, (0, 0))
            if name not in found:
                yield f"{name}: not loaded"
            elif wrong:
                yield f"{name}: {wrong} of {self._loaded[name].elements} elements are not the nearest values"
            elif changed:
                yield f"{name}: it has other values than those computed in the sync"

    def _follow(self, name: str, method: Any) -> None:
        process = method.process_weights_after_loading

        def process_and_verify(layer: Any) -> None:
            weight: Tensor = layer.weight.detach()  # vLLM replaces it
            process(layer)
            summation = Summation()
            summation.add(f"{name}.weight", weight, self._layouts.find(name, "weight"))
            self._loaded[name] = Loaded(
                summation,
                count_wrong_elements(weight, *read_quantized(layer, weight.shape)),
                weight.numel(),
                _sum_result(layer),
            )

        method.process_weights_after_loading = process_and_verify


def find_quantized_layers(model: nn.Module) -> dict[str, Any]:
    """Find the linear layers that vLLM quantizes while it loads them, with a scale for each output."""
    from vllm.model_executor.layers.quantization.online.fp8 import Fp8PtpcOnlineLinearMethod

    return {
        name: module
        for name, module in model.named_modules()
        if isinstance(getattr(module, "quant_method", None), Fp8PtpcOnlineLinearMethod)
    }


def read_quantized(layer: Any, shape: torch.Size) -> tuple[Tensor, Tensor]:
    """Return values [outputs, inputs] and scales [outputs, 1] of a layer.

    vLLM stores the values transposed. Its kernel of CUTLASS pads both to multiples of 16 with zeros, which are cut off.
    """
    outputs, inputs = shape
    return layer.weight.detach().t()[:outputs, :inputs], layer.weight_scale.detach()[:outputs]


def _sum_result(layer: Any) -> Tensor:
    return torch.stack([sum_elements(layer.weight), sum_elements(layer.weight_scale)])
