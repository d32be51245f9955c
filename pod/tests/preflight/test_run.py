"""The whole program on a Ray cluster of a head and three workers, from the files that the pods mount.

The package is in an archive. The workers have no rlt in their path. They share one host name, so that the program adds
their node IDs.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import observed as o
import pytest
from mounted_files import write_files
from preflight.throttled import FOLDER
from pydantic import TypeAdapter

from rlt_api.spec.training_config import PROGRAMS_FILE
from rlt_api.status.job_status import PreflightCheck
from rlt_pod.preflight.expected import EXPECTED_FILE, Engine, Expected, Group, NotPossible, Trial, dump_expected
from rlt_pod.report.driver_report import PREFLIGHT_PREFIX

pytestmark = pytest.mark.slow

WORKERS = 3
LAUNCHER = """
import sys
from pathlib import Path
_, archive, file = sys.argv
sys.path.insert(0, archive)
from rlt_pod.preflight.expected import parse_expected
from rlt_pod.preflight.measure import Timeouts
from rlt_pod.preflight.run import run
text = Path(file).read_text()
sys.exit(run(parse_expected(text), archive, process="throttled", timeouts=Timeouts(**TIMEOUTS)))
"""


@pytest.fixture(scope="module")
def parts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with the part that a process plays (throttled.py)."""
    return tmp_path_factory.mktemp("parts")


@pytest.fixture(scope="module")
def address(parts: Path) -> Iterator[str]:
    """The address of a Ray cluster whose processes have no path to rlt."""
    from ray.cluster_utils import Cluster

    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("PYTHONPATH", raising=False)
        patch.setenv(FOLDER, str(parts))
        patch.setenv("GLOO_SOCKET_IFNAME", "lo")
        cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False})
        for _ in range(WORKERS):
            cluster.add_node(num_cpus=1)
        yield cluster.address
        cluster.shutdown()  # type: ignore[no-untyped-call] # of Ray


@pytest.fixture
def mounted(tmp_path: Path) -> Path:
    """The files that the pods mount, and the module with the parts."""
    folder = write_files(o.job({**o.COMMAND_SPEC, "preflight": {"level": "basic"}}), tmp_path / "rlt")
    (folder / EXPECTED_FILE).unlink()  # each test writes it
    with zipfile.ZipFile(folder / PROGRAMS_FILE, "a") as archive:
        archive.write(Path(__file__).with_name("throttled.py"), "throttled.py")
    return folder


def expect(mounted: Path, **changes: Any) -> Expected:
    """What a healthy cluster has, with changes."""
    expected = Expected(
        level="basic",
        head=Group("headgroup", 1, 0, 0, 1),
        workers=[Group("workers", WORKERS, 1, 0, 1)],
        head_service="",
        run_directory=str(mounted.parent / "run"),
        shared_storage=True,
        require_rdma=False,
        models=[],
        data_files=[],
    )
    return replace(expected, **changes)


