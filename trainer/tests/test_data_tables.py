"""A user's rows: verl's columns, named columns, filters, and errors of invalid rows."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]
import pytest

from rlt_api.blocks.data import Data, DataFilter
from rlt_trainer.data.byte_tokenizer import build_byte_tokenizer
from rlt_trainer.data.dataset import PromptDataset
from rlt_trainer.data.encoding import limit_prompt_length, tokenize
from rlt_trainer.data.prompt import Example, Split
from rlt_trainer.data.tables import read_table

TOKENIZER = build_byte_tokenizer()
SPLITS: tuple[Split, ...] = ("train", "test")
VERL_ROW: dict[str, Any] = {
    "data_source": "openai/gsm8k",
    "prompt": [{"role": "user", "content": "How many?"}],
    "reward_model": {"style": "rule", "ground_truth": "7"},
    "extra_info": {"answer": "They are #### 7"},
}


def write_rows(tmp_path: Path, name: str, rows: list[dict[str, Any]]) -> str:
    path = tmp_path / name
    if path.suffix == ".parquet":
        pq.write_table(pa.Table.from_pylist(rows), path)
    else:
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


@pytest.mark.parametrize("name", ["rows.parquet", "rows.jsonl"])
def test_verls_columns_are_the_default(tmp_path: Path, name: str) -> None:
    (example,) = read_table(Data(files=[write_rows(tmp_path, name, [VERL_ROW])]))
    assert example == Example(VERL_ROW["prompt"], "7", "They are #### 7", "openai/gsm8k", VERL_ROW["extra_info"])


def test_the_job_can_name_the_columns(tmp_path: Path) -> None:
    files = [write_rows(tmp_path, "sums.jsonl", [{"q": "1+1=", "a": 2}])]
    (example,) = read_table(Data(files=files, prompt_key="q", answer_key="a"))
    assert (example.prompt, example.ground_truth, example.data_source) == ("1+1=", "2", "sums")


def test_rows_that_match_all_filters_are_kept(tmp_path: Path) -> None:
    rows = [
        {"prompt": f"{level}{kind}", "answer": "", "level": level, "kind": kind} for level in (1, 2) for kind in "ab"
    ]
    files = [write_rows(tmp_path, "rows.jsonl", rows)]
    filters = [{"column": "level", "values": ["2"]}, {"column": "kind", "values": ["a", "c"]}]
    data = Data.model_validate({"files": files, "filters": filters})
    assert [example.prompt for example in read_table(data)] == ["2a"]


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([{"question": "q", "answer": "a"}], "row 1 has no column prompt; it has question, answer"),
        ([{"prompt": "q"}], "row 1 has no column answer"),
        ([{"prompt": "q", "answer": None}], r"row 1: column answer \(data.answerKey\) is null"),
        ([{"prompt": ["q"], "answer": "a"}], "neither text nor a list of messages"),
        ([], "is empty"),
        ([{"prompt": "q", "answer": "a", "level": 1}], "no row of 1 matches data.filters"),
        ([{"prompt": "q", "answer": "a"}], "has no column level.*Change data.filters"),
    ],
)
def test_invalid_rows_are_reported(tmp_path: Path, rows: list[dict[str, Any]], message: str) -> None:
    files = [write_rows(tmp_path, "rows.jsonl", rows)]
    filters = [{"column": "level", "values": ["2"]}]
    data = Data.model_validate({"files": files, "filters": filters if "filters" in message else []})
    with pytest.raises(ValueError, match=message):
        read_table(data)


@pytest.mark.parametrize(
    ("name", "message"), [("a.jsonl", "line 1 is not JSON"), ("a.parquet", "cannot be read as parquet")]
)
def test_a_corrupt_file_is_reported(tmp_path: Path, name: str, message: str) -> None:
    (tmp_path / name).write_text("{")
    with pytest.raises(ValueError, match=message):
        read_table(Data(files=[str(tmp_path / name)]))


def test_a_missing_file_is_reported() -> None:
    with pytest.raises(ValueError, match=r"data\.files /nowhere/a\.parquet: no such file"):
        read_table(Data(files=["/nowhere/a.parquet"]))


def test_inline_prompts_are_a_data_set(tmp_path: Path) -> None:
    data = Data.model_validate({"inline": [{"prompt": "1+1=", "answer": "2"}], "maxPromptLength": 8})
    (prompt,) = PromptDataset.load(data, TOKENIZER, seed=0, run_directory=tmp_path).batch(0, 1)
    assert (prompt.text, prompt.ground_truth) == ("1+1=", "2")


@pytest.mark.parametrize(("side", "kept"), [("left", "cdef"), ("right", "abcd"), ("middle", "abef")])
def test_overlong_prompts_are_truncated_as_in_verl(side: str, kept: str) -> None:
    data = Data.model_validate({"preset": "arithmetic", "maxPromptLength": 4, "overlongPrompts": side})
    prompts = tokenize([Example("abcdef", "", "", ""), Example("xy", "", "", "")], TOKENIZER)
    assert [prompt.text for prompt in limit_prompt_length(prompts, data, TOKENIZER, name="training")[0]] == [kept, "xy"]


def test_overlong_prompts_can_be_an_error() -> None:
    data = Data.model_validate({"preset": "arithmetic", "maxPromptLength": 4, "overlongPrompts": "error"})
    with pytest.raises(ValueError, match=r"1 of 1 training prompts are longer .* the longest has 6 tokens"):
        limit_prompt_length(tokenize([Example("abcdef", "", "", "")], TOKENIZER), data, TOKENIZER, name="training")


def test_the_jobs_chat_template_is_used() -> None:
    conversation = [{"role": "user", "content": "hello"}]
    template = "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}"
    (prompt,) = tokenize([Example(conversation, "", "", "")], TOKENIZER, chat_template=template)
    assert prompt.text == "<user>hello"


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The library datasets caches its files here, not in the home directory."""
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", tmp_path / "cache")


