"""spec.data: the prompts to learn on."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, StringConstraints

from rlt_api.model import ApiModel, Positive, cel

Text = Annotated[str, StringConstraints(min_length=1, max_length=1024)]
Column = Annotated[str, StringConstraints(min_length=1, max_length=128)]
Files = Annotated[list[Text], Field(max_length=64)]


class HubDataset(ApiModel):
    """A data set on the Hugging Face hub."""

    name: Text
    """Such as openai/gsm8k."""
    config: Text | None = None
    """The configuration of that name. Default: the data set's own."""
    split: Text = "train"
    """The split to train on."""
    val_split: Text | None = None
    """The split to validate on. Default: none."""
    revision: Text | None = None
    """The branch, tag or commit. Default: the newest."""


class InlineExample(ApiModel):
    """A prompt that stands in the job itself."""

    prompt: Annotated[str, StringConstraints(min_length=1, max_length=65536)]
    """The user's words."""
    answer: Annotated[str, StringConstraints(max_length=65536)]
    """What the rewards compare with: verl's ground_truth."""


class DataFilter(ApiModel):
    """Keeps the rows whose column has one of the values."""

    column: Column
    """The column."""
    values: Annotated[list[Text], Field(min_length=1, max_length=64)]
    """The values to keep, as text."""


class Data(ApiModel):
    """The prompts to learn on: exactly one of preset, files, hub and inline."""

    model_config = cel(
        (
            "[has(self.preset), has(self.files), has(self.hub), has(self.inline)].filter(given, given).size() <= 1",
            "give exactly one of preset, files, hub and inline",
        ),
        (
            "!has(self.preset) || self.preset in ['gsm8k', 'math'] || !has(self.path)",
            "only presets gsm8k and math read files: leave path out",
        ),
    )

    preset: Literal["arithmetic", "bandit", "digits", "gsm8k", "math"] | None = None
    """arithmetic makes additions of two-digit numbers from a seed, bandit one-token questions, digits series to
    continue; gsm8k and math read those data sets at path."""
    path: Text | None = None
    """For presets: the folder in the pods with the data set as it is published (gsm8k: train.jsonl, test.jsonl)."""
    files: Files | None = None
    """Parquet or JSON-lines files in the pods to train on: verl's data.train_files."""
    val_files: Files | None = None
    """The same for validation: verl's data.val_files."""
    hub: HubDataset | None = None
    """A data set on the Hugging Face hub."""
    inline: Annotated[list[InlineExample], Field(min_length=1, max_length=1024)] | None = None
    """Prompts that stand here, for tests."""
    prompt_key: Column = "prompt"
    """For files and hub: the column of prompts, text or messages with role and content."""
    answer_key: Column = "answer"
    """For files and hub: the column that rewards compare with, where a row has no reward_model.ground_truth as verl's
    do."""
    chat_template: Annotated[str, StringConstraints(min_length=1, max_length=65536)] | None = None
    """A chat template in Jinja. Default: the tokenizer's own."""
    max_prompt_length: Positive = 512
    """The longest prompt, in tokens."""
    max_response_length: Positive = 512
    """The longest response, in tokens. Generation stops there."""
    overlong_prompts: Literal["filter", "error", "left", "right", "middle"] = "filter"
    """What becomes of longer prompts: filter leaves them out and counts them, error refuses the data, the others cut
    that part away (verl's filter_overlong_prompts and truncation)."""
    shuffle: bool = True
    """Whether the prompts are shuffled anew, by the seed, in each epoch."""
    filters: Annotated[list[DataFilter], Field(max_length=16)] = []
    """For files and hub: rows to keep, those that fulfil all filters."""
