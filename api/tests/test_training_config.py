"""The versions of the trainer's config: files of version 1 are read, and old trainers read what is written today."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, get_args

import pytest

from rlt_api.blocks.rollout import Rollout
from rlt_api.model import ApiModel, Since
from rlt_api.spec.training_config import (
    CONFIG_VERSION,
    TrainingConfig,
    UnsupportedVersionError,
    dump_config,
    validate_version,
)

VERSION_1 = Path(__file__).parent / "config_v1"
CONFIGS = sorted(VERSION_1.glob("[!s]*.json"))


def blocks(model: type[ApiModel], path: str = "", version: int = 1) -> Iterator[tuple[str, int]]:
    """Path and version of every field in the model and its blocks, which have at least `version`."""
    for name, field in model.model_fields.items():
        here = f"{path}.{field.alias or name}"
        since = next((each.version for each in field.metadata if isinstance(each, Since)), version)
        yield here, since
        for inner in find_models(field.annotation):
            yield from blocks(inner, here, since)


def find_models(annotation: Any) -> Iterator[type[ApiModel]]:
    if isinstance(annotation, type) and issubclass(annotation, ApiModel):
        yield annotation
    for each in get_args(annotation):
        yield from find_models(each)


def schema_paths(node: Any, definitions: dict[str, Any], path: str = "") -> Iterator[str]:
    for key, each in node.get("properties", {}).items():
        yield f"{path}.{key}"
        yield from schema_paths(each, definitions, f"{path}.{key}")
    if "$ref" in node:
        yield from schema_paths(definitions[node["$ref"].rsplit("/", 1)[1]], definitions, path)
    for each in [*node.get("anyOf", []), *([node["items"]] if "items" in node else [])]:
        yield from schema_paths(each, definitions, path)


def first_version() -> dict[str, Any]:
    schema: dict[str, Any] = json.loads((VERSION_1 / "schema.json").read_text())
    return schema


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.stem)
def test_a_config_of_version_1_is_read_and_written_unchanged(path: Path) -> None:
    validate_version(path.read_bytes())
    assert dump_config(TrainingConfig.model_validate_json(path.read_text())) == path.read_text()


def test_a_field_that_version_1_lacks_is_marked() -> None:
    """If this fails: mark the field with Since(N), increment CONFIG_VERSION to N once for each release."""
    schema = first_version()
    old = set(schema_paths(schema, schema["$defs"])) | {".version"}
    new = dict(blocks(TrainingConfig))
    assert {path for path, since in new.items() if since == 1} == old
    assert max(new.values()) == CONFIG_VERSION


class Later(Rollout):
    """A block with a field of a later version."""

    burst: Annotated[int, Since(3)] = 1


class LaterConfig(TrainingConfig):
    """A config of a later version."""

    rollout: Later
    color: Annotated[str | None, Since(2)] = None


def later(**changes: Any) -> LaterConfig:
    config = json.loads((VERSION_1 / "arithmetic.json").read_text())
    rollout = {**config["rollout"], **changes.pop("rollout", {})}
    return LaterConfig.model_validate({**config, "rollout": rollout, **changes})


@pytest.mark.parametrize(
    ("changes", "version"),
    [({}, None), ({"color": "red"}, 2), ({"rollout": {"burst": 2}}, 3), ({"rollout": {"burst": 1}}, None)],
)
def test_the_newest_field_in_use_decides_the_version(changes: dict[str, Any], version: int | None) -> None:
    written = json.loads(dump_config(later(**changes)))
    assert written.get("version") == version
    assert ("color" in written, "burst" in written["rollout"]) == ("color" in changes, version == 3)


def unknown_fields(value: Any, node: dict[str, Any], definitions: dict[str, Any], path: str = "") -> Iterator[str]:
    """Fields of a config that a trainer with this schema rejects."""
    options = [node, *node.get("anyOf", [])]
    options += [definitions[each["$ref"].rsplit("/", 1)[1]] for each in options if "$ref" in each]
    known = {key: each for option in options for key, each in option.get("properties", {}).items()}
    items: dict[str, Any] = next((option["items"] for option in options if "items" in option), {})
    if isinstance(value, list):
        for each in value:
            yield from unknown_fields(each, items, definitions, f"{path}[]")
    elif isinstance(value, dict) and known:
        for key, each in value.items():
            if key not in known:
                yield f"{path}.{key}"
            else:
                yield from unknown_fields(each, known[key], definitions, f"{path}.{key}")


@pytest.mark.parametrize(
    ("changes", "unknown"),
    [({}, []), ({"rollout": {"burst": 1}}, []), ({"rollout": {"burst": 2}}, [".version", ".rollout.burst"])],
)
def test_a_trainer_of_version_1_rejects_only_new_features(changes: dict[str, Any], unknown: list[str]) -> None:
    schema = first_version()
    written = json.loads(dump_config(later(**changes)))
    assert list(unknown_fields(written, schema, schema["$defs"])) == unknown


@pytest.mark.parametrize("version", [CONFIG_VERSION + 1, CONFIG_VERSION - 2, 10**6])
def test_another_version_is_rejected_before_its_fields_are_read(version: int) -> None:
    with pytest.raises(UnsupportedVersionError, match=f"^version: {version}: .* Use a trainer image"):
        validate_version(json.dumps({"version": version, "unknown": 1}).encode())