def hub(tmp_path: Path, **fields: Any) -> Data:
    """A folder that the library datasets loads like a data set on the hub."""
    folder = tmp_path / "hub"
    folder.mkdir()
    for split in SPLITS:
        write_rows(folder, f"{split}.jsonl", [{"q": f"{split} {n}", "a": n, "level": n} for n in range(3)])
    return Data.model_validate({"hub": {"name": str(folder), **fields}, "promptKey": "q", "answerKey": "a"})


@pytest.mark.usefixtures("cache")
def test_a_hub_data_set_is_read_by_split(tmp_path: Path) -> None:
    data = hub(tmp_path)
    data = data.model_copy(update={"filters": [DataFilter(column="level", values=["1", "2"])]})
    assert data.hub
    splits = {split: data.hub.model_copy(update={"split": split}) for split in SPLITS}
    examples = {split: read_table(data.model_copy(update={"hub": each})) for split, each in splits.items()}
    assert {s: [(e.prompt, e.ground_truth) for e in found] for s, found in examples.items()} == {
        split: [(f"{split} 1", "1"), (f"{split} 2", "2")] for split in SPLITS
    }
    assert examples["train"][0].data_source == str(tmp_path / "hub")


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"split": "valid"}, r"split valid: it cannot be loaded .*Unknown split .*valid"),
        ({"config": "other"}, r"cannot be loaded .*BuilderConfig 'other' not found"),
    ],
)
@pytest.mark.usefixtures("cache")
def test_a_missing_hub_split_or_config_is_reported(tmp_path: Path, fields: dict[str, str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        read_table(hub(tmp_path, **fields))


@pytest.mark.usefixtures("cache")
def test_an_unknown_column_of_a_hub_data_set_is_reported(tmp_path: Path) -> None:
    data = hub(tmp_path).model_copy(update={"prompt_key": "question"})
    with pytest.raises(ValueError, match=r"split train, row 1 has no column question; it has q, a, level"):
        read_table(data)
