"""The packages that the extras of rlt-trainer install (trainer/pyproject.toml), and the fields that use them."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec
from typing import Literal

from rlt_api.spec.training_config import TrainingConfig

Extra = Literal["bucket", "debug", "mcp", "optimizers", "tensorboard", "traces", "wandb"]

PACKAGES: dict[Extra, str] = {
    "bucket": "obstore",
    "debug": "debugpy",
    "mcp": "mcp",
    "optimizers": "torchao",
    "tensorboard": "tensorboard",
    "traces": "opentelemetry.exporter.otlp.proto.http",
    "wandb": "wandb",
}
"""The module of each extra that the trainer imports."""


def validate_extras(config: TrainingConfig) -> None:
    """Raise ValueError if a field selects an optional package that is not installed."""
    for extra, setting in find_extras(config):
        if missing := explain_missing(extra, setting):
            raise ValueError(missing)


def find_extras(config: TrainingConfig) -> Iterator[tuple[Extra, str]]:
    """Yield the extras that the config selects, each with the field and its value."""
    if config.bucket:
        yield "bucket", "storage.bucket"
    for index, publication in enumerate(config.publish or []):
        if publication.bucket:
            yield "bucket", f"publish[{index}].bucket"
    if config.training.optimizer == "adamw_8bit":
        yield "optimizers", "training.optimizer: adamw_8bit"
    if config.observability.tensorboard:
        yield "tensorboard", "observability.tensorboard"
    if config.observability.wandb:
        yield "wandb", "observability.wandb"
    if config.observability.debugger == "ray":
        yield "debug", "observability.debugger: ray"
    for index, tool in enumerate(config.rollout.multi_turn.tools if config.rollout.multi_turn else []):
        if tool.mcp is not None:
            yield "mcp", f"rollout.multiTurn.tools[{index}].mcp"


def explain_missing(extra: Extra, setting: str) -> str | None:
    """Explain which package `setting` requires and which extra installs it. None: it is installed."""
    package = PACKAGES[extra]
    if _is_installed(package):
        return None
    return (
        f"{setting} requires the package {package}, which is not installed: install rlt-trainer[{extra}], use an image "
        "of rlt, or remove the setting."
    )


def _is_installed(package: str) -> bool:
    try:
        return find_spec(package) is not None
    except ModuleNotFoundError:  # a parent of the package
        return False
