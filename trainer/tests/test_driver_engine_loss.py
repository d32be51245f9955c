"""An engine whose process ends during a step is started again, and the run ends with all steps."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from rlt_api.training_config import TrainingConfig
from rlt_trainer.driver import engine_processes
from rlt_trainer.driver.run import run
from rlt_trainer.errors import TrainingError
from rlt_trainer.rollout.engine import Request
from rlt_trainer.workers.rollout_worker import RolloutWorker

REWARD: dict[str, Any] = {"rewards": [{"name": "regex", "options": {"pattern": "[a-z0-9]"}}], "workers": 1}
SEPARATE = {"mode": "separate", "workerGroup": "rollout"}
STEPS = 3


def build_mortal(deaths: Path, limit: int) -> type[RolloutWorker]:
    """Build a RolloutWorker that kills its process after the requests of its second step, up to `limit` times.

    `deaths` has a file for each time.
    """

    class Mortal(RolloutWorker):
        def __init__(self, *arguments: Any, **options: Any) -> None:
            super().__init__(*arguments, **options)
            self._calls = 0

        async def submit(self, requests: Sequence[Request]) -> None:
            await super().submit(requests)
            self._calls += 1
            died = len(list(deaths.iterdir()))
            if died < limit and (died > 0 or self._calls == 2):
                with suppress(FileExistsError):  # another engine dies
                    (deaths / str(died)).touch(exist_ok=False)
                    os.kill(os.getpid(), signal.SIGKILL)

    return Mortal


@pytest.mark.slow
@pytest.mark.usefixtures("ray_cluster")
@pytest.mark.parametrize("mode", [{}, {"rollout": SEPARATE, "rolloutWorkers": 2}], ids=["colocated", "separate"])
def test_a_run_whose_engine_is_killed_has_all_steps(
    make_config: Callable[..., TrainingConfig], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, mode: dict[str, Any]
) -> None:
    def train(name: str, deaths: int) -> list[dict[str, Any]]:
        folder = tmp_path / f"{name}-deaths"
        folder.mkdir()
        monkeypatch.setattr(engine_processes, "RolloutWorker", build_mortal(folder, deaths))
        config = make_config(**REWARD, **mode, training={"totalSteps": STEPS}, runDirectory=str(tmp_path / name))
        run(config, local=False)
        assert len(list(folder.iterdir())) == deaths
        return [json.loads(line) for line in (tmp_path / name / "metrics.jsonl").read_text().splitlines()]

    killed, whole = train("killed", 1), train("whole", 0)
    assert [step["training/global_step"] for step in killed] == list(range(1, STEPS + 1))
    for ours, theirs in zip(killed, whole, strict=True):  # the same responses, from the same weights
        for name in ("critic/rewards/mean", "response_length/mean", "actor/grad_norm"):
            assert ours[name] == pytest.approx(theirs[name], rel=1e-4), name


@pytest.mark.slow
@pytest.mark.usefixtures("ray_cluster")
def test_a_run_whose_engine_dies_again_and_again_ends(
    make_config: Callable[..., TrainingConfig], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "deaths").mkdir()
    monkeypatch.setattr(engine_processes, "RolloutWorker", build_mortal(tmp_path / "deaths", 100))
    with pytest.raises(TrainingError, match=r"The process of a Mortal .* died"):
        run(make_config(**REWARD), local=False)
    assert len(list((tmp_path / "deaths").iterdir())) == 4