def run(
    mounted: Path, address: str, expected: Expected, **timeouts: float
) -> tuple[int, dict[str, PreflightCheck], str]:
    """Run the program. Return its exit code, the checks in the last line, and the output."""
    (mounted / EXPECTED_FILE).write_text(dump_expected(expected))
    (mounted / "launcher.py").write_text(LAUNCHER.replace("TIMEOUTS", repr(timeouts)))
    variables = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    archive = str(mounted / PROGRAMS_FILE)
    program = ["launcher.py", archive] if timeouts else [archive, "preflight"]
    done = subprocess.run(
        [sys.executable, *program, str(mounted / EXPECTED_FILE)],
        cwd=mounted,
        env={**variables, "RAY_ADDRESS": address, "GLOO_SOCKET_IFNAME": "lo"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    *_, last = done.stdout.splitlines() or [""]
    assert last.startswith(PREFLIGHT_PREFIX), done.stdout + done.stderr
    checks = TypeAdapter(list[PreflightCheck]).validate_json(last.removeprefix(PREFLIGHT_PREFIX))
    return done.returncode, {check.name: check for check in checks}, done.stdout


REPORT = {"seconds": 3.14, "resumeSeconds": 8.0, "checkpointBytes": 2**30, "text": "Hi"}
TRIAL = [sys.executable, "-c", f"import sys; open(sys.argv[-1], 'w').write({json.dumps(json.dumps(REPORT))})"]


def test_all_stages_pass_on_a_healthy_cluster(mounted: Path, address: str) -> None:
    code, found, output = run(mounted, address, expect(mounted, level="full", trial=TRIAL))
    bad = {name: check.message for name, check in found.items() if check.result == "failed"}
    assert (code, bad) == (0, {})
    assert [*dict.fromkeys(check.stage for check in found.values())] == ["network", "services", "data", "training"]
    assert found["ranks"].value == "3 processes"
    assert "gloo, 3 ranks" in found["all-reduce"].message
    assert found["ray-nodes"].value == found["ray-nodes"].threshold == "3 nodes"
    assert (found["interfaces"].result, found["interfaces"].value) == ("warned", "GLOO_SOCKET_IFNAME=lo")
    assert found["all-reduce"].seconds
    assert json.loads(output.splitlines()[-1].removeprefix(PREFLIGHT_PREFIX))
    assert list((mounted.parent / "run").iterdir()) == [], "the files are removed"


def test_a_step_of_another_framework_and_its_engine_follow_the_checks(mounted: Path, address: str) -> None:
    print_steps = (
        "import sys, os; open(os.environ['RLT_PREFLIGHT_DIRECTORY'] + '/x', 'w').write('x'); print(sys.argv[1])"
    )
    first, second = ([sys.executable, "-c", print_steps, f"step:{step} - actor/kl_loss:0.1"] for step in (1, 2))
    trial = Trial(first, second, str(mounted.parent / "run/.preflight-trial"))
    impossible = NotPossible("engine", "services", "The program is unknown.", "Set preflight.command.")
    code, found, _ = run(
        mounted, address, expect(mounted, level="full", framework_trial=trial, not_possible=[impossible])
    )
    bad = {name: check.message for name, check in found.items() if check.result == "failed"}
    assert (code, bad) == (0, {})
    assert (found["engine"].result, found["engine"].stage) == ("warned", "services")
    assert {name for name, check in found.items() if check.stage == "training"} >= {"training-step", "checkpoint"}
    engine = Engine("sglang", "/models/q", 1, {})
    code, found, _ = run(mounted, address, expect(mounted, level="full", framework_trial=trial, engine=engine))
    assert (code, [name for name, check in found.items() if check.result == "failed"]) == (1, ["engine"])
    assert "ModuleNotFoundError" in found["engine"].message
    assert {check.stage for check in found.values()} == {"network", "services"}


def test_the_stage_that_fails_is_the_last_one_and_all_of_its_checks_run(mounted: Path, address: str) -> None:
    groups = [Group("workers", WORKERS, 2, 0, 2**60)]
    code, found, _ = run(mounted, address, expect(mounted, workers=groups))
    assert code == 1
    assert {name for name, check in found.items() if check.result == "failed"} == {"ray-nodes", "shared-memory"}
    assert {check.stage for check in found.values()} == {"network", "services"}


def test_a_slow_process_is_named_by_the_search_in_pairs(mounted: Path, address: str, parts: Path) -> None:
    """No machine reaches the minimum, so that the pairs are measured."""
    (parts / "slow").touch()
    code, found, _ = run(mounted, address, expect(mounted, min_bus_bandwidth=1e15), answer=60.0)
    (slow,) = parts.glob("slow.*")
    check = found["all-reduce"]
    assert (code, check.result, check.pods) == (1, "failed", [slow.name.partition(".")[2]])
    assert check.threshold == "1000000.00 GB/s"
    assert "is slow with every other pod" in check.message


def test_a_process_that_dies_is_reported_and_the_others_are_checked(mounted: Path, address: str, parts: Path) -> None:
    (parts / "dead").touch()
    code, found, _ = run(mounted, address, expect(mounted), answer=60.0)
    (dead,) = parts.glob("dead.*")
    assert code == 1
    assert {name for name, check in found.items() if check.result == "failed"} == {"ranks"}
    assert (found["ranks"].value, found["ranks"].pods) == ("2 processes", [dead.name.partition(".")[2]])
    assert "gloo, 2 ranks" in found["all-reduce"].message


def test_a_rank_0_that_does_not_join_is_reported_with_its_interface(mounted: Path, address: str, parts: Path) -> None:
    (parts / "hanging").touch()
    code, found, _ = run(mounted, address, expect(mounted), answer=30.0)
    (hanging,) = parts.glob("hanging.*")
    check = found["all-reduce"]
    assert (code, check.result, check.pods) == (1, "failed", [hanging.name.partition(".")[2]])
    assert "Not all ranks joined (gloo, 3 ranks, interfaces " in check.message
    assert "no answer within 90 s" in check.message


def test_the_process_exits_on_timeout_with_the_results_so_far(mounted: Path, address: str) -> None:
    code, found, _ = run(mounted, address, expect(mounted), total=0.2)
    assert code == 1
    assert found["time-limit"].result == "failed"
    assert "the last measurement was: " in found["time-limit"].message
