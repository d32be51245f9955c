"""The selection of each step's prompts, and their tokenization."""

from __future__ import annotations

import json
import logging
from pathlib import Path

import pytest
from tokenizers import processors

from rlt_api.blocks.data import Data
from rlt_trainer.data.byte_tokenizer import build_byte_tokenizer
from rlt_trainer.data.dataset import EvaluationSet, PromptDataset, compare_fingerprints
from rlt_trainer.data.encoding import tokenize
from rlt_trainer.data.prompt import Example, Prompt

TOKENIZER = build_byte_tokenizer()


def dataset(length: int, *, seed: int = 0, shuffle: bool = True) -> PromptDataset:
    prompts = [Prompt(i, (i,), str(i), str(i), str(i), "test") for i in range(length)]
    return PromptDataset(prompts, seed=seed, shuffle=shuffle)


def load_evaluation(data: Data, folder: Path) -> EvaluationSet:
    return EvaluationSet.load(data, TOKENIZER, seed=0, run_directory=folder)


def indices(prompts: list[Prompt]) -> list[int]:
    return [prompt.index for prompt in prompts]


@pytest.mark.parametrize("size", [1, 3, 7, 10, 25])
def test_every_epoch_takes_each_prompt_once(size: int) -> None:
    data = dataset(10)
    taken = [index for step in range(50) for index in indices(data.batch(step, size))]
    epochs = [taken[i : i + 10] for i in range(0, len(taken) - 9, 10)]
    assert epochs
    assert all(sorted(epoch) == list(range(10)) for epoch in epochs)


def test_steps_can_be_read_in_any_order() -> None:
    in_order = [dataset(10).batch(step, 4) for step in range(9)]
    fresh = dataset(10)
    assert [fresh.batch(step, 4) for step in reversed(range(9))] == in_order[::-1]


def test_epochs_and_seeds_differ_in_order() -> None:
    first, second = (indices(dataset(50).batch(step, 50)) for step in (0, 1))
    other = indices(dataset(50, seed=1).batch(0, 50))
    assert len({tuple(first), tuple(second), tuple(other)}) == 3


def test_unshuffled_prompts_keep_their_order_and_wrap_around() -> None:
    data = dataset(5, shuffle=False)
    assert indices(data.batch(1, 4)) == [4, 0, 1, 2]


def test_the_difference_between_fingerprints_is_described() -> None:
    current = dataset(10).fingerprint()
    assert compare_fingerprints(dataset(10).fingerprint(), current) is None
    assert "9 prompts instead of 10" in str(compare_fingerprints(dataset(9).fingerprint(), current))
    assert "a different order" in str(compare_fingerprints(dataset(10, seed=1).fingerprint(), current))
    answers = [Prompt(i, (i,), str(i), "?", str(i), "test") for i in range(10)]
    saved = PromptDataset(answers, seed=0, shuffle=True).fingerprint()
    assert "different texts or answers" in str(compare_fingerprints(saved, current))


def test_any_range_of_prompts_can_be_read() -> None:
    data = dataset(10)
    whole = indices(data.take(0, 35))
    assert [*indices(data.take(0, 3)), *indices(data.take(3, 30)), *indices(data.take(33, 2))] == whole
    assert data.take(7, 0) == []
    assert [data.epoch(taken) for taken in (0, 9, 10, 35)] == [0, 0, 1, 3]


def test_loaded_arithmetic_is_plain_text_as_bytes(tmp_path: Path) -> None:
    data = PromptDataset.load(Data(preset="arithmetic"), TOKENIZER, seed=0, run_directory=tmp_path)
    (prompt,) = data.batch(0, 1)
    assert len(data) == 8000
    assert bytes(prompt.token_ids).decode() == prompt.text
    a, b = prompt.text.removesuffix("=").split("+")
    assert int(prompt.ground_truth) == int(a) + int(b)
    assert prompt.solution == prompt.ground_truth
    assert prompt.data_source == "rlt/arithmetic"


