"""The check at the end of an image's build: it accepts this environment, and names what another one lacks."""

from __future__ import annotations

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


def test_the_image_for_cuda_has_a_liger_kernel_that_works() -> None:
    pins = (IMAGES.parent / "requirements/trainer-cuda.txt").read_text()
    assert re.findall(r"^liger-kernel==(\S+)", pins, re.MULTILINE) == [VERSIONS[-1]]
