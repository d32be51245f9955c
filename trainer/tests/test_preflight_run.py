"""`rlt-trainer preflight` with two ranks."""

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
Checks = dict[str, PreflightCheck]
SMALL = {"headSharedMemory": 1, "sharedMemory": 1, "sharedStorage": True, "requireRdma": False}


def parse(output: str) -> Checks:
    """The results in the last line, by name."""
    last = output.splitlines()[-1]
    assert last.startswith(PREFLIGHT_PREFIX), output
    checks = TypeAdapter(list[PreflightCheck]).validate_json(last.removeprefix(PREFLIGHT_PREFIX))
    return {check.name: check for check in checks}


def test_a_config_without_preflight_is_rejected(make_config: MakeConfig) -> None:
    from rlt_trainer.preflight.run import run

    with pytest.raises(ValueError, match=r"spec\.preflight\.enabled"):
        run(make_config(), local=True)


@pytest.mark.slow
def test_all_checks_pass_for_two_ranks_on_a_healthy_machine(make_config: MakeConfig, tmp_path: Path) -> None:
    config, file = make_config(preflight=SMALL), tmp_path / "training.json"
    file.write_text(config.model_dump_json(by_alias=True))
    command = [sys.executable, "-m", "rlt_trainer", "preflight", "--config", str(file), "--local"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    found = parse(done.stdout)
    assert (done.returncode, {check.result for check in found.values()}) == (0, {"passed"})
    assert found["ranks"].value == "2 processes"
    assert "gloo, 2 ranks" in found["all-reduce"].message
    assert found["all-reduce"].value
    assert float(found["all-reduce"].value.removesuffix(" GB/s")) > 0
    assert list(Path(config.run_directory).iterdir()) == [], "the files are removed"


@pytest.mark.slow
@pytest.mark.usefixtures("ray_cluster")
def test_all_problems_are_reported_together(
    make_config: MakeConfig, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from rlt_trainer.preflight.run import run

    missing = tmp_path / "train.parquet"
    config = make_config(
        preflight={**SMALL, "sharedMemory": 2**60}, data={"preset": None, "files": [str(missing)]}, workers=2
    )
    assert run(config) == 1
    found = parse(capsys.readouterr().out)
    assert {name for name, check in found.items() if check.result == "failed"} == {"shared-memory", "files"}
    assert f"cannot read {missing}: No such file or directory" in found["files"].message
    assert found["all-reduce"].result == "passed"


@pytest.mark.slow
@pytest.mark.usefixtures("ray_cluster")
def test_a_rank_that_dies_is_reported_and_the_others_are_checked(
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

    assert run(make_config(preflight=SMALL), probe=Mortal) == 1
    found = parse(capsys.readouterr().out)
    assert {name for name, check in found.items() if check.result == "failed"} == {"ranks"}
    assert (found["ranks"].value, found["ranks"].pods) == ("1 process", [os.uname().nodename])
    assert found["all-reduce"].message == "There is only one rank, so nothing was reduced."


@pytest.mark.slow
@pytest.mark.usefixtures("ray_cluster")
def test_a_rank_that_does_not_join_is_reported_with_its_interface(
    make_config: MakeConfig, capsys: pytest.CaptureFixture[str]
) -> None:
    from rlt_trainer.preflight.measure import Timeouts
    from rlt_trainer.preflight.probe import Probe
    from rlt_trainer.preflight.run import run

    class Hanging(Probe):
        """Rank 1 never joins the process group."""

        def all_reduce(self, rendezvous: Any, rank: int, *rest: Any) -> Any:
            if rank == 1:
                import threading

                threading.Event().wait()
            return super().all_reduce(rendezvous, rank, *rest)

    assert run(make_config(preflight=SMALL), probe=Hanging, timeouts=Timeouts(answer=10)) == 1
    check = parse(capsys.readouterr().out)["all-reduce"]
    assert (check.result, check.pods) == ("failed", [os.uname().nodename])
    assert "Not all ranks joined (gloo, 2 ranks, interfaces " in check.message
    assert "no answer within 20 s" in check.message


@pytest.mark.slow
def test_the_process_exits_on_timeout(make_config: MakeConfig) -> None:
    """Ray takes longer than the timeout to start."""
    config = make_config(preflight=SMALL).model_dump_json(by_alias=True)
    program = (
        "from rlt_api.training_config import TrainingConfig\n"
        "from rlt_trainer.preflight.measure import Timeouts\n"
        "from rlt_trainer.preflight.run import run\n"
        f"run(TrainingConfig.model_validate_json({config!r}), local=True, timeouts=Timeouts(total=0.2))\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 1
    (check,) = parse(done.stdout).values()
    assert (check.name, check.result) == ("time-limit", "failed")
    assert check.message.endswith("the last stage was: joining Ray.")
