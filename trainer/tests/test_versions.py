"""The versions of torch and transformers that the trainer accepts."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from rlt_trainer.versions import OLDEST, validate_versions

PYPROJECT = Path(__file__).parents[1] / "pyproject.toml"


@pytest.mark.parametrize(
    ("package", "found"), [("torch", "2.10.1+cu128"), ("torch", "1.13"), ("transformers", "5.9.2")]
)
def test_an_older_version_is_rejected_by_name(package: str, found: str) -> None:
    versions = {"torch": "2.11.0+cu130", "transformers": "5.17.0", package: found}
    oldest = ".".join(map(str, OLDEST[package]))
    message = rf"^rlt_trainer requires {package} {oldest} or later, and {found} is installed: upgrade it\.$"
    with pytest.raises(ImportError, match=message.replace("+", r"\+")):
        validate_versions(versions.__getitem__)


def test_newer_versions_are_accepted() -> None:
    validate_versions({"torch": "3.0.0a0+git1", "transformers": "6.0"}.__getitem__)


def test_the_distribution_requires_the_same_versions() -> None:
    requirements = map(Requirement, tomllib.loads(PYPROJECT.read_text())["project"]["dependencies"])
    lower = {each.name: str(each.specifier) for each in requirements if each.name in OLDEST}
    assert lower == {package: f">={major}.{minor}" for package, (major, minor) in OLDEST.items()}
