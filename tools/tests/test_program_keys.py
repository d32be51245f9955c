"""The readers of config classes and parsers, on sources in a repository."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from config_classes import Place, Resolver, merge
from key_sources import Source
from parser_options import list_field_options, list_options

MODELS = """
from typing import Annotated, Literal, TypeAlias
from shared.base import Base as Shared, Named

Mode: TypeAlias = Annotated[Named | "Fake", Field(discriminator="type")]

class Fake(Shared):
    type: Literal["fake"] = "fake"
    size: int | None = None

class Root(Shared):
    data: Mode
    extra: dict[str, str] = {}
    rate: float = Field(1.0, validation_alias=AliasChoices("rate", "speed"))
    other: Unknown = None
    switch: Literal[True]
"""
BASE = """
class Base:
    model_config = {"a": 1}
    name: str = "x"
    _hidden: int = 0

class Named(Base):
    type: Literal["named"] = "named"
    size: int = 1

class Open(Base):
    model_config = ConfigDict(extra="allow")
"""
PARSER = """
group.add_argument("--steps", "--max-steps", type=int)
group.add_argument("--mode", choices=["a", "b"])
group.add_argument("--fast", action=argparse.BooleanOptionalAction)
group.add_argument("--deep", action="store_true")
group.add_argument(f"--{prefix}policy")
reset_arg(parser, "--seed", type=int)
exclude = ["name"]
ArgumentGroupFactory(Named, exclude=exclude)
from shared.base import Named
"""


@pytest.fixture
def source(tmp_path: Path) -> Source:
    for path, text in {"src/root.py": MODELS, "src/shared/base.py": BASE, "parser.py": PARSER}.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
    git = ["git", "-C", str(tmp_path), "-c", "user.name=a", "-c", "user.email=a@example.com"]
    for command in (["init", "-q"], ["add", "."], ["commit", "-qm", "a"]):
        subprocess.run([*git, *command], check=True)
    return Source(f"{tmp_path}@HEAD")


def test_classes_are_read_through_imports_and_unions(source: Source) -> None:
    keys = merge(Resolver(("src/",), {}).list_keys(Place(source, "src/root.py", "Root")))
    assert keys == {
        "name": "text", "data.name": "text", "data.type": ["named", "fake"], "data.size": "int", "extra": "open",
        "rate": "float", "speed": "float", "other": "open", "switch": "bool",
    }  # fmt: skip


def test_options_are_read_from_calls_and_dataclasses(source: Source) -> None:
    assert dict(list_options(source, "parser.py", "router-")) == {
        "--steps": "int", "--max-steps": "int", "--mode": ["a", "b"], "--fast": "text", "--no-fast": "flag",
        "--deep": "flag", "--router-policy": "text", "--seed": "int",
    }  # fmt: skip
    fields = dict(list_field_options(source, "parser.py", Resolver(("src/",), {}), negated=True))
    assert fields == {"--type": ["named"], "--size": "int"}


def test_the_version_of_a_wheel_is_in_its_name() -> None:
    assert Source("/tmp/sglang-0.5.15.post1-py3-none-any.whl").version == "0.5.15.post1"
