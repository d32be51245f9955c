"""The demo and the environment: their functions without a cluster, and the targets of make."""

from __future__ import annotations

import subprocess
import sysconfig
from pathlib import Path

import pytest

from rlt_e2e.curve import render_curve, rolling_mean, write_png
from rlt_e2e.demo import summarize
from rlt_e2e.environment import REQUIREMENTS, ROOT, UNUSED, find_pin, fingerprint


def test_rolling_mean_starts_with_fewer_values() -> None:
    assert rolling_mean([1.0, 3.0, 5.0, 7.0], 2) == [1.0, 2.0, 4.0, 6.0]


def test_curve_in_the_terminal_has_no_escape_sequences() -> None:
    picture = render_curve([i / 100 for i in range(100)])
    assert "\x1b" not in picture
    assert max(map(len, picture.splitlines())) <= 80


def test_curve_is_written_as_a_png(tmp_path: Path) -> None:
    write_png([0.1, 0.2, 0.4], tmp_path / "out/curve.png", title="a run")
    assert (tmp_path / "out/curve.png").read_bytes().startswith(b"\x89PNG")


def test_pin_of_uv_is_one_package_with_its_hashes() -> None:
    first, *hashes = find_pin("uv", REQUIREMENTS[-1].read_text()).splitlines()
    assert first.startswith("uv==")
    assert hashes
    assert all("--hash=sha256:" in line for line in hashes)


def test_the_environment_has_no_parts_of_ray_that_are_not_used() -> None:
    packages = Path(sysconfig.get_path("purelib"))
    assert (packages / "ray").is_dir()
    assert [folder for folder in UNUSED if (packages / folder).exists()] == []


def test_fingerprint_changes_with_any_file(tmp_path: Path) -> None:
    one = tmp_path / "one"
    two = tmp_path / "two"
    one.write_text("a")
    two.write_text("b")
    before = fingerprint([one, two])
    two.write_text("c")
    assert fingerprint([one, two]) != before


def test_summary_of_a_pending_job() -> None:
    job = {"status": {"phase": "Pending", "message": "0/2 nodes are available"}}
    assert summarize(job) == "Pending: 0/2 nodes are available"


def test_summary_of_a_training_job() -> None:
    progress = {"stage": "training", "step": 3, "totalSteps": 9, "metrics": {"reward": 0.25}, "eta": "6s"}
    assert summarize({"status": {"phase": "Running", "progress": progress}}) == "step 3 of 9, reward 0.25, 6s left"


@pytest.mark.parametrize("target", ["demo", "test", "clean-cluster"])
def test_make_help_lists_the_targets(target: str) -> None:
    outcome = subprocess.run(["make", "help"], capture_output=True, text=True, cwd=ROOT, check=True)
    assert f"make {target} " in outcome.stdout
