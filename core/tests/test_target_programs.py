"""The archive of programs in rendered jobs: it has what the job runs, and nothing else of rlt_pod."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from rlt_core.targets.programs import SUPERVISED, build_programs_archive
from rlt_pod.__main__ import PROGRAMS
from rlt_pod.preflight.members import PROCESS_MODULE


def write_archive(folder: Path, *names: str) -> Path:
    file = folder / "rlt_pod.pyz"
    file.write_bytes(build_programs_archive(frozenset(names)))
    return file


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_starts_from_an_archive_without_the_others(tmp_path: Path, name: str) -> None:
    """None of them can work here: each fails with a message that is not about a missing module of rlt."""
    archive = write_archive(tmp_path, name)
    done = subprocess.run(
        [sys.executable, "-I", archive, name, "--no-such"], capture_output=True, text=True, check=False
    )
    assert done.returncode != 0
    assert "No module named 'rlt_" not in done.stderr
    assert PROGRAMS[name].split(".")[-1].split("_")[0] in done.stderr + done.stdout


def test_the_processes_of_the_preflight_import_the_archive(tmp_path: Path) -> None:
    archive = write_archive(tmp_path, "preflight")
    program = f"import sys; sys.path.insert(0, {str(archive)!r}); import {PROCESS_MODULE}"
    subprocess.run([sys.executable, "-I", "-c", program], check=True)


def test_a_job_without_preflight_and_roll_has_no_modules_of_them(tmp_path: Path) -> None:
    names = zipfile.ZipFile(write_archive(tmp_path, *SUPERVISED)).namelist()
    assert "rlt_pod/supervise/supervise.py" in names
    assert [name for name in names if "/checks/" in name or "/facts/" in name or "roll" in name] == [
        "rlt_pod/command/verl_rollouts.py"
    ]
