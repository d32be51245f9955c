"""The check at the end of an image's build: it accepts this environment, and names what another one lacks."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from check_trainer import find_failing_imports, find_unmet

from rlt_trainer.policy.liger import VERSIONS

IMAGES = Path(__file__).parents[2] / "images"


def test_this_environment_passes() -> None:
    done = subprocess.run([sys.executable, str(IMAGES / "check_trainer.py")], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(
    ("requirement", "problem"),
    [
        ("torch>=99", "torch>=99 is required, and "),
        ("no-such-distribution>=1", "no-such-distribution>=1 is not installed"),
        ("torch>=2", None),
        ('no-such-distribution>=1; extra == "cuda"', None),
        ('no-such-distribution>=1; extra == "mcp"', 'no-such-distribution>=1; extra == "mcp" is not installed'),
        ('no-such-distribution>=1; sys_platform == "win32"', None),
    ],
)
def test_unmet_requirements_are_named(requirement: str, problem: str | None) -> None:
    found = find_unmet([requirement], ["mcp"])
    assert [each[: len(problem or "")] for each in found] == ([problem] if problem else [])


def test_modules_that_cannot_be_imported_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "broken_package"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "good.py").touch()
    (package / "bad.py").write_text("import no_such_module")
    monkeypatch.syspath_prepend(tmp_path)
    (problem,) = find_failing_imports("broken_package")
    assert problem.startswith("broken_package.bad cannot be imported: ModuleNotFoundError")


@pytest.mark.parametrize(("programs", "sentences"), [((), 1), (("nvcc", "ninja"), 0)])
def test_kernels_that_vllm_disables_are_named(tmp_path: Path, programs: tuple[str, ...], sentences: int) -> None:
    (tmp_path / "flashinfer").mkdir()
    (tmp_path / "flashinfer/__init__.py").touch()
    (tmp_path / "bin").mkdir()
    for name in programs:
        (tmp_path / "bin" / name).write_text("#!/bin/sh\n")
        (tmp_path / "bin" / name).chmod(0o755)
    path = os.pathsep.join([str(tmp_path), str(IMAGES), *sys.path])
    environment = {"PATH": str(tmp_path / "bin"), "CUDA_HOME": str(tmp_path), "PYTHONPATH": path}
    program = "import check_trainer; print(len(check_trainer.find_disabled_kernels()))"
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True)
    assert done.stdout.splitlines()[-1:] == [str(sentences)], done.stderr


def test_the_image_for_cuda_has_the_compiler_of_torchs_toolkit() -> None:
    """FlashInfer's modules do not compile with an nvcc of another version than the headers of torch's packages."""
    requirements = (IMAGES.parent / "requirements/trainer-cuda.txt").read_text()
    pins = dict(re.findall(r"^([a-z0-9-]+)==(\S+)", requirements, re.MULTILINE))
    compiler = {pins[name] for name in ("nvidia-cuda-nvcc", "nvidia-cuda-crt", "nvidia-nvvm")}
    assert compiler == {pins["nvidia-cuda-nvrtc"]}


def test_the_image_for_cuda_has_a_liger_kernel_that_works() -> None:
    pins = (IMAGES.parent / "requirements/trainer-cuda.txt").read_text()
    assert re.findall(r"^liger-kernel==(\S+)", pins, re.MULTILINE) == [VERSIONS[-1]]
