"""SIGTERM defers the end of the run to a safe point, and sets the exit code of the command."""

from __future__ import annotations

import os
import pickle
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from rlt_api.spec.training_config import TrainingConfig
from rlt_trainer.__main__ import TERMINATED, main
from rlt_trainer.driver.termination import Termination
from rlt_trainer.errors import NonFiniteGradientError, Terminated, add_checkpoint

MakeConfig = Callable[..., TrainingConfig]


def test_sigterm_is_deferred_after_the_first_step_begins(capsys: pytest.CaptureFixture[str]) -> None:
    before = signal.getsignal(signal.SIGTERM)
    with Termination() as termination:
        termination.defer()
        assert not termination.requested
        os.kill(os.getpid(), signal.SIGTERM)
        os.kill(os.getpid(), signal.SIGTERM)
        assert termination.requested
    assert capsys.readouterr().out.count("SIGTERM") == 1
    assert signal.getsignal(signal.SIGTERM) == before


def test_sigterm_before_the_first_step_raises_at_once() -> None:
    with Termination() as termination:
        with pytest.raises(Terminated, match="before its first step"):
            os.kill(os.getpid(), signal.SIGTERM)
        os.kill(os.getpid(), signal.SIGTERM)  # a second signal has no effect
    assert termination.requested


def test_the_exit_code_after_sigterm(
    make_config: MakeConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def run(config: TrainingConfig, *, local: bool, port: int, execution: tuple[int, str] | None) -> None:
        raise Terminated("the checkpoint of step 7 is complete")

    monkeypatch.setattr("rlt_trainer.driver.run.run", run)
    file = tmp_path / "training.json"
    file.write_text(make_config().model_dump_json(by_alias=True))
    assert main(["run", "--config", str(file)]) == TERMINATED == 128 + signal.SIGTERM
    assert capsys.readouterr().err == "rlt-trainer: terminated: the checkpoint of step 7 is complete\n"


@pytest.mark.parametrize(
    ("checkpoint", "advice"),
    [(Path("/run/step-4"), "The last finite checkpoint is /run/step-4."), (None, "No checkpoint was saved: ")],
)
def test_a_divergence_error_names_the_last_finite_checkpoint(checkpoint: Path | None, advice: str) -> None:
    from ray.exceptions import RayTaskError

    raised = NonFiniteGradientError("The gradient was nan.")
    wrapped = RayTaskError("update", "Traceback ...", raised).as_instanceof_cause()  # type: ignore[no-untyped-call]
    assert isinstance(wrapped, NonFiniteGradientError)
    error = add_checkpoint(wrapped, checkpoint)
    assert str(error).startswith(f"The gradient was nan. {advice}")
    assert str(pickle.loads(pickle.dumps(error))) == str(error)
