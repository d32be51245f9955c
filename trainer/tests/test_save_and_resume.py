"""When a run saves a checkpoint, how it resumes, and how it stops after SIGTERM."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from rlt_api.spec.training_config import TrainingConfig
from rlt_trainer.algorithms.kl_controller import KlController
from rlt_trainer.checkpoint.driver_state import DriverState
from rlt_trainer.checkpoint.resume import Resumed
from rlt_trainer.checkpoint.saver import SaveOutcome
from rlt_trainer.driver.checkpointing import Checkpoints
from rlt_trainer.errors import Terminated
from rlt_trainer.workers.train_worker import TrainWorker

MakeConfig = Callable[..., TrainingConfig]
DATA = {"prompts": 8, "order": 1, "sha256": "ab"}


class Run:
    """Stand-in for workers, generator, run directory and termination of a run."""

    def __init__(self, config: TrainingConfig, resumed: Resumed | None = None) -> None:
        self.saved: list[tuple[int, dict[str, Any]]] = []
        self.consumed = 0
        self.checkpoints = Path("checkpoints")
        self.requested = False
        self.lease = None
        self.locate = str
        self.controller = KlController("adaptive", 0.5)
        self._resumed = resumed
        self.error: str | None = None
        self.reported: list[int | str] = []
        self.under_test = Checkpoints(
            config,
            workers=cast(Any, self),
            run=cast(Any, self),
            reporter=cast(
                Any,
                SimpleNamespace(
                    checkpoint=self.reported.append,
                    checkpoint_failed=self.reported.append,
                    resumed=self.resumed,
                    upload_results=lambda: None,
                    stage=lambda *_: None,
                ),
            ),
            source=cast(Any, self),
            kl_controller=self.controller,
            termination=cast(Any, self),
            data=DATA,
        )

    def __len__(self) -> int:
        return 2

    def each(self, method: Callable[..., Any], *arguments: Sequence[Any]) -> list[Any]:
        assert method is TrainWorker.save
        (step, _), (state, of_others), *_ = arguments
        self.saved.append((step, dict(state.values)))
        assert of_others == DriverState(), "rank 0 writes it"
        return [[SaveOutcome(step, self.error)], []]

    def all(self, method: Callable[..., Any], *arguments: Any, **options: Any) -> list[Any]:
        return [self._resumed] if method is TrainWorker.resume else [[]]

    def resumed(self, step: int, metrics: dict[str, float] | None) -> None:
        self.resumed_metrics = metrics

    def pack_ahead(self, step: int) -> dict[str, Any]:
        return {}

    def restore(self, consumed: int, ahead: object) -> None:
        self.consumed = consumed


def test_sigterm_in_the_first_step_saves_the_state_before_it(make_config: MakeConfig) -> None:
    run = Run(make_config(checkpoint={"saveFreq": 5}))
    run.controller.update(kl=9.0, responses=100)  # in the incomplete step
    run.requested = True
    with pytest.raises(Terminated, match="step-0"):
        run.under_test.stop_if_requested(0)
    assert run.saved == [(0, {"consumed": 0, "data": DATA, "kl_controller": {"coefficient": 0.5}})]
    again = Run(make_config(), Resumed(0, Path("checkpoints/step-0"), DriverState(run.saved[0][1]), ()))
    assert again.under_test.resume() == 0
    assert again.consumed == 0


def test_a_checkpoint_has_the_metrics_of_its_step(make_config: MakeConfig) -> None:
    run = Run(make_config(checkpoint={"saveFreq": 5}))
    run.under_test.complete_step(consumed=40)
    run.under_test.save(5, {"critic/rewards/mean": 0.5})
    again = Run(make_config(), Resumed(5, Path("checkpoints/step-5"), DriverState(run.saved[0][1]), ()))
    assert again.under_test.resume() == 5
    assert again.resumed_metrics == {"critic/rewards/mean": 0.5}
    again.under_test.save(6)
    assert "metrics" not in again.saved[0][1]
    other = Run(
        make_config(checkpoint={"resume": "path", "resumeFromPath": "/other/step-5"}),
        Resumed(5, Path("/other/step-5"), DriverState(run.saved[0][1]), ()),
    )
    assert other.under_test.resume() == 5
    assert other.resumed_metrics is None, "another run recorded that step"


def test_a_save_that_failed_is_reported_and_does_not_replace_the_latest_checkpoint(make_config: MakeConfig) -> None:
    run = Run(make_config(checkpoint={"saveFreq": 5}))
    run.under_test.save(5)
    run.error = "The checkpoint of step 10 could not be saved."
    run.under_test.save(10)
    assert run.under_test.latest == Path("checkpoints/step-5")
    run.error = None
    run.under_test.save(15)
    assert run.reported == [5, "The checkpoint of step 10 could not be saved.", 15]


def test_sigterm_after_a_save_saves_nothing(make_config: MakeConfig) -> None:
    run = Run(make_config(checkpoint={"saveFreq": 5}))
    run.under_test.complete_step(consumed=40)
    run.under_test.save(5)
    run.requested = True
    with pytest.raises(Terminated, match=r"after step 5\. It can resume from checkpoints/step-5\."):
        run.under_test.stop_if_requested(5)
    assert [step for step, _ in run.saved] == [5]


def test_sigterm_before_the_first_step_after_a_resume_saves_nothing(make_config: MakeConfig) -> None:
    run = Run(make_config(checkpoint={"saveFreq": 5}), resumed("other/step-5", DATA))
    assert run.under_test.resume() == 5
    run.requested = True
    with pytest.raises(Terminated, match="other/step-5"):
        run.under_test.stop_if_requested(5)
    assert run.saved == []


def resumed(directory: str, data: dict[str, Any]) -> Resumed:
    values = {"consumed": 40, "kl_controller": {"coefficient": 0.25}, "data": data}
    return Resumed(5, Path(directory), DriverState(values), ())


@pytest.mark.parametrize(
    ("change", "difference"),
    [
        ({"prompts": 9}, "9 prompts instead of 8"),
        ({"sha256": "cd"}, r"the same number of prompts \(8\) with different texts"),
        ({"order": 2}, "a different order"),
        ({"curriculum": [1, "ef"]}, r"another curriculum \(data\.curriculum\)"),
        ({"mixture": [["a", 2.0, 5], ["b", 1.0, 3]]}, r"another mixture \(data\.mixture\)"),
    ],
)
def test_other_data_is_rejected_with_the_difference(
    make_config: MakeConfig, change: dict[str, Any], difference: str
) -> None:
    run = Run(make_config(), resumed("checkpoints/step-5", {**DATA, **change}))
    with pytest.raises(ValueError, match=f"step-5 was saved by a run with other data: .*{difference}"):
        run.under_test.resume()


def test_a_run_resumes_with_the_same_data(make_config: MakeConfig) -> None:
    run = Run(make_config(), resumed("checkpoints/step-5", DATA))
    assert run.under_test.resume() == 5
    assert run.consumed == 40


def test_a_job_that_resumes_another_jobs_checkpoint_starts_its_own_data(
    make_config: MakeConfig, caplog: pytest.LogCaptureFixture
) -> None:
    config = make_config(checkpoint={"resume": "path", "resumeFromPath": "/other/step-5", "saveFreq": 1})
    run = Run(config, resumed("/other/step-5", {**DATA, "prompts": 9}))
    assert run.under_test.resume() == 5
    assert run.consumed == 0
    assert run.controller.coefficient == 0.25
    assert "9 prompts instead of 8" in caplog.text
    run.under_test.save(6)
    assert run.saved[0][1] == {"consumed": 0, "data": DATA, "kl_controller": {"coefficient": 0.25}}
