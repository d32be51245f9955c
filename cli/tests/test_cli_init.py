"""rlt init."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner, Result

from rlt_api.schema.model_schema import walk_leaves
from rlt_api.spec.job_spec import RLTrainingJobSpec
from rlt_api.spec.runtime import RLRuntimeSpec
from rlt_cli.gallery import find_example, load_examples, parse_example
from rlt_cli.main import cli

OPTIONS = [
    [],
    ["gsm8k-8-gpus"],
    ["--runtime", "gpu"],
    ["gsm8k-8-gpus", "--runtime", "gpu", "--name", "mine"],
    ["separate-rollout", "--runtime", "gpu"],
    ["--kind", "runtime"],
]
EXAMPLES = sorted((Path(__file__).parents[2] / "examples").glob("*.yaml"))


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


def test_with_a_runtime_each_worker_group_keeps_its_name() -> None:
    spec = yaml.safe_load(rlt("init", "separate-rollout", "--runtime", "gpu").stdout)["spec"]
    assert spec["cluster"] == {"workers": [{"name": "train", "replicas": 1}, {"name": "rollout", "replicas": 3}]}
    assert yaml.safe_load(rlt("init", "03", "--runtime", "gpu").stdout)["spec"]["runtimeRef"] == {"name": "gpu"}


def test_every_example_is_offered_unchanged() -> None:
    assert [each.file for each in load_examples()] == [path.name for path in EXAMPLES]
    for path, example in zip(EXAMPLES, load_examples(), strict=True):
        assert example.text == path.read_text().partition("\n")[2]
        assert {find_example(given) for given in (example.number, example.name, path.name)} == {example}
    assert find_example("7") == find_example("07")
    assert rlt("init", "01").stdout.partition("\n")[2] == load_examples()[0].text


def test_the_list_has_every_example_with_its_hardware() -> None:
    listed = rlt("init", "--list").stdout.splitlines()
    assert len(listed) == len(EXAMPLES) + 1
    assert any(re.fullmatch("19 +dapo +2 nodes with 8 GPUs of 80 GB.  +DAPO on .*", line) for line in listed)
    first, *_ = json.loads(rlt("init", "--list", "-o", "json").stdout)
    assert (first["number"], first["name"], first["hardware"]) == ("01", "arithmetic-grpo", "2 CPUs.")


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("gsm8k-8-gpu", "gsm8k-8-gpus"),
        ("aritmetic-grpo", "arithmetic-grpo"),
        ("gsm8k", "gsm8k-grpo or gsm8k-8-gpus"),
    ],
)
def test_an_unknown_example_is_an_error_with_similar_names(name: str, meant: str) -> None:
    done = rlt("init", name)
    assert (done.exit_code, done.stdout) == (1, "")
    assert f"{name}: is not an example. Did you mean {meant}?" in done.stderr
    assert "rlt init --list" in done.stderr


def test_the_wheel_contains_the_packages_and_the_examples(tmp_path: Path) -> None:
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(build, cwd=Path(__file__).parents[2], check=True, capture_output=True)
    (wheel,) = tmp_path.iterdir()
    names = zipfile.ZipFile(wheel).namelist()
    assert {f"rlt_cli/examples/{path.name}" for path in EXAMPLES} <= {*names}
    packages = {"rlt_pod", "rlt_api", "rlt_core", "rlt", "rlt_ui", "rlt_cli", "rlt-0.1.0.dist-info"}
    assert {name.partition("/")[0] for name in names} == packages


@pytest.mark.parametrize("options", [["--runtime", "a"], ["dapo"]])
def test_a_job_cannot_be_combined_with_kind_runtime(options: list[str]) -> None:
    done = rlt("init", "--kind", "runtime", *options)
    assert done.exit_code == 2
    assert "cannot be combined with --kind runtime" in done.stderr


def test_a_header_of_another_form_is_named() -> None:
    with pytest.raises(ValueError, match=r"10-x\.yaml: the header must be a title and Hardware, Needs, Time, Result"):
        parse_example("10-x.yaml", "# yaml-language-server: x\n# A title.\nkind: a\n")
