"""The published files of GSM8K are converted to verl's parquet, and then read as prompts."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq  # type: ignore[import-untyped]
import pytest
from word_problems import GROUND_TRUTHS, find_gsm8k, write_word_problems

from rlt_api.blocks.data import Data, HubDataset
from rlt_trainer.data.byte_tokenizer import build_byte_tokenizer
from rlt_trainer.data.dataset import EvaluationSet, PromptDataset
from rlt_trainer.data.gsm8k import INSTRUCTION, read_gsm8k_rows
from rlt_trainer.data.preset_files import convert_examples, read_parquet
from rlt_trainer.data.prompt import Split
from rlt_trainer.data.published import DATA_SETS
from rlt_trainer.data.sources import read_examples

GOOD = {"question": "How many?", "answer": "Many.\n#### 1,200"}
TOKENIZER = build_byte_tokenizer()


def write(folder: Path, train: list[object], test: list[object] | None = None) -> Path:
    folder.mkdir(exist_ok=True)
    for split, rows in {"train": train, "test": [GOOD] if test is None else test}.items():
        lines = (row if isinstance(row, str) else json.dumps(row) for row in rows)
        (folder / f"{split}.jsonl").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return folder


def read_train(folder: Path | None) -> list[dict[str, Any]]:
    assert folder
    return read_gsm8k_rows(folder, "train")


def test_a_row_has_verls_format(tmp_path: Path) -> None:
    convert_examples(read_train, str(write(tmp_path / "source", [GOOD])), tmp_path, "train")
    (row,) = pq.read_table(tmp_path / "train.parquet").to_pylist()
    prompt = 'How many? Let\'s think step by step and output the final answer after "####".'
    assert row == {
        "data_source": "openai/gsm8k",
        "prompt": [{"role": "user", "content": prompt}],
        "ability": "math",
        "reward_model": {"style": "rule", "ground_truth": "1200"},
        "extra_info": {"split": "train", "index": 0, "answer": GOOD["answer"], "question": "How many?"},
    }


def test_the_training_prompts_are_from_the_train_split(tmp_path: Path) -> None:
    other = {"question": "Other?", "answer": "#### 2"}
    data = Data(preset="gsm8k", path=str(write(tmp_path / "source", [GOOD], [other])))
    prompts = PromptDataset.load(data, TOKENIZER, seed=0, run_directory=tmp_path / "run")
    (prompt,) = prompts.batch(0, 1)
    assert prompt.text.startswith("<|bos|><|user|>How many? Let's think")
    assert prompt.text.endswith("<|eos|><|assistant|>")
    assert (prompt.ground_truth, prompt.solution) == ("1200", GOOD["answer"])
    (validated,) = EvaluationSet.load(data, TOKENIZER, seed=0, run_directory=tmp_path / "run").prompts
    assert (validated.ground_truth, validated.data_source) == ("2", "openai/gsm8k")
    assert sorted(path.name for path in (tmp_path / "run" / "data" / "gsm8k").iterdir()) == [
        "test.parquet",
        "train.parquet",
    ]


def test_overlong_prompts_are_left_out_and_counted(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    long = {"question": "?" * 600, "answer": "#### 1"}
    data = Data(preset="gsm8k", path=str(write(tmp_path / "source", [long, GOOD, long])))
    prompts = PromptDataset.load(data, TOKENIZER, seed=0, run_directory=tmp_path)
    assert [prompt.index for prompt in prompts.batch(0, len(prompts))] == [1]
    assert "2 of 3 training prompts are longer than data.maxPromptLength 512 and are left out" in caplog.text


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        ("{", r"train.jsonl, line 2 is not JSON .*Copy the file again"),
        ([1], r"train.jsonl, line 2 is not a JSON object but a list"),
        (
            {"problem": "?", "answer": "#### 1"},
            r'line 2 has no text "question" \(found: \'problem\', \'answer\'\).*rename',
        ),
        ({"question": "?"}, r'line 2 has no text "answer" \(found: \'question\'\)'),
        ({"question": "?", "answer": 3}, r'line 2 has no text "answer"'),
        ({"question": "?", "answer": "3"}, r'line 2: the answer does not end with "#### NUMBER"'),
    ],
)
def test_an_invalid_line_is_reported_with_the_fix(tmp_path: Path, bad: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        read_gsm8k_rows(write(tmp_path / "source", [GOOD, bad]), "train")


def test_an_empty_file_is_reported(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"train.jsonl is empty. Copy"):
        read_gsm8k_rows(write(tmp_path / "source", []), "train")


def test_a_file_that_is_not_text_is_reported(tmp_path: Path) -> None:
    (write(tmp_path / "source", [GOOD]) / "train.jsonl").write_bytes(b"\x1f\x8b\xff")
    with pytest.raises(ValueError, match=r"train.jsonl, line 1 is not UTF-8 text. Decompress the file"):
        read_gsm8k_rows(tmp_path / "source", "train")


@pytest.mark.parametrize("split", ["train", "test"])
def test_a_missing_file_is_reported(tmp_path: Path, split: Split) -> None:
    source = write(tmp_path / "source", [GOOD])
    (source / f"{split}.jsonl").unlink()
    with pytest.raises(ValueError, match=f"{source} has no {split}.jsonl. Download"):
        read_gsm8k_rows(source, split)


def test_a_missing_folder_is_reported(tmp_path: Path) -> None:
    data = Data(preset="gsm8k", path="/no/such/folder")
    with pytest.raises(ValueError, match=r"data.path /no/such/folder: no such folder.*Put the published files"):
        PromptDataset.load(data, TOKENIZER, seed=0, run_directory=tmp_path)


def test_without_a_path_the_preset_reads_the_hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder of JSON lines is a data set on the hub for the library datasets, with the configuration `default`."""
    hub = HubDataset(name=str(write(tmp_path / "source", [GOOD])), config="default")
    monkeypatch.setitem(DATA_SETS, "gsm8k", replace(DATA_SETS["gsm8k"], hub=hub))
    (from_hub,) = read_examples(Data(preset="gsm8k"), "train", seed=0, run_directory=tmp_path / "hub")
    given = Data(preset="gsm8k", path=hub.name)
    assert [from_hub] == read_examples(given, "train", seed=0, run_directory=tmp_path / "path")
    message = from_hub.prompt[0]
    assert isinstance(message, dict)
    assert INSTRUCTION in message["content"]


