"""spec.data: the prompts."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, StringConstraints

from rlt_api.model import ApiModel, KeyedBy, Positive, cel

Text = Annotated[str, StringConstraints(min_length=1, max_length=1024)]
Column = Annotated[str, StringConstraints(min_length=1, max_length=128)]
Files = Annotated[list[Text], Field(max_length=64)]


class HubDataset(ApiModel):
    """A data set on the Hugging Face hub."""

    name: Text
    """Name of the data set, such as openai/gsm8k."""
    config: Text | None = None
    """Name of its configuration. Default: the data set's default."""
    split: Text = "train"
    """The split for training."""
    revision: Text | None = None
    """The branch, tag or commit. Default: the newest."""


class InlineExample(ApiModel):
    """A prompt in the job itself."""

    prompt: Annotated[str, StringConstraints(min_length=1, max_length=65536)]
    """Content of the user message."""
    answer: Annotated[str, StringConstraints(max_length=65536)]
    """The answer for the rewards: verl's ground_truth."""


class DataFilter(ApiModel):
    """A filter that keeps the rows in which a column has one of the values."""

    column: Column
    """Name of the column."""
    values: Annotated[list[Text], Field(min_length=1, max_length=64)]
    """The values to keep, as text."""


class DataShare(ApiModel):
    """The weight of one data source."""

    source: Text
    """The value of a row's data_source, as in verl's data. A row without it has the name of its file without the
    suffix, or the name of its data set on the hub."""
    weight: Annotated[float, Field(gt=0, le=1_000_000)]
    """The share of the prompts is weight / sum of all weights."""


class Curriculum(ApiModel):
    """Prompts in the order of their difficulty."""

    column: Column
    """The column of files and hub with the difficulty: a number, higher for more difficult prompts."""
    epochs: Positive = 1
    """The number of initial epochs that begin with the easiest prompt and end with the most difficult one. Later epochs
    are shuffled."""


class Data(ApiModel):
    """The prompts. The source is one of preset, files, hub and inline."""

    model_config = cel(
        (
            "[has(self.preset), has(self.files), has(self.hub), has(self.inline)].filter(given, given).size() <= 1",
            "must have exactly one of preset, files, hub and inline",
        ),
        (
            "!has(self.preset) || self.preset in ['gsm8k', 'math'] || !has(self.path)",
            "path is only for presets gsm8k and math",
        ),
    )

    preset: Literal["arithmetic", "bandit", "calculator", "digits", "gsm8k", "math"] | None = None
    """A built-in data set. arithmetic generates additions of two-digit numbers from a seed, bandit one-token questions,
    calculator products for the environment calculator, digits sequences to continue. gsm8k and math read the published
    data sets, from path or, without it, from the Hugging Face hub: openai/gsm8k and DigitalLearningGmbH/MATH-lighteval.
    """
    path: Text | None = None
    """The folder in the pods, or prefix of a bucket, with the published files of preset gsm8k (train.jsonl, test.jsonl)
    or math. Default: the data set is downloaded from the hub."""
    files: Files | None = None
    """Parquet or JSON Lines files for training, in the pods or in a bucket (s3://BUCKET/KEY): verl's
    data.train_files."""
    hub: HubDataset | None = None
    """A data set on the Hugging Face hub."""
    inline: Annotated[list[InlineExample], Field(min_length=1, max_length=1024)] | None = None
    """Prompts in the job itself, for tests."""
    prompt_key: Column = "prompt"
    """The column of files and hub with prompts: text, or messages with role and content."""
    answer_key: Column = "answer"
    """The column of files and hub with answers for the rewards. A row's reward_model.ground_truth, as in verl's data,
    has precedence."""
    image_key: Column | None = None
    """The column of files and hub with images: a list of bytes, paths or file:// URLs in the pods, or of verl's bytes
    and path. Each replaces a mark <image> in the prompt. For models of type qwen2_5_vl and qwen3_vl. Default: no
    images."""
    chat_template: Annotated[str, StringConstraints(min_length=1, max_length=65536)] | None = None
    """A chat template in Jinja. Default: the tokenizer's."""
    max_prompt_length: Positive = 512
    """Maximum length of a prompt, in tokens."""
    max_response_length: Positive = 512
    """Maximum length of a response, in tokens. Generation stops at this length."""
    overlong_prompts: Literal["filter", "error", "left", "right", "middle"] = "filter"
    """Handling of longer prompts: filter removes and counts them, error rejects the data, left, right and middle
    truncate that part (verl's filter_overlong_prompts and truncation)."""
    shuffle: bool = True
    """Whether the prompts are shuffled in each epoch, by the seed."""
    filters: Annotated[list[DataFilter], Field(max_length=16)] = []
    """Filters for the rows of files and hub. A row must match all of them."""
    mixture: Annotated[list[DataShare], Field(max_length=64), KeyedBy("source")] = []
    """The weight of each data source in files or hub: see docs/rewards.md. Default: all prompts have the same one."""
    curriculum: Curriculum | None = None
    """Easier prompts first, by a column with their difficulty: see docs/rewards.md. Default: shuffled."""
