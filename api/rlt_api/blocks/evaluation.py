"""spec.evaluation: the suites on which the policy is scored. spec.evaluateOnly: which models, without training."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from rlt_api.blocks.data import Column, DataFilter, Files, HubDataset, Text
from rlt_api.model import AbsolutePath, ApiModel, CheckpointStep, DnsLabel, Positive, cel


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
    """The folder in the pods, or prefix of a bucket, with the published files of preset gsm8k or math. Default: the
    data set is downloaded from the hub."""
    files: Files | None = None
    """Parquet or JSON Lines files in the pods or in a bucket: verl's data.val_files."""
    hub: HubTestSet | None = None
    """A data set on the Hugging Face hub."""
    prompt_key: Column | None = None
    """The column of files and hub with prompts. Default: data.promptKey."""
    answer_key: Column | None = None
    """The column of files and hub with answers for the rewards. Default: data.answerKey."""
    filters: Annotated[list[DataFilter], Field(max_length=16)] = []
    """Filters for the rows of files and hub. A row must match all of them."""


Score = Annotated[float, Field(ge=-1e6, le=1e6)]
"""A score, or a difference of scores."""


class PromoteIf(ApiModel):
    """The figures of a suite after the last step that promote the trained model."""

    model_config = cel(
        ("has(self.gainAbove) || has(self.minimum)", "must have gainAbove, minimum, or both"),
    )

    metric: Literal["mean", "best", "maj"] = "mean"
    """The figure over all prompts of the suite: the mean score, or best@N (pass@N) or maj@N of N responsesPerPrompt."""
    gain_above: Score | None = None
    """The lower limit of the gain's 95 % confidence interval must be above this value: 0 for a model that is better
    than before the training, -0.02 for one that has lost less than 0.02. The gain is the difference to the evaluation
    before the first step, paired by prompt. Needs beforeTrain and 10 prompts."""
    minimum: Score | None = None
    """The figure itself must be at least this value."""


class Evaluation(ApiModel):
    """A suite: prompts, and when and how they are scored. The rewards are the job's."""

    model_config = cel(
        (
            "!has(self.responsesPerPrompt) || self.responsesPerPrompt == 1 "
            "|| (has(self.temperature) && self.temperature > 0.0)",
            "responsesPerPrompt above 1 needs a temperature above 0: greedy responses are equal",
        ),
        (
            "!has(self.promoteIf) || !has(self.promoteIf.metric) || self.promoteIf.metric == 'mean' "
            "|| (has(self.responsesPerPrompt) && self.responsesPerPrompt > 1)",
            "promoteIf.metric best and maj need responsesPerPrompt above 1",
        ),
    )

    name: DnsLabel
    """Name of the suite, in its metrics and files."""
    data: EvaluationData | None = None
    """The prompts. Default: the test split of data.preset."""
    every: Positive | None = None
    """Number of steps between evaluations: verl's trainer.test_freq. The last step is also evaluated. Default: no
    evaluation after steps. A job with evaluateOnly ignores it."""
    before_train: bool = False
    """Whether the suite also runs before the first step: verl's trainer.val_before_train. With framework.type builtin,
    except for preferences, the metrics of later evaluations have the differences to it."""
    responses_per_prompt: Annotated[int, Field(ge=1, le=4096)] = 1
    """Number of responses to each prompt: verl's val_kwargs.n. More than 1 needs a temperature, and adds the metrics
    best@k (pass@k) and maj@k. (kubectl reads the key n as false.)"""
    temperature: Annotated[float, Field(ge=0, le=10)] = 0.0
    """Sampling temperature: verl's val_kwargs.temperature. 0 is greedy."""
    promote_if: PromoteIf | None = None
    """A gate: whether the trained model is better than before the training, good enough, or both. A job with gates has
    the condition Promoted, which is True if the job has succeeded and all of its suites pass. framework.type builtin
    alone."""


class EvaluateOnly(ApiModel):
    """The models that a job evaluates without training. Each engine loads them from files, and all worker pods have
    engines."""

    model_config = cel(
        (
            "has(self.checkpoints) || !has(self.steps) || self.steps.all(step, string(step) == '0')",
            "steps other than 0 need checkpoints",
        ),
    )

    checkpoints: AbsolutePath | None = None
    """The folder in the pods with a run's checkpoints by rlt's trainer, such as /mnt/rlt/runs/NAME/checkpoints. The run
    has the same model. Default: only the model of spec.model is evaluated."""
    steps: Annotated[list[CheckpointStep], Field(min_length=1, max_length=64)] | None = None
    """The checkpoints to evaluate, such as [0, 10, latest]. 0 is the model before the first step: the model of
    spec.model, or the checkpoint after the warmup of the run. With 0, the metrics of the others have the differences to
    it. Default: latest, without checkpoints 0."""
