"""The walk of a value through functions, and the goal for the way from an observation to the status."""

from __future__ import annotations

from pathlib import Path

from count_code import ROOT, Walk, find_comparisons, list_files

FIRST = """
from package.second import read, write
from package.table import PARTS

def start(value, other):
    part = value.part
    write(other)
    read(part)
    finish(result=value)
    return {name: compute(value) for name, compute in PARTS.items()}

def finish(result):
    read(result)
"""
SECOND = """
def read(part):
    return part

def write(other):
    return other
"""
TABLE = """
from package.second import write

PARTS: dict[str, object] = {"name": add, "other": write}

def add(observed):
    return observed
"""


def walk(folder: Path, *tables: str) -> tuple[int, int]:
    package = folder / "package"
    package.mkdir(exist_ok=True)
    for name, text in {"first": FIRST, "second": SECOND, "table": TABLE}.items():
        (package / f"{name}.py").write_text(text)
    walked = Walk(package, tables=tables)
    walked.enter(("package.first", "start"), {"value"})
    return walked.count_files(), walked.count_returns()


def test_a_walk_follows_attributes_and_names_of_a_value_and_enters_a_function_once(tmp_path: Path) -> None:
    assert walk(tmp_path) == (2, 1)  # start, read, finish


def test_a_walk_follows_the_functions_of_a_table(tmp_path: Path) -> None:
    assert walk(tmp_path, "PARTS") == (3, 2)  # then add and write


def test_the_way_from_an_observation_to_the_status_is_short() -> None:
    walked = Walk(ROOT / "operator/rlt_operator")
    walked.enter(("rlt_operator.reconcile.plan", "plan"), {"observed"})
    assert walked.count_files() > 6  # it still finds the way
    assert walked.count_files() <= 10
    assert walked.count_returns() <= 8
    with_tables = Walk(ROOT / "operator/rlt_operator", tables=("PARTS",))
    with_tables.enter(("rlt_operator.reconcile.plan", "plan"), {"observed"})
    assert with_tables.count_files() <= 15


def test_the_way_from_a_spec_to_the_config_map_is_short() -> None:
    walked = Walk(ROOT / "core/rlt_core", ROOT / "api/rlt_api")
    walked.enter(("rlt_core.children.config_map", "build_config_map"), {"spec"})
    assert 2 < walked.count_files() <= 10
    assert walked.count_returns() <= 7


def test_comparisons_of_framework_types_are_found() -> None:
    text = """
if spec.framework.type != "verl" or job.spec.framework.type in ("roll",):
    use("spec.framework.type" == name)
match framework.type:
    case "verl":
        pass
"""
    assert find_comparisons("a.py", text) == ["a.py:4", "a.py:2", "a.py:2"]


def test_few_places_compare_framework_types() -> None:
    """Others ask the record of the framework (api/rlt_api/frameworks/registry.py)."""
    found = [each for path in list_files() for each in find_comparisons(path, (ROOT / path).read_text())]
    assert len(found) < 15