def test_a_data_set_of_overlong_prompts_is_rejected(tmp_path: Path) -> None:
    data = Data(preset="arithmetic", max_prompt_length=5)
    with pytest.raises(ValueError, match=r"data.maxPromptLength 5 .*8000 training prompts.*shortest has 6 tokens"):
        PromptDataset.load(data, TOKENIZER, seed=0, run_directory=tmp_path)


def test_a_path_that_is_not_read_is_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    PromptDataset.load(Data(preset="arithmetic", path="/data"), TOKENIZER, seed=0, run_directory=tmp_path)
    assert [(record.levelno, "/data" in record.message) for record in caplog.records] == [(logging.WARNING, True)]


def test_a_conversation_gets_its_special_tokens_only_from_the_template() -> None:
    tokenizer = build_byte_tokenizer()
    bos_first = processors.TemplateProcessing(single="<|bos|> $A", special_tokens=[("<|bos|>", 256)])
    tokenizer.backend_tokenizer.post_processor = bos_first
    assert tokenizer("a")["input_ids"] == [256, 97]
    example = Example([{"role": "user", "content": "1+1?"}], "2", "2", "test")
    (prompt,) = tokenize([example], tokenizer)
    assert prompt.text == "<|bos|><|user|>1+1?<|eos|><|assistant|>"
    assert prompt.token_ids.count(256) == 1


def test_a_conversation_requires_a_chat_template() -> None:
    tokenizer = build_byte_tokenizer()
    tokenizer.chat_template = None
    example = Example([{"role": "user", "content": "1+1?"}], "2", "2", "test")
    with pytest.raises(ValueError, match=r"no chat template.*instruct model"):
        tokenize([example], tokenizer)


def test_a_conversation_that_the_template_rejects_is_reported() -> None:
    example = Example([{"role": "wizard", "content": "1+1?"}], "2", "2", "test")
    with pytest.raises(ValueError, match=r"template rejects a conversation: unknown role wizard.*data.chatTemplate"):
        tokenize([example], TOKENIZER)


def test_an_empty_prompt_is_rejected() -> None:
    with pytest.raises(ValueError, match="Prompt 2 of 2 is empty"):
        tokenize([Example("a", "", "", ""), Example("", "", "", "")], TOKENIZER)


def test_a_prompt_keeps_its_conversation_and_extra_info() -> None:
    conversation = [{"role": "user", "content": "1+1?"}]
    plain, chat = (
        tokenize([Example(prompt, "2", "2", "test", {"level": 1})], TOKENIZER)[0] for prompt in ("1+1=", conversation)
    )
    assert (plain.messages, chat.messages, chat.extra_info) == (None, conversation, {"level": 1})


def test_overlong_prompts_are_counted(tmp_path: Path) -> None:
    data = Data.model_validate({"inline": [{"prompt": "a" * n, "answer": ""} for n in (3, 4, 5)], "maxPromptLength": 3})
    loaded = PromptDataset.load(data, TOKENIZER, seed=0, run_directory=tmp_path)
    assert loaded.metrics(0) == {"data/prompts": 1.0, "data/overlong_prompts": 2.0}


def test_overlong_prompts_of_a_suite_are_counted(tmp_path: Path) -> None:
    rows = [json.dumps({"prompt": "a" * length, "answer": ""}) for length in (3, 4)]
    (tmp_path / "val.jsonl").write_text("\n".join(rows))
    files = {"files": [f"{tmp_path}/val.jsonl"]}
    loaded = load_evaluation(Data.model_validate({**files, "maxPromptLength": 3}), tmp_path)
    assert (len(loaded.prompts), loaded.overlong) == (1, 1)
    with pytest.raises(ValueError, match="shorter than each of the 2 evaluation prompts"):
        load_evaluation(Data.model_validate({**files, "maxPromptLength": 2}), tmp_path)


def test_evaluation_and_training_prompts_are_disjoint(tmp_path: Path) -> None:
    data = Data(preset="arithmetic")
    validated = load_evaluation(data, tmp_path).prompts
    trained = PromptDataset.load(data, TOKENIZER, seed=0, run_directory=tmp_path).take(0, 8000)
    assert len(validated) == 100
    assert not {prompt.text for prompt in validated} & {prompt.text for prompt in trained}
