"""The metrics of steps as data frames. pandas and polars are optional."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any, Literal, overload

from rlt.errors import MissingExtraError

if TYPE_CHECKING:
    import pandas
    import polars

Library = Literal["pandas", "polars"]
Steps = Sequence[Mapping[str, float | None]]
"""`step` and the metrics of each step. None is NaN or infinite."""


@overload
def build_frame(steps: Steps, library: Literal["pandas"]) -> pandas.DataFrame: ...
@overload
def build_frame(steps: Steps, library: Literal["polars"]) -> polars.DataFrame: ...
def build_frame(steps: Steps, library: Library) -> pandas.DataFrame | polars.DataFrame:
    """One row for each step and one column for each metric, which is empty where a step does not have the metric.

    pandas: `step` is the index. polars: it is the first column. Raises MissingExtraError.
    """
    module = _load(library)
    names = list(dict.fromkeys(["step", *(name for step in steps for name in step)]))
    columns = {name: [step.get(name) for step in steps] for name in names}
    if library == "polars":
        types = {name: module.Int64 if name == "step" else module.Float64 for name in names}
        return module.DataFrame(columns, schema=types)
    numbers = {name: module.Series(values, dtype=float) for name, values in columns.items() if name != "step"}
    return module.DataFrame(numbers).set_index(module.Index(columns["step"], dtype=int, name="step"))


def _load(library: str) -> Any:
    if library not in ("pandas", "polars"):
        raise ValueError(f"library: {library}: use pandas or polars.")
    try:
        return import_module(library)
    except ModuleNotFoundError as error:
        message = f"{library} is not installed: it is the extra {library} of rlt."
        raise MissingExtraError(message, next=f"pip install {library}") from error
