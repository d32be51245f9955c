"""The models of spec.evaluateOnly: checkpoints of a run as folders that engines load, or the model of the job."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError

from rlt_api.blocks.model import Model
from rlt_api.spec.training_config import TrainingConfig, UnsupportedVersionError, validate_version
from rlt_trainer.checkpoint.marker import find_latest_step, list_marked, parse_step

EXPORTS = "evaluated"
"""Folder in the run directory with the model of the checkpoint that is evaluated. It is removed afterwards."""
FIELD = "evaluateOnly.checkpoints"


@dataclass(frozen=True)
class EvaluatedModel:
    """A model to evaluate."""

    step: int
    """The number of training steps taken."""
    checkpoint: Path | None = None
    """None: the model of the job."""
    trained: TrainingConfig | None = None
    """The config of the run that has saved the checkpoint."""

    @contextmanager
    def prepare(self, config: TrainingConfig) -> Iterator[TrainingConfig]:
        """Yield `config` with the files of this model, which engines load. The files of a checkpoint are removed again.

        Raises ValueError if the checkpoint is damaged, and TrainingError if the files cannot be written.
        """
        if self.checkpoint is None or self.trained is None:
            yield _replace_model(config, {})
            return
        folder = Path(config.run_directory) / EXPORTS / self.checkpoint.name
        try:
            # Every driver imports this module. The export needs peft and torchao, whose imports take a second.
            from rlt_trainer.checkpoint.export_checkpoint import export_checkpoint

            export_checkpoint(self.checkpoint, folder, self.trained)
            yield _replace_model(config, {"path": str(folder), "from_seed": None, "revision": None})
        finally:
            shutil.rmtree(folder.parent, ignore_errors=True)


def list_models(config: TrainingConfig) -> list[EvaluatedModel]:
    """List the models of config.evaluate_only by their steps. Raises ValueError with field, value and fix."""
    assert config.evaluate_only is not None
    given = config.evaluate_only.checkpoints
    if given is None:
        return [EvaluatedModel(0)]
    folder = Path(given)
    complete = {parse_step(each): each for each in list_marked(folder)}
    latest = find_latest_step(folder)
    if latest is None:
        raise ValueError(
            f"{FIELD}: {given}: it has no complete checkpoint. Use the folder checkpoints in the directory of a run, "
            "on a volume of this job."
        )
    trained = _read_config(folder)
    _compare_models(config.model, trained.model, given)
    models = {}
    for text in config.evaluate_only.steps or ["latest"]:
        step = latest if text == "latest" else int(text)
        if step not in complete and step != 0:
            present = ", ".join(map(str, sorted(complete)))
            raise ValueError(f"evaluateOnly.steps: {text}: {given} has the complete checkpoints {present}: use these.")
        models[step] = EvaluatedModel(step, complete.get(step), trained)
    return [models[step] for step in sorted(models)]


def _replace_model(config: TrainingConfig, changes: dict[str, object]) -> TrainingConfig:
    """The config with another source of the model. An export has its adapters merged, and step 0 has none."""
    return config.model_copy(update={"model": config.model.model_copy(update={**changes, "lora": None})})


def _read_config(checkpoints: Path) -> TrainingConfig:
    file = checkpoints.absolute().parent / "config.json"
    try:
        text = file.read_bytes()
        validate_version(text)
        return TrainingConfig.model_validate_json(text)
    except (OSError, ValidationError, UnsupportedVersionError) as error:
        reason = " ".join(str(error).split())
        raise ValueError(
            f"{FIELD}: {checkpoints}: the config of its run cannot be read ({reason}). Use the folder checkpoints in "
            "the directory of a run."
        ) from error


def _compare_models(ours: Model, trained: Model, checkpoints: str) -> None:
    """Raise ValueError if the run has trained another model: prompts have the tokens of the job's model."""
    if (ours.path, ours.from_seed, ours.revision) == (trained.path, trained.from_seed, trained.revision):
        return
    names = [" ".join(filter(None, (each.path or "fromSeed", each.revision))) for each in (ours, trained)]
    raise ValueError(f"model: {names[0]}: the run of {FIELD} {checkpoints} has trained {names[1]}: use the same model.")
