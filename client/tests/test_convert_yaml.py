"""Sources in YAML with the shape of published ones: every part is in the job or in a comment, and nothing else is."""

from __future__ import annotations

import re
from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
import yaml
from yaml_musts import MUSTS, Must

from rlt.convert.convert import Converted, Target, convert
from rlt.convert.draft import ConvertError, Draft
from rlt.convert.missing import list_missing
from rlt.manifest_files import parse_documents

FOLDER = Path(__file__).parent / "yaml_sources"
SOURCES = {path.stem: path.read_text() for path in sorted(FOLDER.glob("*.yaml"))}
DEFAULT = (
    r".*\.(replicas|numNodes|parallelism)", r"(num_)?nodes", r"trainer\.placement\.policy_num_nodes",
    r".*\.resources\.(limits|requests)\.\S*", r".*\.operator", r".*\.suspend", r"spec\.schedulerName",
)  # fmt: skip
"""Fields whose absence can mean the same as their value."""
SHARED = ("image", "imagePullSecrets", "hostNetwork", "workingDir", "name", "priorityClassName")
"""Fields that a job has once. A second pod with the same value adds nothing."""
OPTIONAL = (None, "", 0, 1, "0", "1", False, "volcano")
"""Values that a program or Kubernetes has by default for such fields."""
OTHER_TYPES: tuple[Any, ...] = (None, "text", -7, [1], {"a": 1})
SECRET = re.compile(r"(KEY|TOKEN|SECRET|PASSWORD)$")
SUPPLIED: dict[str, Any] = {
    "image": "registry.example/i:1",
    "accelerator": {"resourceName": "nvidia.com/gpu", "count": 8},
    "resources": {"cpu": "8", "memory": "1Ti"},
    "cpu": "8",
    "memory": "1Ti",
    "queueName": "q",
}
"""Last part of a field that must be filled in -> a value."""
OWN = re.compile(
    r"rlt|dev/v1alpha1|RLTrainingJob|command|bash|-c|-m|--|--config|--config-name|python3|setup|workers|hostNetwork"
    r"|required|preferred|/etc/rlt/rlt_pod|pyz|run-roll|/workspace/ROLL|/opt/nemo-rl|PYTHONPATH|ray-head|ray-worker"
    r"|examples/\w+|py|/mnt/rlt/config/source|yaml|verl|trainer|main_ppo|skyrl_train|entrypoints|main_base|trl|grpo"
    r"|job-.*|source-.*|clone-\w+|\$HOME/.*|nvidia|amd|com/gpu|source|\d+(Gi|G|Mi)?"
)
"""Words of a job that no source has: names of the API, of programs and of the operator's containers, and numbers that
are computed from the numbers of the source."""


def convert_file(name: str) -> Converted:
    return convert(SOURCES[name], "source.yaml")


def get(converted: Converted, path: str) -> Any:
    block, _, rest = path.partition(".")
    if block == "metadata":
        return converted.manifest["metadata"].get(rest)
    return Draft(spec=converted.manifest["spec"]).get(path)


@pytest.mark.parametrize("name", SOURCES)
def test_the_job_has_what_the_source_has(name: str) -> None:
    must = MUSTS[name]
    converted = convert_file(name)
    assert {path: get(converted, path) for path in must.fields} == must.fields
    comments = "\n".join(map(str, converted.left_out))
    assert [part for part in must.named if part not in comments] == []
    command = converted.manifest["spec"].get("framework", {}).get("command", [])
    assert [word for word in must.words if word not in command] == []