def test_a_missing_column_is_reported(tmp_path: Path) -> None:
    convert_examples(read_train, str(write(tmp_path / "source", [GOOD])), tmp_path, "train")
    parquet = tmp_path / "train.parquet"
    pq.write_table(pq.read_table(parquet).drop_columns(["reward_model"]), parquet)
    with pytest.raises(ValueError, match=rf"{parquet} has no column reward_model; it has data_source, prompt"):
        read_parquet(parquet)


def test_the_ground_truths_are_the_final_answers_without_separators(tmp_path: Path) -> None:
    data = Data(preset="gsm8k", path=str(write_word_problems(tmp_path / "source")))
    prompts = PromptDataset.load(data, TOKENIZER, seed=0, run_directory=tmp_path / "run").batch(0, 16)
    ordered = sorted(prompts, key=lambda prompt: prompt.index)
    assert [prompt.ground_truth for prompt in ordered] == GROUND_TRUTHS


def test_the_published_data_set_is_read_completely(tmp_path: Path) -> None:
    published = find_gsm8k()
    data = Data(preset="gsm8k", path=str(published), max_prompt_length=2048)
    prompts = PromptDataset.load(data, TOKENIZER, seed=0, run_directory=tmp_path)
    assert len(prompts) == 7473
    assert len(read_gsm8k_rows(published, "test")) == 1319
    assert all(re.fullmatch(r"-?[0-9.]+", prompt.ground_truth) for prompt in prompts.batch(0, 7473))
