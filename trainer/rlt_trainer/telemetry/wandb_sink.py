"""Weights & Biases."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

from rlt_api.blocks.operations import Wandb
from rlt_api.training_config import TrainingConfig

if TYPE_CHECKING:
    import wandb

RUN_ID = "wandb-run-id"
"""The file in the run directory that holds the run's id at Weights & Biases, for those who resume it."""
UPLOAD_PATIENCE_S = 30.0
"""How long the end of the training waits for the upload of the last metrics. What is left lies in the run directory."""


class WandbSink:
    """One run, whose id stays the same when the training resumes: the curves go on.

    Steps that are repeated after a resumption are there already: Weights & Biases keeps the first. The API key is
    WANDB_API_KEY's; WANDB_MODE=offline writes files alone, for `wandb sync`. The proxy is wandb's own: nothing else in
    this process goes through it. (Settings of wandb 0.31.0, wandb/sdk/wandb_settings.py.)
    """

    name = "Weights & Biases"

    def __init__(self, settings: Wandb, config: TrainingConfig) -> None:
        self._settings = settings
        self._config = config
        self._run: wandb.Run | None = None

    def step(self, step: int, metrics: Mapping[str, float]) -> None:
        """Log the metrics."""
        if self._run is None:
            self._run = self._open(first_step=step)
        self._run.log(dict(metrics), step=step)

    def close(self) -> None:
        """Wait for the upload."""
        if self._run is not None:
            self._run.finish()

    def _open(self, *, first_step: int) -> wandb.Run:
        import wandb  # seconds to import

        directory = Path(self._config.run_directory)
        return wandb.init(
            id=_run_id(directory / RUN_ID, anew=first_step <= 1),
            resume="allow",
            name=self._config.job,
            project=self._settings.project or self._config.namespace,
            entity=self._settings.entity,
            dir=directory,
            config=self._config.to_json(),
            settings=wandb.Settings(
                http_proxy=self._settings.proxy,
                https_proxy=self._settings.proxy,
                console="off",  # the log is the cluster's
                disable_git=True,
                save_code=False,
                finish_timeout=UPLOAD_PATIENCE_S,
                quiet=True,
                x_disable_meta=True,
                x_disable_stats=True,  # of the driver's machine, where nothing happens
                **({"base_url": self._settings.base_url} if self._settings.base_url else {}),
            ),
        )


def _run_id(file: Path, *, anew: bool) -> str:
    if anew or not file.exists():
        file.write_text(uuid4().hex[:16])
    return file.read_text()
