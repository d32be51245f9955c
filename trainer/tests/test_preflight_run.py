"""`rlt-trainer preflight`, whole: on a Ray of this machine with two ranks."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pydantic import TypeAdapter

from rlt_api.driver_report import PREFLIGHT_PREFIX
from rlt_api.status import PreflightCheck
from rlt_api.training_config import TrainingConfig

MakeConfig = Callable[..., TrainingConfig]
Found = dict[str, PreflightCheck]
SMALL = {"headSharedMemory": 1, "sharedMemory": 1, "sharedStorage": True, "requireRdma": False}


def parsed(output: str) -> Found:
    """What the last line says."""
    last = output.splitlines()[-1]
    assert last.startswith(PREFLIGHT_PREFIX), output
    found = TypeAdapter(list[PreflightCheck]).validate_json(last.removeprefix(PREFLIGHT_PREFIX))
    return {check.name: check for check in found}


def preflight(config: TrainingConfig, tmp_path: Path) -> tuple[int, Found]:
    file = tmp_path / "training.json"
    file.write_text(config.model_dump_json(by_alias=True))
    command = [sys.executable, "-m", "rlt_trainer", "preflight", "--config", str(file), "--local"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    return done.returncode, parsed(done.stdout)


def test_a_config_without_preflight_is_refused(make_config: MakeConfig) -> None:
    from rlt_trainer.preflight.run import run

    with pytest.raises(ValueError, match=r"spec\.preflight\.enabled"):
        run(make_config(), local=True)


@pytest.mark.slow
def test_two_ranks_on_a_machine_that_is_well(make_config: MakeConfig, tmp_path: Path) -> None:
    config = make_config(preflight=SMALL)
    code, found = preflight(config, tmp_path)
    assert (code, {check.result for check in found.values()}) == (0, {"passed"})
    assert found["ranks"].value == "2 processes"
    assert "gloo, 2 ranks" in found["all-reduce"].message
    assert found["all-reduce"].value
    assert float(found["all-reduce"].value.removesuffix(" GB/s")) > 0
    assert list(Path(config.run_directory).iterdir()) == [], "nothing is left behind"


@pytest.mark.slow
def test_all_that_is_wrong_is_told_at_once(make_config: MakeConfig, tmp_path: Path) -> None:
    missing = tmp_path / "train.parquet"
    config = make_config(
        preflight={**SMALL, "sharedMemory": 2**60}, data={"preset": None, "files": [str(missing)]}, workers=2
    )
    code, found = preflight(config, tmp_path)
    assert code == 1
    assert {name for name, check in found.items() if check.result == "failed"} == {"shared-memory", "files"}
    assert f"cannot read {missing}: No such file or directory" in found["files"].message
    assert found["all-reduce"].result == "passed"


@pytest.mark.slow
def test_a_rank_that_is_gone_is_named_and_the_others_are_checked(
    make_config: MakeConfig, capsys: pytest.CaptureFixture[str]
) -> None:
    from rlt_trainer.preflight.probe import Probe
    from rlt_trainer.preflight.run import run

    class Mortal(Probe):
        """Rank 1 is killed."""

        def __init__(self, config: TrainingConfig, rank: int, world_size: int) -> None:
            super().__init__(config, rank, world_size)
            self.rank = rank

        def facts(self, role: Any) -> Any:
            return os._exit(137) if self.rank == 1 else super().facts(role)

    assert run(make_config(preflight=SMALL), local=True, probe=Mortal) == 1
    found = parsed(capsys.readouterr().out)
    assert {name for name, check in found.items() if check.result == "failed"} == {"ranks"}
    assert (found["ranks"].value, found["ranks"].pods) == ("1 process", [os.uname().nodename])
    assert found["all-reduce"].message == "There is one rank: nothing to reduce with."


@pytest.mark.slow
def test_a_rank_that_does_not_come_is_told_with_its_interface(
    make_config: MakeConfig, capsys: pytest.CaptureFixture[str]
) -> None:
    from rlt_trainer.preflight.measure import Patience
    from rlt_trainer.preflight.probe import Probe
    from rlt_trainer.preflight.run import run

    class Deaf(Probe):
        """Rank 1 never joins the others."""

        def all_reduce(self, meeting: Any, rank: int, *rest: Any) -> Any:
            if rank == 1:
                import threading

                threading.Event().wait()
            return super().all_reduce(meeting, rank, *rest)

    assert run(make_config(preflight=SMALL), local=True, probe=Deaf, patience=Patience(answer=10)) == 1
    check = parsed(capsys.readouterr().out)["all-reduce"]
    assert (check.result, check.pods) == ("failed", [os.uname().nodename])
    assert "The ranks did not all meet (gloo, 2 ranks, interfaces " in check.message
    assert "no answer within 20 s" in check.message


@pytest.mark.slow
def test_checks_that_are_not_done_in_time_are_ended(make_config: MakeConfig) -> None:
    """Ray alone takes longer than that to start."""
    config = make_config(preflight=SMALL).model_dump_json(by_alias=True)
    program = (
        "from rlt_api.training_config import TrainingConfig\n"
        "from rlt_trainer.preflight.measure import Patience\n"
        "from rlt_trainer.preflight.run import run\n"
        f"run(TrainingConfig.model_validate_json({config!r}), local=True, patience=Patience(in_all=0.2))\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 1
    (check,) = parsed(done.stdout).values()
    assert (check.name, check.result) == ("time-limit", "failed")
    assert check.message.endswith("the last was joining Ray.")
