"""Every mixture whose experts are split trains the same with and without it, and reaches the engine and the export."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from ranks import join, run_ranks
from test_policy_expert_parallel import TOLERANCE, Run, on, update
from trained_families import FAMILIES, Family, write_model
from transformers import AutoModelForCausalLM

from rlt_api.rules.model_families import EXPERT_PARALLEL, ROUTER_BIAS
from rlt_trainer.policy.weight_files import SafetensorsFiles

EXPERTS = 8
RATE = 0.01
MAX_DIFFERENCE = 1e-3
"""The learning rate, about the largest change of an element in one update."""
PACKED = {"model": {"use_remove_padding": True}}
LINEAR = ("qwen3_next", "qwen3_5_moe_text")
"""Families with linear attention, which are not packed."""
MIXTURES: dict[str, Family] = {
    family.model_type: family
    for family in (
        *(FAMILIES[name] for name in ("DeepSeek-V3", "GLM-4 MoE", "Qwen3-MoE", "Qwen3-Next")),
        Family("qwen3_5_moe_text", "Qwen/Qwen3.5-35B-A3B", FAMILIES["Qwen3-Next"].values),
    )
}
VARIANTS = {
    1: {"one rank": on(1)},
    2: {"two ranks": on(1), "two parts": on(2), "two parts, packed": on(2, **PACKED)},
    4: {"two parts on two ranks each": on(2), "four parts": on(4)},
}
"""Variants by number of ranks."""
SPLIT = [name for ranks in (2, 4) for name in VARIANTS[ranks] if "part" in name]


@dataclass(frozen=True)
class Results:
    files: Path
    runs: dict[str, Run]
    exports: Path


def list_variants(model_type: str, ranks: int) -> dict[str, Any]:
    return {
        name: variant
        for name, variant in VARIANTS[ranks].items()
        if model_type not in LINEAR or not variant["model"].get("use_remove_padding")
    }


@pytest.fixture(scope="module", params=sorted(EXPERT_PARALLEL))
def results(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Results:
    files, exports = (tmp_path_factory.mktemp(name) for name in ("mixture", "exports"))
    write_model(MIXTURES[request.param], files)
    runs: dict[str, Run] = {}
    for ranks in VARIANTS:
        arguments = [(request.param, str(files), exports, rank, ranks) for rank in range(ranks)]
        runs |= run_ranks(one_rank, arguments)[0]
    return Results(files, runs, exports)


def one_rank(model_type: str, files: str, exports: Path, rank: int, ranks: int) -> dict[str, Run]:
    import torch.distributed as dist

    torch.set_num_threads(1)
    join(rank, ranks)
    rate = RATE if model_type in ROUTER_BIAS else 0.0
    runs = {
        name: update(files, exports, rank, **variant, rate=rate, exported=exports / name)
        for name, variant in list_variants(model_type, ranks).items()
    }
    dist.destroy_process_group()
    return runs


@pytest.mark.slow
@pytest.mark.long
def test_losses_and_weights_are_the_same_with_and_without_parts(results: Results) -> None:
    expected = results.runs["one rank"]
    assert expected.steps["grad_norm"][0] > 1e-2
    assert "actor/expert_load_entropy" in expected.steps
    for name, run in results.runs.items():
        assert run.steps.keys() == expected.steps.keys()
        for metric, steps in run.steps.items():
            assert steps == pytest.approx(expected.steps[metric], rel=TOLERANCE, abs=TOLERANCE), (name, metric)
        assert_nearly_same(run.weights, expected.weights)
    initial = AutoModelForCausalLM.from_pretrained(results.files).state_dict()
    moved = [torch.from_numpy(weight) - initial[name] for name, weight in expected.weights.items() if "experts" in name]
    assert min(float(each.abs().max()) for each in moved) > 100 * TOLERANCE, "the updates are large enough to differ"


@pytest.mark.slow
@pytest.mark.long
def test_the_engine_gets_the_names_of_the_files(results: Results) -> None:
    names = SafetensorsFiles(str(results.files)).names()
    assert sum(name.endswith(f"experts.{EXPERTS - 1}.down_proj.weight") for name in names) > 0
    for variant in [each for each in SPLIT if each in results.runs]:
        assert results.runs[variant].sent.keys() == names
        assert_nearly_same(results.runs[variant].sent, results.runs["one rank"].sent)


def assert_nearly_same(weights: dict[str, Any], expected: dict[str, Any]) -> None:
    """Compare weights after updates: AdamW divides a gradient by its size, so that its rounding near 0 moves single
    elements by a part of the learning rate."""
    assert weights.keys() == expected.keys()
    for name, weight in weights.items():
        difference = np.abs(weight - expected[name])
        assert (difference > TOLERANCE * (1 + np.abs(expected[name]))).sum() <= 2 + weight.size // 1000, name
        assert difference.max() < MAX_DIFFERENCE, name


@pytest.mark.slow
@pytest.mark.long
def test_transformers_loads_the_export(results: Results) -> None:
    for variant in [each for each in SPLIT if each in results.runs]:
        loaded = AutoModelForCausalLM.from_pretrained(results.exports / variant).state_dict()
        weights = results.runs[variant].weights
        assert all(torch.equal(loaded[name], torch.from_numpy(weight)) for name, weight in weights.items())
