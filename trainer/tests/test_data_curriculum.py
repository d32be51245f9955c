"""A curriculum: the order of the prompts by difficulty, and where the difficulties come from."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from in_process import train

from rlt_api.blocks.data import Data
from rlt_api.spec.training_config import TrainingConfig
from rlt_trainer.data.byte_tokenizer import build_byte_tokenizer
from rlt_trainer.data.dataset import PromptDataset
from rlt_trainer.data.prompt import Prompt

LEVELS = [3.0, 1.0, 2.0, 1.0, 3.0, 2.5, 1.0, 2.0]


def dataset(epochs: int, *, seed: int = 0, shuffle: bool = True, **options: Any) -> PromptDataset:
    prompts = [Prompt(i, (i,), "", "", "", "ab"[i % 2], difficulty=level) for i, level in enumerate(LEVELS)]
    return PromptDataset(prompts, seed=seed, shuffle=shuffle, curriculum_epochs=epochs, **options)


def levels(prompts: list[Prompt]) -> list[float]:
    return [prompt.difficulty for prompt in prompts if prompt.difficulty is not None]


def test_the_first_epochs_are_sorted_and_the_others_shuffled() -> None:
    taken = dataset(2).take(0, 32)
    epochs = [taken[start : start + 8] for start in range(0, 32, 8)]
    assert [levels(epoch) == sorted(LEVELS) for epoch in epochs] == [True, True, False, False]
    assert epochs[0] != epochs[1], "equal ones are shuffled"
    assert epochs[2:] == [dataset(0).take(16, 8), dataset(0).take(24, 8)]
    assert dataset(2, seed=1).take(0, 8) != epochs[0]


def test_unshuffled_equal_prompts_keep_the_order_of_the_data() -> None:
    assert [prompt.index for prompt in dataset(1, shuffle=False).take(0, 8)] == [1, 3, 6, 2, 7, 5, 0, 4]


def test_any_range_equals_its_part_of_the_whole() -> None:
    whole = dataset(1).take(0, 40)
    assert [dataset(1).take(start, 5) for start in range(0, 40, 5)] == [whole[n : n + 5] for n in range(0, 40, 5)]


def test_each_source_of_a_mixture_has_its_own_curriculum() -> None:
    taken = dataset(1, weights={"a": 1.0, "b": 1.0}).take(0, 8)
    for source in "ab":
        of = levels([prompt for prompt in taken if prompt.data_source == source])
        assert len(of) == 4
        assert of == sorted(of)


def test_the_identity_of_the_data_includes_epochs_and_difficulties() -> None:
    plain, one, two = (dataset(epochs).fingerprint() for epochs in range(3))
    assert "curriculum" not in plain
    assert one["curriculum"] != two["curriculum"]
    other = [Prompt(i, (i,), "", "", "", "ab"[i % 2], difficulty=-level) for i, level in enumerate(LEVELS)]
    found = PromptDataset(other, seed=0, shuffle=True, curriculum_epochs=1).fingerprint()
    assert {**found, "curriculum": None} == {**one, "curriculum": None}
    assert found != one
    assert json.loads(json.dumps(one)) == one


def write(folder: Path, name: str, rows: list[dict[str, Any]]) -> str:
    path = folder / f"{name}.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


def load(folder: Path, rows: list[dict[str, Any]]) -> PromptDataset:
    data = Data.model_validate({"files": [write(folder, "rows", rows)], "curriculum": {"column": "level"}})
    return PromptDataset.load(data, build_byte_tokenizer(), seed=0, run_directory=folder)


def test_difficulties_are_read_from_the_column(tmp_path: Path) -> None:
    loaded = load(tmp_path, [{"prompt": f"{level}", "answer": "", "level": level} for level in (3, 1, 2.5)])
    assert [prompt.text for prompt in loaded.take(0, 3)] == ["1", "2.5", "3"]


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({}, r"row 1 has no column level; it has prompt, answer\. Change data\.curriculum\.column or the file"),
        ({"level": None}, r"row 1: column level \(data\.curriculum\.column\) is null"),
        ({"level": "Level 5"}, r"is 'Level 5', which is not a number\. Write the difficulty as a number"),
        ({"level": True}, "is 'True', which is not a number"),
        ({"level": float("nan")}, "is 'nan', which is not a number"),
    ],
)
def test_a_row_without_a_number_is_rejected(tmp_path: Path, row: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        load(tmp_path, [{"prompt": "q", "answer": "a", **row}])


def test_a_run_goes_from_easy_to_difficult_also_if_it_resumes(
    make_config: Callable[..., TrainingConfig], tmp_path: Path
) -> None:
    rows = [{"prompt": f"{n}+1=", "answer": str(n + 1), "level": n % 9 + 1} for n in range(18)]
    data = {"preset": None, "files": [write(tmp_path, "sums", rows)], "curriculum": {"column": "level"}}

    def run(steps: int) -> list[dict[str, Any]]:
        sizes = {"totalSteps": steps, "trainBatchSize": 6, "ppoMiniBatchSize": 6}
        return train(make_config(workers=1, data=data, training=sizes, checkpoint={"saveFreq": 1}))

    run(1)
    assert [step["data/difficulty"] for step in run(3)] == [2.0, 5.0, 8.0]
