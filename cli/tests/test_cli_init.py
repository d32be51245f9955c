"""rlt init."""

from __future__ import annotations

import re

import pytest
import yaml
from click.testing import CliRunner, Result

from rlt_api.runtime import RLRuntimeSpec
from rlt_api.schema import walk_leaves
from rlt_api.spec import RLTrainingJobSpec
from rlt_cli.main import cli

OPTIONS = [
    [],
    ["--preset", "gsm8k"],
    ["--runtime", "gpu"],
    ["--preset", "gsm8k", "--runtime", "gpu", "--name", "mine"],
    ["--kind", "runtime"],
]


def rlt(command: str, *arguments: str, input: str | None = None) -> Result:
    return CliRunner().invoke(cli, [command, *arguments], input=input)


@pytest.mark.parametrize("full", [[], ["--full"]])
@pytest.mark.parametrize("options", OPTIONS)
def test_the_manifest_is_valid(options: list[str], full: list[str]) -> None:
    written = rlt("init", *options, *full)
    assert written.exit_code == 0, written.stderr
    assert written.stdout.startswith("# yaml-language-server: $schema=rl")
    assert all(len(line) <= 120 for line in written.stdout.splitlines())
    checked = rlt("validate", "-", input=written.stdout)
    assert (checked.exit_code, checked.stdout) == (0, "")


@pytest.mark.parametrize("options", OPTIONS)
def test_full_does_not_change_a_value(options: list[str]) -> None:
    assert yaml.safe_load(rlt("init", *options, "--full").stdout) == yaml.safe_load(rlt("init", *options).stdout)


@pytest.mark.parametrize(("kind", "model"), [("job", RLTrainingJobSpec), ("runtime", RLRuntimeSpec)])
def test_full_contains_every_field(kind: str, model: type[RLTrainingJobSpec]) -> None:
    text = rlt("init", "--kind", kind, "--full").stdout
    everything = yaml.safe_load(re.sub(r"^( +)#(?=[^ ])", r"\1", text, flags=re.M))
    missing = [path for path, _ in walk_leaves(model) if not has(everything, path.split("."))]
    assert missing == []


def has(value: object, path: list[str]) -> bool:
    if not path:
        return True
    name = path[0].removesuffix("[]")
    if not isinstance(value, dict) or name not in value:
        return False
    inner = value[name]
    return has(inner[0] if path[0].endswith("[]") and len(path) > 1 else inner, path[1:])


def test_with_a_runtime_the_job_omits_image_pods_and_volume() -> None:
    spec = yaml.safe_load(rlt("init", "--runtime", "gpu").stdout)["spec"]
    assert spec["runtimeRef"] == {"name": "gpu"}
    assert spec["cluster"] == {"workers": [{"replicas": 2}]}
    assert "storage" not in spec


@pytest.mark.parametrize("name", ["true", "10", "a: b", "A", "x" * 60])
def test_a_name_is_written_unchanged_or_rejected(name: str) -> None:
    done = rlt("init", "--name", name)
    if done.exit_code == 0:
        assert yaml.safe_load(done.stdout)["metadata"]["name"] == name
    else:
        assert (done.exit_code, done.stdout) == (1, "")
        assert done.stderr.startswith("error: metadata.name: ")


def test_runtime_cannot_be_combined_with_kind_runtime() -> None:
    done = rlt("init", "--kind", "runtime", "--runtime", "gpu")
    assert done.exit_code == 2
    assert "--runtime cannot be combined with --kind runtime" in done.stderr
