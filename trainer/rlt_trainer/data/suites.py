"""The suites of spec.evaluation with their prompts or pairs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from rlt_api.blocks.data import Data
from rlt_api.blocks.evaluation import Evaluation
from rlt_api.spec.training_config import TrainingConfig

Rows = TypeVar("Rows")


@dataclass(frozen=True)
class Suite(Generic[Rows]):
    """A suite: Rows is EvaluationSet, or PairSet for preferences."""

    settings: Evaluation
    rows: Rows

    @property
    def name(self) -> str:
        """Its name in metrics and files."""
        return self.settings.name


def load_suites(config: TrainingConfig, load: Callable[[Data], Rows]) -> list[Suite[Rows]]:
    """Load the rows of each suite with `load`. Raises its ValueErrors, and one for missing data, with the suite."""
    suites = []
    for settings in config.evaluation:
        try:
            suites.append(Suite(settings, load(select_data(config.data, settings))))
        except ValueError as error:
            raise ValueError(f"evaluation {settings.name}: {error}") from error
    return suites


def select_data(data: Data, settings: Evaluation) -> Data:
    """Return the job's data with the source of a suite. Raises ValueError if the suite has none."""
    own = settings.data
    if own is None:
        if data.preset is None:
            raise ValueError("data is required for a job without data.preset. Add preset, files or hub.")
        return data
    source = {"preset": own.preset, "path": own.path, "files": own.files, "hub": own.hub, "inline": None}
    columns = {"prompt_key": own.prompt_key or data.prompt_key, "answer_key": own.answer_key or data.answer_key}
    return data.model_copy(update={**source, **columns, "filters": own.filters, "mixture": [], "curriculum": None})


def list_due(suites: Sequence[Suite[Rows]], step: int, total_steps: int) -> list[Suite[Rows]]:
    """Return the suites that run after `step`, or before the first step with step 0."""
    return [each for each in suites if _is_due(each.settings, step, total_steps)]


def _is_due(settings: Evaluation, step: int, total_steps: int) -> bool:
    if step == 0:
        return settings.before_train
    return settings.every is not None and (step % settings.every == 0 or step == total_steps)
