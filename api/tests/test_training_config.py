"""The version of the trainer's config: a trainer reads its own version, and rejects what it does not know."""

from __future__ import annotations

import json

import pytest

from rlt_api.spec.training_config import CONFIG_VERSION, UnsupportedVersionError, validate_version


@pytest.mark.parametrize("version", [CONFIG_VERSION + 1, CONFIG_VERSION - 1, 10**6])
def test_another_version_is_rejected_before_its_fields_are_read(version: int) -> None:
    with pytest.raises(UnsupportedVersionError, match=f"^version: {version}: .* Use a trainer image"):
        validate_version(json.dumps({"version": version, "unknown": 1}).encode())


def test_the_version_of_this_package_is_accepted() -> None:
    validate_version(json.dumps({"version": CONFIG_VERSION, "unknown": 1}).encode())
