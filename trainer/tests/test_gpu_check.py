"""`make gpu-check`: verdicts, files and arguments; and a rehearsal of the checks on CPUs."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from gpu_check.checks.loop import DIFFERENCE, compute_verification_share
from gpu_check.figures import NOT_RUN, Figure, append_figures, read_figures
from gpu_check.machine import explain_device, find_problems
from gpu_check.plan import CHECKS, explain_skip, select_checks
from gpu_check.results import Result, judge, render_report, write_results

ROOT = Path(__file__).parents[2]
PATHS = ("bench", "trainer", "api", "pod", "trainer/tests", "trainer/oracles")


def run_check(*words: str, packages: Path | None = None) -> subprocess.CompletedProcess[str]:
    folders = [*([packages] if packages else []), *(ROOT / path for path in PATHS)]
    variables = os.environ | {"PYTHONPATH": os.pathsep.join(map(str, folders))}
    command = [sys.executable, "-m", "gpu_check", *words]
    return subprocess.run(command, capture_output=True, text=True, env=variables, check=False)


def test_no_check_passes_without_having_run() -> None:
    assert judge([], 0) == ("failed", "it measured nothing")
    assert judge([Figure("speed", 1.0)], None)[0] == "cut off"
    assert judge([Figure("speed", 1.0)], -9) == ("failed", "it ended with exit code -9")
    assert judge([Figure("sums", "False", passed=False), Figure("speed", 1.0)], 0) == ("failed", "sums")
    assert judge([Figure("speed", 1.0), Figure("not run", "needs CUDA")], NOT_RUN) == ("not run", "needs CUDA")
    assert judge([Figure("sums", "True", passed=True)], 0) == ("passed", "")


def test_figures_before_the_end_of_a_process_are_kept(tmp_path: Path) -> None:
    file = tmp_path / "figures"
    append_figures([Figure("a", 1.5, "s", passed=True, note="at most 2 s"), Figure("b", 2)], file)
    file.write_text(file.read_text() + '{"name": "c", "val')
    assert read_figures(file) == [Figure("a", 1.5, "s", passed=True, note="at most 2 s"), Figure("b", 2)]
    assert read_figures(tmp_path / "none") == []


def test_the_results_are_complete_after_each_check(tmp_path: Path) -> None:
    results = [Result("speed", "cut off", "its time budget is used up", 9.0, (Figure("a | b", 2.5, "s"),), "log")]
    write_results(tmp_path, {"gpu": "H100"}, results)
    document = json.loads((tmp_path / "results.json").read_text())
    assert document["machine"] == {"gpu": "H100"}
    assert document["checks"][0]["figures"][0]["value"] == 2.5
    report = render_report({"gpu": "H100"}, results)
    assert "| **speed** | cut off: its time budget is used up | | 9 s | | |" in report
    assert "a \\| b" in report


def test_every_check_has_a_module_and_a_time_budget() -> None:
    for check in CHECKS:
        assert (ROOT / f"bench/gpu_check/checks/{check.name}.py").is_file()
        assert check.seconds > 0
    assert sum(check.seconds for check in CHECKS[:6]) <= 900, "what is worth the most fits into a quarter of an hour"


def test_checks_are_selected_by_name() -> None:
    assert [check.name for check in select_checks(["speed", "versions"])] == ["versions", "speed"]
    with pytest.raises(ValueError, match="CHECKS: sped is not a check"):
        select_checks(["sped"])


def test_a_check_beyond_the_budget_is_not_run() -> None:
    assert explain_skip(CHECKS[0], rehearse=True, seconds_left=5) == "the budget is used up"
    assert explain_skip(CHECKS[0], rehearse=True, seconds_left=60) is None


def test_a_machine_without_a_gpu_is_named_before_anything_is_written(tmp_path: Path) -> None:
    if not list(find_problems(rehearse=False)):
        pytest.skip("there is a GPU")
    done = run_check("--output", str(tmp_path / "results"))
    assert done.returncode == 2
    assert "can use no GPU" in done.stderr or "is built for CPUs" in done.stderr
    assert not (tmp_path / "results").exists()


@pytest.mark.parametrize("package", ["torch", "transformers"])
def test_an_older_package_is_named(package: str, tmp_path: Path) -> None:
    metadata = tmp_path / f"{package}-1.9.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.9.0\n")
    done = run_check("--rehearse", "--output", str(tmp_path / "results"), packages=tmp_path)
    assert done.returncode == 2
    assert re.fullmatch(rf"rlt_trainer requires {package} \S+ or later, and 1\.9\.0 is installed: .*\n", done.stderr)
    assert not (tmp_path / "results").exists()


def test_a_gpu_that_is_too_small_or_too_old_is_named() -> None:
    assert explain_device("NVIDIA H100", 79.6, (9, 0)) is None
    assert explain_device("NVIDIA T4", 14.6, (7, 5)) == "NVIDIA T4 has 15 GiB of memory, and 20 GiB are needed."
    problem = explain_device("NVIDIA V100", 31.7, (7, 0))
    assert problem == "NVIDIA V100 has compute capability 7.0, and 8.0 or newer is needed for bfloat16."


def test_the_share_of_a_verification_is_that_of_verified_syncs() -> None:
    steps = [{"timing_s/update_weights": 0.5 + 0.1 * (number % 2), "timing_s/step": 10.0} for number in range(4)]
    marked = [step | ({DIFFERENCE: 0.0} if number % 2 else {}) for number, step in enumerate(steps)]
    assert compute_verification_share(marked) == pytest.approx(0.01)


@pytest.mark.slow
@pytest.mark.long
def test_a_rehearsal_runs_the_checks_on_cpus(tmp_path: Path) -> None:
    """vLLM is that for CPUs. The checks of speed and single tests are left out: they take the longest."""
    names = tuple(check.name for check in CHECKS if check.name not in ("speed", "tests"))
    done = run_check(
        *("--rehearse", "--checks", ",".join(names), "--budget", "1500", "--output", str(tmp_path / "results"))
    )
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr
    document = json.loads((tmp_path / "results/results.json").read_text())
    assert {check["check"]: check["verdict"] for check in document["checks"]} == {
        **dict.fromkeys(names, "passed"),
        "memory": "not run",
    }
    assert document["machine"]["rehearsal"].startswith("yes")
