"""OpenRLHF's own parser takes the options of jobs with framework openrlhf (0.11.2)."""

from __future__ import annotations

import json
import platform
import subprocess
from pathlib import Path
from typing import Any

import pytest
from openrlhf_jobs import TABLE, resolve
from verl_jobs import RUN

from rlt_api.frameworks.openrlhf.settings import PROGRAM, build_arguments, list_options
from separate_environment import install

SCRIPT = Path(__file__).parents[2] / "tools/parse_openrlhf.py"
TABLE_FILE = Path(__file__).parents[2] / "api/rlt_api/frameworks/openrlhf/options.toml"

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(platform.machine() != "x86_64", reason="OpenRLHF has wheels for x86_64 alone"),
]


def parse(lists: list[list[str]]) -> list[dict[str, Any]]:
    """Parse each list of options."""
    python = install("openrlhf-options", "--no-deps")
    done = subprocess.run([python, SCRIPT], input=json.dumps(lists), check=True, capture_output=True, text=True)
    parsed: list[dict[str, Any]] = json.loads(done.stdout)
    return parsed


def test_openrlhf_parses_the_options_of_each_job() -> None:
    specs = [resolve(changes) for changes in TABLE.values()]
    parsed = parse([build_arguments(spec, RUN)[len(PROGRAM) :] for spec in specs])
    for spec, values in zip(specs, parsed, strict=True):
        options = {name: value for name, value in list_options(spec, RUN).items() if value is not None}
        assert {name: values.get(name, values.get("error")) for name in options} == options


def test_the_table_has_the_options_of_the_parser() -> None:
    python = install("openrlhf-options", "--no-deps")
    table = subprocess.run([python, SCRIPT, "--table"], check=True, capture_output=True, text=True).stdout
    assert TABLE_FILE.read_text() == table


def test_invalid_options_are_errors() -> None:
    unknown, choice = parse([["--actor.nodes=2"], ["--ds.param_dtype=fp32"]])
    assert "unrecognized arguments" in unknown["error"]
    assert "invalid choice" in choice["error"]
