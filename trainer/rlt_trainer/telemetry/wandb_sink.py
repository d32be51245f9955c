"""The sink for Weights & Biases."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

from rlt_api.blocks.operations import Wandb
from rlt_api.spec.training_config import TrainingConfig

if TYPE_CHECKING:
    import wandb

RUN_ID = "wandb-run-id"
"""The file in the run directory with the id of the run at Weights & Biases. A resumed training reads it."""
UPLOAD_TIMEOUT_S = 30.0
"""Timeout for the upload of the last metrics at the end of the training. The rest stays in the run directory."""


class WandbSink:
    """Logs to one run. Its id stays the same when the training resumes, so the curves continue.

    Weights & Biases keeps the first values of steps that a resumed training repeats. The API key is in WANDB_API_KEY.
    WANDB_MODE=offline only writes files, for `wandb sync`. Only wandb's requests use the proxy, not other requests of
    this process. (Settings of wandb 0.31.0, wandb/sdk/wandb_settings.py.)
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
        """Wait for the upload and close the run."""
        if self._run is not None:
            self._run.finish()

    def _open(self, *, first_step: int) -> wandb.Run:
        import wandb  # slow import

        directory = Path(self._config.run_directory)
        return wandb.init(
            id=_get_run_id(directory / RUN_ID, is_new=first_step <= 1),
            resume="allow",
            name=self._config.job,
            project=self._settings.project or self._config.namespace,
            entity=self._settings.entity,
            dir=directory,
            config=self._config.to_json(),
            settings=wandb.Settings(
                http_proxy=self._settings.proxy,
                https_proxy=self._settings.proxy,
                console="off",  # Ray collects the log
                disable_git=True,
                save_code=False,
                finish_timeout=UPLOAD_TIMEOUT_S,
                quiet=True,
                x_disable_meta=True,
                x_disable_stats=True,  # system metrics of the driver's node, which does not train
                **({"base_url": self._settings.base_url} if self._settings.base_url else {}),
            ),
        )


def _get_run_id(file: Path, *, is_new: bool) -> str:
    if is_new or not file.exists():
        file.write_text(uuid4().hex[:16])
    return file.read_text()
