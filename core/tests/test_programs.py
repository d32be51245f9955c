"""The zipapp with the programs for pods, and the ConfigMap that has it."""

from __future__ import annotations

import json
import subprocess
import sys
from base64 import b64decode
from pathlib import Path

import pytest
from test_children import JOBS

from rlt_api.spec.training_config import PROGRAMS_FILE
from rlt_core.children.config_map import build_config_map
from rlt_core.children.programs import (
    build_archive,
    build_programs,
    has_named_content,
    is_programs,
    name_programs,
)
from rlt_pod.__main__ import PROGRAMS

MAX_CONFIG_MAP_BYTES = 8_000


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    file = folder / PROGRAMS_FILE
    file.write_bytes(build_archive())
    return subprocess.run([sys.executable, "-I", file, *arguments], capture_output=True, text=True, check=False)


def test_the_archive_is_the_same_each_time() -> None:
    first = build_archive()
    build_archive.cache_clear()
    assert build_archive() == first


def test_an_unknown_program_is_named_with_the_known_ones(tmp_path: Path) -> None:
    done = run(tmp_path, "no-such-program")
    assert (done.returncode, done.stderr) == (1, f"usage: rlt_pod.pyz {'|'.join(PROGRAMS)} ARGUMENTS\n")


@pytest.mark.parametrize("name", PROGRAMS)
def test_every_program_starts_from_the_archive(tmp_path: Path, name: str) -> None:
    """Without the package in its path. None of them can work here: each fails with its own message."""
    done = run(tmp_path, name, "--no-such-option")
    assert done.returncode != 0
    assert "No module named 'rlt_" not in done.stderr
    assert PROGRAMS[name].split(".")[-1].split("_")[0] in done.stderr + done.stdout


def test_the_name_stands_for_the_content() -> None:
    manifest = build_programs("research")
    assert is_programs(manifest)
    assert has_named_content(manifest)
    assert b64decode(manifest["binaryData"][PROGRAMS_FILE]) == build_archive()
    assert not has_named_content({**manifest, "immutable": False})
    assert not has_named_content({**manifest, "binaryData": {PROGRAMS_FILE: "eA=="}})
    assert not has_named_content({"metadata": {"name": name_programs()}, "immutable": True})


@pytest.mark.parametrize("name", JOBS)
def test_the_config_map_of_a_job_is_small(name: str) -> None:
    job = JOBS[name]
    assert job.spec
    assert len(json.dumps(build_config_map(job, job.spec))) < MAX_CONFIG_MAP_BYTES
