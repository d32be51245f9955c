"""`rlt-trainer prepare` writes files that verl's readers, the libraries datasets and pandas, read as verl expects."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from word_problems import GROUND_TRUTHS, find_gsm8k, write_word_problems

from rlt_trainer.__main__ import main

GSM8K = {"question": "How many?", "answer": "Many.\n#### 1,200"}
MATH = {"problem": "What is 7?", "level": "Level 1", "type": "Algebra", "solution": "It is \\boxed{7}."}
ROWS = {
    "gsm8k": {
        "data_source": "openai/gsm8k",
        "prompt": [
            {
                "role": "user",
                "content": 'How many? Let\'s think step by step and output the final answer after "####".',
            }
        ],
        "ability": "math",
        "reward_model": {"style": "rule", "ground_truth": "1200"},
        "extra_info": {"split": "train", "index": 0, "answer": GSM8K["answer"], "question": "How many?"},
    },
    "math": {
        "data_source": "DigitalLearningGmbH/MATH-lighteval",
        "prompt": [
            {
                "role": "user",
                "content": "What is 7? Let's think step by step and output the final answer within \\boxed{}.",
            }
        ],
        "ability": "math",
        "reward_model": {"style": "rule", "ground_truth": "7"},
        "extra_info": {"split": "train", "index": 0, "answer": MATH["solution"], "question": "What is 7?"},
    },
}


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The library datasets caches its files here, not in the home directory."""
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", tmp_path / "cache")


def write(folder: Path, row: dict[str, str]) -> Path:
    folder.mkdir()
    for split in ("train", "test"):
        (folder / f"{split}.jsonl").write_text(json.dumps(row) + "\n")
    return folder


def read_with_datasets(file: Path) -> list[dict[str, Any]]:
    import datasets  # type: ignore[import-untyped] # slow import

    return list(datasets.load_dataset("parquet", data_files=str(file), split="train"))


@pytest.mark.parametrize(("name", "row"), [("gsm8k", GSM8K), ("math", MATH)])
@pytest.mark.parametrize("source", ["path", "hub"])
def test_the_rows_equal_verls(
    source: str, name: str, row: dict[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A folder of JSON lines is a data set on the hub for the library datasets, with the configuration `default`."""
    given = [f"--{source}", str(write(tmp_path / "source", row))]
    config = ["--config", "default"] if source == "hub" else []
    output = tmp_path / "a" / "output"
    assert main(["prepare", name, *given, *config, "--output", str(output)]) == 0
    assert sorted(file.name for file in output.iterdir()) == ["test.parquet", "train.parquet"]
    assert read_with_datasets(output / "train.parquet") == [ROWS[name]]
    assert capsys.readouterr().out.splitlines()[-1] == f"{output / 'test.parquet'}: 1 rows"


def test_pandas_reads_the_same_rows(tmp_path: Path) -> None:
    import pandas as pd

    source = write(tmp_path / "source", GSM8K)
    assert main(["prepare", "gsm8k", "--path", str(source), "--output", str(tmp_path)]) == 0
    (row,) = pd.read_parquet(tmp_path / "train.parquet").to_dict("records")
    assert {**row, "prompt": list(row["prompt"])} == ROWS["gsm8k"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--path", "/nowhere"], "--path /nowhere: no such folder. Put the published files"),
        (["--path", "{empty}"], "--path: {empty} has no train.jsonl. Download GSM8K's train.jsonl"),
        (["--path", "{odd}"], "--path: {odd}/train.jsonl, line 1 has no text \"question\" (found: 'problem'"),
        (["--hub", "{odd}"], "--hub {odd}, split train: it cannot be loaded (BuilderConfig 'main' not found"),
        (["--hub", "{odd}", "--config", "default"], '--hub {odd}, split train, row 1 has no text "question"'),
    ],
)
def test_an_invalid_source_is_reported_and_nothing_is_written(
    arguments: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "empty").mkdir()
    folders = {"empty": str(tmp_path / "empty"), "odd": str(write(tmp_path / "odd", MATH))}
    output = tmp_path / "output"
    given = [each.format(**folders) for each in arguments]
    assert main(["prepare", "gsm8k", *given, "--output", str(output)]) == 1
    assert message.format(**folders) in capsys.readouterr().err
    assert not output.exists()


def test_an_invalid_test_split_leaves_the_old_files(tmp_path: Path) -> None:
    source = write(tmp_path / "source", GSM8K)
    command = ["prepare", "gsm8k", "--path", str(source), "--output", str(tmp_path)]
    assert main(command) == 0
    before = (tmp_path / "train.parquet").read_bytes()
    (source / "train.jsonl").write_text(json.dumps(GSM8K) * 2)
    (source / "test.jsonl").write_text("{")
    assert main(command) == 1
    assert (tmp_path / "train.parquet").read_bytes() == before


def test_the_variable_that_prevents_a_download_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("datasets.config.HF_HUB_OFFLINE", True)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    assert main(["prepare", "math", "--hub", "--output", str(tmp_path)]) == 1
    error = capsys.readouterr().err
    assert "--hub DigitalLearningGmbH/MATH-lighteval, split train: it cannot be loaded" in error
    assert "HF_HUB_OFFLINE is set, and the cache HF_HOME does not contain the data set" in error


def test_all_rows_are_prepared_in_their_order(tmp_path: Path) -> None:
    source = write_word_problems(tmp_path / "source")
    assert main(["prepare", "gsm8k", "--path", str(source), "--output", str(tmp_path)]) == 0
    for split in ("train", "test"):
        rows = read_with_datasets(tmp_path / f"{split}.parquet")
        assert [row["reward_model"]["ground_truth"] for row in rows] == GROUND_TRUTHS


def test_the_published_data_set_is_prepared_completely(tmp_path: Path) -> None:
    assert main(["prepare", "gsm8k", "--path", str(find_gsm8k()), "--output", str(tmp_path)]) == 0
    train, test = (read_with_datasets(tmp_path / f"{split}.parquet") for split in ("train", "test"))
    assert (len(train), len(test)) == (7473, 1319)
    assert train[0]["reward_model"]["ground_truth"] == "72"
