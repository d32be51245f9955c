"""The bundle of `make gpu-check`: its parts are joined again, and a missing or damaged part is named."""

from __future__ import annotations

import random
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from gpu_bundle import contents, parts, rehearse
from gpu_bundle.__main__ import REQUIREMENTS, copy_sources

JOIN = Path(parts.__file__).with_name("join.py")
CONTENT = random.Random(0).randbytes(10_000)


@pytest.fixture
def bundle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A bundle of two archives, one of them in several parts, whose join.py is for the Python of the tests."""
    monkeypatch.setattr(parts, "PART_BYTES", 4096)
    folder = tmp_path / "bundle"
    archives = {}
    folder.mkdir()
    for name, files in {"check": {"run.sh": b"exit 0\n"}, "engine": {"engine/kernels.so": CONTENT}}.items():
        for file, content in files.items():
            path = tmp_path / name / file
            path.parent.mkdir(parents=True)
            path.write_bytes(content)
        archive = tmp_path / f"{name}.tar.xz"
        parts.write_archive(tmp_path / name, archive)
        archives[name] = parts.split(archive, folder)
    assert len(archives["engine"]) > 2
    parts.write_manifest(folder, "abc", archives)
    version = f"PYTHON = ({sys.version_info[0]}, {sys.version_info[1]})"
    (folder / "join.py").write_text(JOIN.read_text().replace("PYTHON = (3, 12)", version))
    return folder


def join(bundle: Path, target: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(bundle / "join.py"), str(target)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_the_parts_are_joined_and_replace_an_earlier_folder(bundle: Path, tmp_path: Path) -> None:
    target = tmp_path / "joined"
    target.mkdir()
    (target / "COMMIT").touch()
    (target / "old").touch()
    done = join(bundle, target)
    assert done.stdout == f"Joined in {target}. Run the checks: sh {target}/run.sh\n"
    assert {file.relative_to(target).as_posix() for file in target.rglob("*") if file.is_file()} == {
        "engine/kernels.so",
        "run.sh",
    }
    assert (target / "engine/kernels.so").read_bytes() == CONTENT


def test_a_folder_with_other_files_is_kept(bundle: Path, tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").touch()
    done = join(bundle, tmp_path)
    assert done.returncode == 2
    assert done.stderr == f"{tmp_path} exists and is not a joined bundle: name a folder that does not exist.\n"
    assert (tmp_path / "thesis.tex").exists()


def remove(part: Path) -> None:
    part.unlink()


def cut(part: Path) -> None:
    part.write_bytes(part.read_bytes()[:-1])


def change(part: Path) -> None:
    content = bytearray(part.read_bytes())
    content[100] ^= 1
    part.write_bytes(content)


@pytest.mark.parametrize(
    ("damage", "message"),
    [(remove, "is missing: copy it"), (cut, "has 4095 bytes, and 4096 are expected"), (change, "The SHA-256 of")],
)
def test_a_damaged_part_is_named_and_nothing_is_written(
    bundle: Path, tmp_path: Path, damage: object, message: str
) -> None:
    part = bundle / "engine.tar.xz.01"
    assert callable(damage)
    damage(part)
    done = join(bundle, tmp_path / "joined")
    assert done.returncode == 2
    assert str(part) in done.stderr
    assert message in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert not list(tmp_path.glob("joined*"))


def test_another_python_is_named(bundle: Path, tmp_path: Path) -> None:
    shutil.copy(JOIN, bundle)
    done = join(bundle, tmp_path / "joined")
    if sys.version_info[:2] == (3, 12):
        assert done.returncode == 0
    else:
        assert done.returncode == 2
        assert "and the packages of the bundle are for 3.12: use python3.12" in done.stderr


def test_every_package_of_the_bundle_is_pinned() -> None:
    engine = contents.find_packages(REQUIREMENTS[0].read_text())
    assert "vllm" in engine
    assert not {"torch", "ray", "flashinfer-python", "nvidia-nccl-cu13"} & {*engine}
    for name in (*contents.CHECK_PACKAGES, *engine):
        pin = contents.find_pins([name], *REQUIREMENTS)
        assert pin.startswith(f"{name}==")
        assert "--hash=sha256:" in pin


def test_the_sources_are_those_that_the_checks_need(tmp_path: Path) -> None:
    copy_sources(tmp_path)
    for file in ("bench/gpu_check/__main__.py", "trainer/tests/in_process.py", "api/rlt_api/spec/job_spec.py"):
        assert (tmp_path / file).is_file()
    assert not list(tmp_path.rglob("__pycache__"))


def test_a_rehearsal_names_the_python_that_it_needs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rehearse, "BUNDLE", tmp_path)
    assert rehearse.find_problem("python") == f"{tmp_path} does not exist: run `make gpu-bundle` first."
    (tmp_path / "join.py").touch()
    problem = rehearse.find_problem("no-such-python")
    assert problem is not None
    assert problem.startswith("no-such-python is not a Python that runs, and the rehearsal needs Python 3.12")
