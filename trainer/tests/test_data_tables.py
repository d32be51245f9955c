"""A user's own rows: verl's columns, named columns, filters, and what is said of rows that do not fit."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]
import pytest

from rlt_api.blocks.data import Data
from rlt_trainer.data.byte_tokenizer import byte_tokenizer
from rlt_trainer.data.dataset import PromptDataset, fitted, tokenize
from rlt_trainer.data.prompt import Example
from rlt_trainer.data.tables import file_examples

TOKENIZER = byte_tokenizer()
VERL_ROW = {
    "data_source": "openai/gsm8k",
    "prompt": [{"role": "user", "content": "How many?"}],
    "reward_model": {"style": "rule", "ground_truth": "7"},
    "extra_info": {"answer": "They are #### 7"},
}


def written(tmp_path: Path, name: str, rows: list[dict[str, Any]]) -> str:
    path = tmp_path / name
    if path.suffix == ".parquet":
        pq.write_table(pa.Table.from_pylist(rows), path)
    else:
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


@pytest.mark.parametrize("name", ["rows.parquet", "rows.jsonl"])
def test_verls_columns_need_no_names(tmp_path: Path, name: str) -> None:
    (example,) = file_examples(Data(files=[written(tmp_path, name, [VERL_ROW])]))
    assert example == Example(VERL_ROW["prompt"], "7", "They are #### 7", "openai/gsm8k")  # type: ignore[arg-type]


def test_named_columns(tmp_path: Path) -> None:
    files = [written(tmp_path, "sums.jsonl", [{"q": "1+1=", "a": 2}])]
    (example,) = file_examples(Data(files=files, prompt_key="q", answer_key="a"))
    assert (example.prompt, example.ground_truth, example.data_source) == ("1+1=", "2", "sums")


def test_filters_keep_what_fulfils_all_of_them(tmp_path: Path) -> None:
    rows = [
        {"prompt": f"{level}{kind}", "answer": "", "level": level, "kind": kind} for level in (1, 2) for kind in "ab"
    ]
    files = [written(tmp_path, "rows.jsonl", rows)]
    filters = [{"column": "level", "values": ["2"]}, {"column": "kind", "values": ["a", "c"]}]
    data = Data.model_validate({"files": files, "filters": filters})
    assert [example.prompt for example in file_examples(data)] == ["2a"]


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ([{"question": "q", "answer": "a"}], "row 1 has no column prompt; it has question, answer"),
        ([{"prompt": "q"}], "row 1 has no column answer"),
        ([{"prompt": ["q"], "answer": "a"}], "neither text nor a list of messages"),
        ([], "is empty"),
    ],
)
def test_rows_that_do_not_fit_are_named(tmp_path: Path, rows: list[dict[str, Any]], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        file_examples(Data(files=[written(tmp_path, "rows.jsonl", rows)]))


@pytest.mark.parametrize(
    ("name", "words"), [("a.jsonl", "line 1 is not JSON"), ("a.parquet", "cannot be read as parquet")]
)
def test_a_damaged_file_is_named(tmp_path: Path, name: str, words: str) -> None:
    (tmp_path / name).write_text("{")
    with pytest.raises(ValueError, match=words):
        file_examples(Data(files=[str(tmp_path / name)]))


def test_a_missing_file_is_named() -> None:
    with pytest.raises(ValueError, match=r"data\.files /nowhere/a\.parquet: no such file"):
        file_examples(Data(files=["/nowhere/a.parquet"]))


def test_inline_prompts_are_a_data_set(tmp_path: Path) -> None:
    data = Data.model_validate({"inline": [{"prompt": "1+1=", "answer": "2"}], "maxPromptLength": 8})
    (prompt,) = PromptDataset.load(data, TOKENIZER, seed=0, run_directory=tmp_path).batch(0, 1)
    assert (prompt.text, prompt.ground_truth) == ("1+1=", "2")


@pytest.mark.parametrize(("part", "kept"), [("left", "cdef"), ("right", "abcd"), ("middle", "abef")])
def test_overlong_prompts_are_cut_as_verl_does(part: str, kept: str) -> None:
    data = Data.model_validate({"preset": "arithmetic", "maxPromptLength": 4, "overlongPrompts": part})
    prompts = tokenize([Example("abcdef", "", "", ""), Example("xy", "", "", "")], TOKENIZER)
    assert [prompt.text for prompt in fitted(prompts, data, TOKENIZER)] == [kept, "xy"]


def test_overlong_prompts_can_be_an_error() -> None:
    data = Data.model_validate({"preset": "arithmetic", "maxPromptLength": 4, "overlongPrompts": "error"})
    with pytest.raises(ValueError, match=r"1 of 1 prompts are longer .* the longest has 6 tokens"):
        fitted(tokenize([Example("abcdef", "", "", "")], TOKENIZER), data, TOKENIZER)


def test_a_chat_template_of_the_jobs_own() -> None:
    conversation = [{"role": "user", "content": "hello"}]
    template = "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}"
    (prompt,) = tokenize([Example(conversation, "", "", "")], TOKENIZER, chat_template=template)
    assert prompt.text == "<user>hello"
