"""Which prompts a step takes, and how they become tokens."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
from tokenizers import processors

from rlt_api.blocks.data import Data
from rlt_trainer.data.arithmetic import arithmetic_examples
from rlt_trainer.data.byte_tokenizer import byte_tokenizer
from rlt_trainer.data.dataset import Prompt, PromptDataset, tokenize
from rlt_trainer.data.prompt import Example

TOKENIZER = byte_tokenizer()


def dataset(length: int, *, seed: int = 0, shuffle: bool = True) -> PromptDataset:
    prompts = [Prompt(i, (i,), str(i), str(i), str(i), "test") for i in range(length)]
    return PromptDataset(prompts, seed=seed, shuffle=shuffle)


def indices(prompts: list[Prompt]) -> list[int]:
    return [prompt.index for prompt in prompts]


@pytest.mark.parametrize("size", [1, 3, 7, 10, 25])
def test_every_epoch_takes_each_prompt_once(size: int) -> None:
    data = dataset(10)
    taken = [index for step in range(50) for index in indices(data.batch(step, size))]
    epochs = [taken[i : i + 10] for i in range(0, len(taken) - 9, 10)]
    assert epochs
    assert all(sorted(epoch) == list(range(10)) for epoch in epochs)


def test_a_step_can_be_asked_for_alone() -> None:
    in_turn = [dataset(10).batch(step, 4) for step in range(9)]
    fresh = dataset(10)
    assert [fresh.batch(step, 4) for step in reversed(range(9))] == in_turn[::-1]


def test_epochs_and_seeds_differ_in_order() -> None:
    first, second = (indices(dataset(50).batch(step, 50)) for step in (0, 1))
    other = indices(dataset(50, seed=1).batch(0, 50))
    assert len({tuple(first), tuple(second), tuple(other)}) == 3


def test_unshuffled_prompts_come_in_order_and_wrap() -> None:
    data = dataset(5, shuffle=False)
    assert indices(data.batch(1, 4)) == [4, 0, 1, 2]


def test_arithmetic_is_all_sums_of_two_digit_numbers() -> None:
    examples = arithmetic_examples(0)
    assert len({example.prompt for example in examples}) == 90 * 90
    answers = {str(example.prompt): example.ground_truth for example in examples}
    assert (answers["37+58="], answers["10+10="], answers["99+99="]) == ("095", "020", "198")


def test_arithmetic_is_in_the_seeds_order() -> None:
    assert arithmetic_examples(0) == arithmetic_examples(0)
    assert arithmetic_examples(0) != arithmetic_examples(1)


def test_loaded_arithmetic_is_plain_text_in_bytes(tmp_path: Path) -> None:
    data = PromptDataset.load(Data(preset="arithmetic"), TOKENIZER, seed=0, run_directory=tmp_path)
    (prompt,) = data.batch(0, 1)
    assert len(data) == 8100
    assert bytes(prompt.token_ids).decode() == prompt.text
    a, b = prompt.text.removesuffix("=").split("+")
    assert int(prompt.ground_truth) == int(a) + int(b)
    assert prompt.solution == prompt.ground_truth
    assert prompt.data_source == "rlt/arithmetic"


def test_prompts_that_are_all_too_long_are_refused(tmp_path: Path) -> None:
    data = Data(preset="arithmetic", max_prompt_length=5)
    with pytest.raises(ValueError, match=r"data.maxPromptLength 5 .*8100 prompts.*shortest has 6 tokens. Raise it"):
        PromptDataset.load(data, TOKENIZER, seed=0, run_directory=tmp_path)


def test_a_path_that_is_not_read_is_mentioned(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    PromptDataset.load(Data(preset="arithmetic", path="/data"), TOKENIZER, seed=0, run_directory=tmp_path)
    assert [(record.levelno, "/data" in record.message) for record in caplog.records] == [(logging.WARNING, True)]


def test_a_conversation_gets_its_marks_from_the_template_alone() -> None:
    tokenizer = byte_tokenizer()
    bos_first = processors.TemplateProcessing(single="<|bos|> $A", special_tokens=[("<|bos|>", 256)])
    tokenizer.backend_tokenizer.post_processor = bos_first
    assert tokenizer("a")["input_ids"] == [256, 97]
    example = Example([{"role": "user", "content": "1+1?"}], "2", "2", "test")
    (prompt,) = tokenize([example], tokenizer)
    assert prompt.text == "<|bos|><|user|>1+1?<|eos|><|assistant|>"
    assert prompt.token_ids.count(256) == 1


def test_a_conversation_needs_a_chat_template() -> None:
    tokenizer = byte_tokenizer()
    tokenizer.chat_template = None
    example = Example([{"role": "user", "content": "1+1?"}], "2", "2", "test")
    with pytest.raises(ValueError, match=r"no chat template.*instruct model"):
        tokenize([example], tokenizer)
