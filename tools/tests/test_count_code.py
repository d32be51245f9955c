"""The walk of a value through functions, and the goal for the way from an observation to the status."""

from __future__ import annotations

from pathlib import Path

from count_code import Walk
from rlt_e2e.environment import ROOT

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
    walked = Walk(package, tables)
    walked.enter(("package.first", "start"), {"value"})
    return walked.count_files(), walked.count_returns()


def test_a_walk_follows_attributes_and_names_of_a_value_and_enters_a_function_once(tmp_path: Path) -> None:
    assert walk(tmp_path) == (2, 1)  # start, read, finish


def test_a_walk_follows_the_functions_of_a_table(tmp_path: Path) -> None:
    assert walk(tmp_path, "PARTS") == (3, 2)  # then add and write


def test_the_way_from_an_observation_to_the_status_is_short() -> None:
    walked = Walk(ROOT / "operator/rlt_operator", ())
    walked.enter(("rlt_operator.reconcile.plan", "plan"), {"observed"})
    assert walked.count_files() > 6  # it still finds the way
    assert walked.count_files() <= 10
    assert walked.count_returns() <= 8
    with_tables = Walk(ROOT / "operator/rlt_operator", ("PARTS",))
    with_tables.enter(("rlt_operator.reconcile.plan", "plan"), {"observed"})
    assert with_tables.count_files() <= 11
