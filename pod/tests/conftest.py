"""run_command.py with the files that a pod has."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import observed as o
import pytest
from command_wrapper import Start

from rlt_core.children.config_map import build_config_map, build_config_volume


@pytest.fixture(scope="module")
def mounted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The ConfigMap volume as the kubelet lays it out: all names are links through ..data to a folder."""
    job = o.job(o.COMMAND_SPEC)
    assert job.spec
    volume = tmp_path_factory.mktemp("volume")
    (volume / "..data").symlink_to("..2026")
    for item in build_config_volume(job, job.spec)["items"]:
        file = volume / "..2026" / item["path"]
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(build_config_map(job, job.spec)["data"][item["key"]])
        top = Path(item["path"]).parts[0]
        if not (volume / top).is_symlink():
            (volume / top).symlink_to(f"..data/{top}")
    return volume


@pytest.fixture
def start(mounted: Path, tmp_path: Path) -> Iterator[Start]:
    """Start run_command.py with options and a Python script as its command."""
    started: list[subprocess.Popen[bytes]] = []

    def run(script: str, *options: str, python: str = sys.executable) -> subprocess.Popen[bytes]:
        command = [python, str(mounted / "run_command.py"), *options, "--", sys.executable, "-uc", script]
        pipe = subprocess.PIPE
        started.append(subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, cwd=tmp_path))
        return started[-1]

    yield run
    for process in started:
        process.kill()
        process.communicate()