def list_paths(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The path of every key and list item."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, each in items:
        yield (*path, key)
        yield from list_paths(each, (*path, key))


def select(documents: Any, path: tuple[Any, ...]) -> Any:
    node: Any = documents
    for key in path:
        node = node[key]
    return node


def write(documents: list[Any]) -> str:
    return yaml.safe_dump_all(documents, sort_keys=False)


def read(name: str) -> list[Any]:
    return [dict(each.manifest) for each in parse_documents(name, SOURCES[name].encode())]


def strip_lines(text: str) -> str:
    """The output without the numbers of lines, which change with every deletion."""
    return re.sub(r"\s+", " ", re.sub(r"line \d+: ", "", text.replace("\n#", " ")))


def list_values(documents: Any, key: Any) -> list[Any]:
    """The values of all fields with this name."""
    return [select(documents, path) for path in list_paths(documents) if path[-1] == key]


def is_neutral(documents: Any, path: tuple[Any, ...], value: Any) -> bool:
    """Whether the absence of a field means the same as its value."""
    dotted = ".".join(map(str, path[1:]))
    if value in ({}, []) or SECRET.search(str(path[-1])):
        return True
    if path[-2:-1] == ("imagePullSecrets",):
        return sum(value in each for each in list_values(documents, "imagePullSecrets")) > 1
    if path[-1] in SHARED and list_values(documents, path[-1]).count(value) > 1:
        return True
    if path[-2:-1] in (("limits",), ("requests",)):
        other = "requests" if path[-2] == "limits" else "limits"
        return bool(select(documents, path[:-2]).get(other, {}).get(path[-1]) == value)
    return value in OPTIONAL and any(re.fullmatch(pattern, dotted) for pattern in DEFAULT)


@pytest.mark.parametrize("name", [name for name in SOURCES if not MUSTS[name].reads_file])
def test_a_part_that_is_deleted_changes_the_output(name: str) -> None:
    documents = read(name)[-1:]
    before = strip_lines(convert(write(documents), "source.yaml").to_yaml("source.yaml"))
    unnoticed = []
    for path in list(list_paths(documents)):
        value = select(documents, path)
        if len(path) == 1 or is_neutral(documents, path, value) or is_value_of_secret(documents, path):
            continue
        changed = deepcopy(documents)
        del select(changed, path[:-1])[path[-1]]
        try:
            after = strip_lines(convert(write(changed), "source.yaml").to_yaml("source.yaml"))
        except ConvertError:
            continue
        if after == before:
            unnoticed.append((path, value))
    assert unnoticed == []


def is_value_of_secret(documents: list[Any], path: tuple[Any, ...]) -> bool:
    owner = select(documents, path[:-1])
    return isinstance(owner, dict) and bool(SECRET.search(str(owner.get("name")))) and path[-1] == "value"


@pytest.mark.parametrize("name", SOURCES)
def test_every_word_of_the_job_is_in_the_source(name: str) -> None:
    text = SOURCES[name]
    lower = text.lower().replace("_", "-")
    numbers = {float(each) for each in re.findall(r"\d+(?:\.\d*)?(?:e[+-]?\d+)?", text)}
    manifest = convert_file(name).manifest
    leaves = [select(manifest, path) for path in list_paths(manifest)]
    words = {word.strip("+\"'") for leaf in leaves if isinstance(leaf, str) for word in re.split(r"[\s=,\[\].]+", leaf)}
    added = {word for word in words if word not in text and word not in lower and not OWN.fullmatch(word)}
    assert {word for word in added if not is_number(word) or float(word) not in numbers} == set()


def is_number(word: str) -> bool:
    return re.fullmatch(r"\d+(e[+-]?\d+)?", word) is not None


@pytest.mark.parametrize("name", SOURCES)
def test_the_list_of_missing_fields_is_complete(name: str) -> None:
    manifest = convert_file(name).manifest
    missing = list_missing(manifest)
    assert not any("is not a field" in each.message for each in missing)
    draft = Draft(spec=manifest["spec"])
    if draft.get("framework.type") is None:
        draft.put("framework.type", "command")
        draft.put("framework.command", ["python3", "train.py"])
        missing = [each for each in missing if "framework builtin" not in f"{each.value} {each.message}"]
    for each in missing:
        path = re.sub(r"\[\d+\]", "[]", each.field).removeprefix("spec.")
        draft.put(path, SUPPLIED[path.rpartition(".")[2]])
    assert list_missing(manifest) == []


@pytest.mark.parametrize("name", SOURCES)
def test_a_value_of_another_type_does_not_crash(name: str) -> None:
    documents = read(name)
    for index, path in enumerate(list_paths(documents)):
        changed = deepcopy(documents)
        select(changed, path[:-1])[path[-1]] = OTHER_TYPES[index % len(OTHER_TYPES)]
        try:
            converted = convert(write(changed), "source.yaml")
        except ConvertError:
            continue
        converted.to_yaml("source.yaml")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("kind: RayJob\nspec:\n  a: [1\n  b: 2\n", "line 4: it is not YAML"),
        ("name: x\nrun: |\n  python3 train.py 'a\nnum_nodes: 1\n", "line 3: in run: the quote ' is not closed"),
        (
            "type: service\nimage: i\n",
            "line 1: source.yaml is YAML with the keys type, image (type: service), and none",
        ),
        (
            "kind: RayService\napiVersion: ray.io/v1\n",
            "line 1: source.yaml is YAML with the keys kind, apiVersion (kind",
        ),
        ("- 1\n- 2\n", "line 1: it is not a manifest: not an object"),
        ("model_name_or_path: q\nlearning_rate: 1e-6\n", "line 1: it is a config of TRL"),
    ],
)
def test_what_cannot_be_read_is_an_error_with_its_line(text: str, message: str) -> None:
    with pytest.raises(ConvertError) as raised:
        convert(text, "source.yaml")
    assert str(raised.value).startswith(message)


def test_a_toml_config_is_an_error() -> None:
    with pytest.raises(ConvertError, match="is TOML with the tables trainer, orchestrator"):
        convert("max_steps = 5\n[trainer]\nlr = 1e-6\n[orchestrator]\nbatch = 4\n", "rl.toml")


@pytest.mark.parametrize("to", ["builtin", "roll"])
@pytest.mark.parametrize("name", ["roll-agentic", "roll-dpo", "roll-distill", "roll-sft", "roll-rlvr-vl"])
def test_other_pipelines_of_roll_have_no_fields(name: str, to: Target) -> None:
    with pytest.raises(ConvertError, match="is a config of ROLL's pipeline"):
        convert(SOURCES[name], "source.yaml", to)


def test_every_source_has_its_list() -> None:
    assert MUSTS.keys() == SOURCES.keys()
    assert all(isinstance(must, Must) and must.fields for must in MUSTS.values())
