"""The data of suites: the job's, with another source."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from rlt_api.blocks.data import Data
from rlt_api.blocks.evaluation import Evaluation
from rlt_api.spec.training_config import TrainingConfig
from rlt_trainer.data.suites import list_due, load_suites, select_data

MakeConfig = Callable[..., TrainingConfig]
JOB = Data.model_validate(
    {
        "files": ["/train.jsonl"],
        "promptKey": "question",
        "answerKey": "solution",
        "imageKey": "picture",
        "maxPromptLength": 7,
        "filters": [{"column": "level", "values": ["5"]}],
        "mixture": [{"source": "a", "weight": 1}],
        "curriculum": {"column": "level"},
    }
)


def select(own: dict[str, Any] | None, data: Data = JOB) -> Data:
    return select_data(data, Evaluation.model_validate({"name": "test", "every": 1, "data": own}))


def test_a_suite_has_the_jobs_data_with_another_source() -> None:
    files = {"files": ["/test.jsonl"], "answerKey": "a", "filters": [{"column": "kind", "values": ["x"]}]}
    common = {"promptKey": "question", "imageKey": "picture", "maxPromptLength": 7}
    assert select(files) == Data.model_validate({**common, **files})
    hub = {"name": "org/set", "config": "main", "split": "valid", "revision": "v1"}
    found = select({"hub": hub, "promptKey": "p"})
    assert found.hub is not None
    assert (found.files, found.prompt_key, found.answer_key, found.filters) == (None, "p", "solution", [])
    assert found.hub.model_dump() == hub
    found = select({"preset": "gsm8k", "path": "/gsm8k"})
    assert (found.preset, found.path, found.files, found.max_prompt_length) == ("gsm8k", "/gsm8k", None, 7)


def test_the_test_split_is_the_default_split_of_a_hub() -> None:
    found = select({"hub": {"name": "org/set"}}).hub
    assert found is not None
    assert found.split == "test"


def test_a_suite_without_data_has_the_preset_of_the_job() -> None:
    job = Data(preset="digits")
    assert select(None, job) is job
    with pytest.raises(ValueError, match=r"data is required for a job without data\.preset"):
        select(None)


def test_an_error_names_the_suite(make_config: MakeConfig) -> None:
    def fail(data: Data) -> None:
        raise ValueError(f"{data.preset} is empty")

    config = make_config(evaluation=[{"name": "sums", "every": 1}])
    with pytest.raises(ValueError, match="evaluation sums: arithmetic is empty"):
        load_suites(config, fail)


def test_suites_are_due_at_their_own_steps(make_config: MakeConfig) -> None:
    config = make_config(
        evaluation=[
            {"name": "twos", "every": 2},
            {"name": "threes", "every": 3, "beforeTrain": True},
            {"name": "before", "beforeTrain": True},
        ]
    )
    suites = load_suites(config, lambda data: data)
    due = {step: [suite.name for suite in list_due(suites, step, 7)] for step in range(8)}
    assert due == {
        0: ["threes", "before"],
        1: [],
        2: ["twos"],
        3: ["threes"],
        4: ["twos"],
        5: [],
        6: ["twos", "threes"],
        7: ["twos", "threes"],
    }
