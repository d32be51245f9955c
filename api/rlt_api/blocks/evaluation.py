"""spec.evaluation: the suites on which the policy is scored beside the training."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from rlt_api.blocks.data import Column, DataFilter, Files, HubDataset, Text
from rlt_api.model import ApiModel, DnsLabel, Positive, cel


class HubTestSet(HubDataset):
    """A data set on the Hugging Face hub, for evaluation."""

    split: Text = "test"
    """The split to evaluate on."""


class EvaluationData(ApiModel):
    """The prompts of a suite. The source is one of preset, files and hub."""

    model_config = cel(
        (
            "[has(self.preset), has(self.files), has(self.hub)].filter(given, given).size() <= 1",
            "must have exactly one of preset, files and hub",
        ),
        (
            "!has(self.preset) || self.preset in ['gsm8k', 'math'] || !has(self.path)",
            "path is only for presets gsm8k and math",
        ),
    )

    preset: Literal["arithmetic", "bandit", "calculator", "digits", "gsm8k", "math"] | None = None
    """The test split of a built-in data set, as in spec.data."""
    path: Text | None = None
    """The folder in the pods with the published files of preset gsm8k or math. Default: the data set is downloaded from
    the hub."""
    files: Files | None = None
    """Parquet or JSON Lines files in the pods: verl's data.val_files."""
    hub: HubTestSet | None = None
    """A data set on the Hugging Face hub."""
    prompt_key: Column | None = None
    """The column of files and hub with prompts. Default: data.promptKey."""
    answer_key: Column | None = None
    """The column of files and hub with answers for the rewards. Default: data.answerKey."""
    filters: Annotated[list[DataFilter], Field(max_length=16)] = []
    """Filters for the rows of files and hub. A row must match all of them."""


class Evaluation(ApiModel):
    """A suite: prompts, and when and how they are scored. The rewards are the job's."""

    model_config = cel(
        (
            "!has(self.responsesPerPrompt) || self.responsesPerPrompt == 1 "
            "|| (has(self.temperature) && self.temperature > 0.0)",
            "responsesPerPrompt above 1 needs a temperature above 0: greedy responses are equal",
        ),
        (
            "has(self.every) || (has(self.beforeTrain) && self.beforeTrain)",
            "must have every, beforeTrain: true, or both: else it never runs",
        ),
    )

    name: DnsLabel
    """Name of the suite, in its metrics and files."""
    data: EvaluationData | None = None
    """The prompts. Default: the test split of data.preset."""
    every: Positive | None = None
    """Number of steps between evaluations: verl's trainer.test_freq. The last step is also evaluated. Default: no
    evaluation after steps."""
    before_train: bool = False
    """Whether the suite also runs before the first step: verl's trainer.val_before_train. With framework.type builtin,
    except for preferences, the metrics of later evaluations have the differences to it."""
    responses_per_prompt: Annotated[int, Field(ge=1, le=4096)] = 1
    """Number of responses to each prompt: verl's val_kwargs.n. More than 1 needs a temperature, and adds the metrics
    best@k (pass@k) and maj@k. (kubectl reads the key n as false.)"""
    temperature: Annotated[float, Field(ge=0, le=10)] = 0.0
    """Sampling temperature: verl's val_kwargs.temperature. 0 is greedy."""
