"""Mixtures of data sources: their shares, their order, and runs that resume."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from in_process import train

from rlt_api.blocks.data import Data
from rlt_api.spec.training_config import TrainingConfig
from rlt_trainer.data.byte_tokenizer import build_byte_tokenizer
from rlt_trainer.data.dataset import PromptDataset
from rlt_trainer.data.mixture import list_sources
from rlt_trainer.data.prompt import Prompt

SIZES = {"a": 40, "b": 5, "c": 12}
WEIGHTS = {"a": 3.0, "b": 1.0, "c": 0.1}


def dataset(weights: dict[str, float] | None = None, *, seed: int = 0, shuffle: bool = True) -> PromptDataset:
    names = [name for name in SIZES for _ in range(SIZES[name])]
    prompts = [Prompt(i, (i,), str(i), str(i), str(i), name) for i, name in enumerate(names)]
    return PromptDataset(prompts, seed=seed, shuffle=shuffle, weights=WEIGHTS if weights is None else weights)


def indices(prompts: Sequence[Prompt]) -> list[int]:
    return [prompt.index for prompt in prompts]


@pytest.mark.parametrize("weights", [[3, 1], [1, 1, 1], [0.5, 0.3, 0.2], [1e-3, 7, 2.5, 1e3]])
def test_each_range_has_the_shares_of_the_weights(weights: list[float]) -> None:
    order, before = list_sources(weights, 0, 3000)
    assert before == [0] * len(weights)
    for start, size in ((0, 8), (0, 3000), (17, 100), (1000, 512)):
        counts = Counter(order[start : start + size])
        for source, weight in enumerate(weights):
            assert abs(counts[source] - size * weight / sum(weights)) < 2


@pytest.mark.parametrize("weights", [[1, 1], [0.7, 0.3], [3, 1, 0.1], [1e-6, 1, 1 / 3]])
def test_any_range_equals_its_part_of_the_whole(weights: list[float]) -> None:
    """Weights with equal times and weights without an exact decimal number included."""
    whole, _ = list_sources(weights, 0, 400)
    for start in range(0, 300):
        part, before = list_sources(weights, start, 7)
        assert part == whole[start : start + 7]
        assert before == [whole[:start].count(source) for source in range(len(weights))]
    far, before = list_sources(weights, 10**9, 3)
    assert len(far) == 3
    assert sum(before) == 10**9


def test_weights_of_one_prompt_each_take_turns() -> None:
    assert list_sources([1, 1], 0, 4)[0] == [0, 1, 0, 1]
    assert list_sources([3, 1], 0, 8)[0] == [0, 0, 1, 0, 0, 0, 1, 0]


def test_each_source_has_its_own_epochs() -> None:
    taken = dataset().take(0, 400)
    sources = Counter(prompt.data_source for prompt in taken)
    assert sources == {"a": 293, "b": 97, "c": 10}
    of_b = [prompt.index for prompt in taken if prompt.data_source == "b"]
    epochs = [of_b[start : start + 5] for start in range(0, 95, 5)]
    assert all(sorted(epoch) == sorted(epochs[0]) for epoch in epochs)
    assert len({tuple(epoch) for epoch in epochs}) > 5
    metrics = dataset().metrics(400)
    assert metrics["source/epochs/a"] == 293 / 40
    assert metrics["source/epochs/b"] == 97 / 5


def test_the_order_depends_on_the_seed_and_not_on_batches() -> None:
    whole = indices(dataset().take(0, 210))
    assert [index for step in range(30) for index in indices(dataset().batch(step, 7))] == whole
    resumed = dataset()
    assert indices(resumed.take(133, 77)) == whole[133:]
    assert indices(dataset(seed=1).take(0, 210)) != whole
    assert [prompt.data_source for prompt in dataset(seed=1).take(0, 210)] == [
        prompt.data_source for prompt in dataset().take(0, 210)
    ]
    unshuffled = [prompt for prompt in dataset(shuffle=False).take(0, 8) if prompt.data_source == "a"]
    assert indices(unshuffled) == list(range(len(unshuffled)))


def test_a_data_set_without_a_mixture_is_unchanged() -> None:
    plain = dataset({})
    assert "mixture" not in plain.fingerprint()
    assert sorted(indices(plain.take(0, 57))) == list(range(57))
    assert dataset().fingerprint()["mixture"] == [["a", 3.0, 40], ["b", 1.0, 5], ["c", 0.1, 12]]


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ({**WEIGHTS, "d": 1.0}, r"data\.mixture: source d has no prompts\. The data has the sources a, b, c: correct"),
        ({"a": 1.0, "b": 2.0}, r"data\.mixture: source c of the data has no weight\. Add it, or leave its rows out"),
    ],
)
def test_sources_and_weights_must_match(weights: dict[str, float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        dataset(weights)


def write_files(folder: Path) -> list[str]:
    """Write a file whose source is its name, and one with the column data_source."""
    sums = [{"prompt": f"{n}+1=", "answer": str(n + 1)} for n in range(7)]
    doubles = [{"prompt": f"{n}+{n}=", "answer": str(2 * n), "data_source": "math/doubles"} for n in range(4)]
    for name, rows in (("sums", sums), ("others", doubles)):
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return [str(folder / f"{name}.jsonl") for name in ("sums", "others")]


MIXTURE = [{"source": "sums", "weight": 1}, {"source": "math/doubles", "weight": 3}]


def test_sources_are_files_or_the_column_data_source(tmp_path: Path) -> None:
    data = Data.model_validate({"files": write_files(tmp_path), "mixture": MIXTURE})
    loaded = PromptDataset.load(data, build_byte_tokenizer(), seed=0, run_directory=tmp_path)
    assert Counter(each.data_source for each in loaded.take(0, 100)) == {"sums": 25, "math/doubles": 75}


def test_a_resumed_run_takes_the_prompts_of_an_uninterrupted_run(
    make_config: Callable[..., TrainingConfig], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken: list[tuple[int, list[int]]] = []
    take = PromptDataset.take

    def record(prompts: PromptDataset, start: int, count: int) -> list[Prompt]:
        rows = take(prompts, start, count)
        taken.append((start, indices(rows)))
        return rows

    monkeypatch.setattr(PromptDataset, "take", record)
    data = {"preset": None, "files": write_files(tmp_path), "mixture": MIXTURE}

    def run(name: str, steps: int) -> list[dict[str, Any]]:
        taken.clear()
        sizes = {"totalSteps": steps, "trainBatchSize": 6, "ppoMiniBatchSize": 6}
        blocks: dict[str, Any] = {"data": data, "training": sizes, "checkpoint": {"saveFreq": 1}}
        rewards = [{"name": "regex", "options": {"pattern": "[a-z0-9]"}}]
        return train(make_config(workers=1, rewards=rewards, runDirectory=str(tmp_path / name), **blocks))

    run("parts", 2)
    third = run("parts", 3)[2]
    resumed = taken[-1]
    (*_, whole) = run("whole", 3)
    assert resumed == taken[-1]
    assert resumed[0] == 12
    for name in ("source/score/sums", "source/score/math/doubles", "critic/score/mean", "actor/pg_loss"):
        assert third[name] == whole[name], name
    assert whole["source/responses/sums"] + whole["source/responses/math/doubles"] == whole["data/responses"]
    assert whole["source/epochs/math/doubles"] == pytest.approx(18 * 0.75 / 4, abs=0.3)
