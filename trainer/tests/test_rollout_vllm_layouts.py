"""The place of weights in the parameters of an engine is what the engine's loaders answer."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import pytest
import torch
from torch import Tensor, nn

from rlt_trainer.rollout.vllm_layouts import Layouts, find_runs
from rlt_trainer.rollout.weight_sums import UNKNOWN, Layout, Piece

WEIGHTS = {"gate": torch.randn(8, 6), "up": torch.randn(8, 6), "down": torch.randn(6, 8), "bias": torch.randn(6)}


class Engine(nn.Module):
    """The second of an engine's two devices: rows of gate and up in one parameter, and columns of down."""

    def __init__(self) -> None:
        super().__init__()
        self.gate_up = nn.Parameter(torch.zeros(8, 6))
        self.down = nn.Parameter(torch.zeros(6, 4))
        self.bias = nn.Parameter(torch.zeros(6))
        self.gate_up.weight_loader = self.load_gate_up  # type: ignore[attr-defined]
        self.down.weight_loader = lambda parameter, weight: parameter.data.copy_(weight[:, 4:])  # type: ignore[attr-defined]
        self.change: Callable[[Tensor], Tensor] = lambda weight: weight

    def load_gate_up(self, parameter: Tensor, weight: Tensor, shard: str) -> None:
        start = 4 * ("gate", "up").index(shard)
        parameter.data[start : start + 4].copy_(weight[4:])

    def load_weights(self, weights: Iterable[tuple[str, Tensor]]) -> None:
        from vllm.model_executor.model_loader.weight_utils import default_weight_loader

        for name, weight in weights:
            parameter = self.gate_up if name in ("gate", "up") else getattr(self, name)
            loader = getattr(parameter, "weight_loader", default_weight_loader)
            loader(parameter, self.change(weight), *([name] if parameter is self.gate_up else []))


def load(engine: Engine) -> Layouts:
    layouts = Layouts(engine)
    for _ in range(2):
        engine.load_weights(layouts.follow(WEIGHTS.items()))
    assert layouts.received == list(WEIGHTS)
    return layouts


def test_shards_of_rows_and_columns_have_their_place() -> None:
    engine = Engine()
    layouts = load(engine)
    pieces = (Piece("gate", 0, 4, 4), Piece("up", 4, 8, 4))
    assert layouts.find("", "gate_up") == Layout(pieces, 0, torch.Size((8, 6)))
    assert layouts.find("", "down") == Layout((Piece("down", 0, 6, 0),), 4, torch.Size((6, 4)))
    assert layouts.find("", "bias") == Layout((Piece("bias", 0, 6, 0),), 0, torch.Size((6,)))
    assert torch.equal(engine.gate_up, torch.cat([WEIGHTS["gate"][4:], WEIGHTS["up"][4:]])), "the weights are loaded"
    assert set(layouts.by_tensor()) == {id(each) for each in engine.parameters()}
    assert not hasattr(engine.bias, "weight_loader")


@pytest.mark.parametrize("change", [lambda weight: weight.clone(), lambda weight: weight.flip(0)])
def test_a_weight_that_the_engine_changes_before_it_loads_it_has_no_known_place(
    change: Callable[[Tensor], Tensor],
) -> None:
    engine = Engine()
    engine.change = change
    assert load(engine).by_tensor() == {}


@pytest.mark.parametrize("change", [lambda each: each + 1, lambda each: -each.exp(), lambda each: each.view(2, 3)])
def test_a_weight_that_the_loader_changes_has_no_known_place(change: Callable[[Tensor], Tensor]) -> None:
    engine = Engine()
    engine.bias.weight_loader = lambda parameter, weight: parameter.data.copy_(change(weight))  # type: ignore[attr-defined]
    if change(torch.zeros(6)).shape != (6,):
        engine.bias.data = torch.zeros(2, 3)
    assert load(engine).find("", "bias") == UNKNOWN


def test_a_rounded_weight_has_no_known_place() -> None:
    engine = Engine()
    engine.bias.data = engine.bias.data.bfloat16()
    assert load(engine).find("", "bias") == UNKNOWN


def test_runs_are_found() -> None:
    assert find_runs(torch.tensor([0, 0, 1, 2, 3, 0, 7, 8, 20, 0])) == [(2, 5), (6, 8), (8, 9)]
    assert find_runs(torch.tensor([5, 6])) == [(0, 2)]
