"""Reports of runs as files: records, policy and masked secrets. test_ui_report_page.py opens them in a browser."""

from __future__ import annotations

import json
import math
import re
from html import unescape
from pathlib import Path
from typing import Any

import pytest
from recorded_run import HOSTILE, build_hostile_run, build_run

from rlt.report.markdown import build_summary
from rlt.report.summary import Origin
from rlt.runs.run import Run, read_run
from rlt_ui.report import STATIC, build_report, build_script, compute_hash

ORIGIN = Origin("1.2.3", "2026-01-02T03:04:05Z")
ELEMENTS = re.compile(r"<(style|pre|script)\b[^>]*>(.*?)</\1>", re.DOTALL)


def read_texts(run: Run) -> list[str]:
    """The texts of the style sheet, the summary, the records and the script in the report of a run."""
    return [text for _, text in ELEMENTS.findall(build_report(run, ORIGIN))]


def read_records(run: Run) -> Any:
    """The records inside the report of a run."""
    return json.loads(read_texts(run)[2])


def test_the_file_has_every_record() -> None:
    found = read_records(build_run())
    assert found["run"]["sentence"] == "The Ray job is running."
    assert (found["run"]["step"], found["run"]["totalSteps"]) == (40, 100)
    assert found["run"]["config"]["training"]["learningRate"] == 1e-6
    assert found["metrics"]["metrics"]["actor/kl_loss"][18:21] == [0.19, None, 0.21]
    assert [each["prompt"] for each in found["rollouts"]["rollouts"]] == ["1+1=", "1+2="]


def test_the_policy_permits_the_script_and_the_style_sheet_of_the_file_alone() -> None:
    style, _, _, script = read_texts(build_run())
    assert (
        f"default-src 'none'; script-src '{compute_hash(script)}'; style-src '{compute_hash(style)}'; "
        "base-uri 'none'; form-action 'none'"
    ) in build_report(build_run(), ORIGIN)
    # The example of https://www.w3.org/TR/CSP3/#external-hash.
    assert compute_hash("alert('Hello, world.');") == "sha256-qznLcsROx4GACP2dm0UCKCzCG+HiZ1guq6ZZDob/Tng="
    assert not re.search(r"url\(|@import", style)


def test_the_script_has_the_modules_of_the_page_in_the_order_of_their_imports() -> None:
    script = build_script("report.js")
    assert script.index('modules["vendor/uPlot.esm.js"] =') < script.index('modules["charts.js"] =')
    assert script.count('modules["dom.js"] =') == 1
    assert not re.search(r"</script|<!--", script)


def test_modules_import_and_export_in_the_forms_that_a_report_reads() -> None:
    form = re.compile(r'import (\w+|\{ [\w, ]+ \}) from "\./[\w./]+";|export (async )?(function|const|class) \w+.*')
    for file in STATIC.glob("*.js"):
        lines = [line for line in file.read_text().splitlines() if line.startswith(("import ", "export "))]
        assert [line for line in lines if not form.fullmatch(line)] == [], file


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_text_is_data(text: str) -> None:
    run = build_hostile_run(text)
    _, summary, records, script = read_texts(run)
    assert "<" not in summary + records
    assert unescape(summary) == build_summary(run, ORIGIN)
    assert json.dumps(json.loads(records)).count(json.dumps(text)[1:-1]) >= 15
    assert script == read_texts(build_run())[3]


def test_characters_that_html_excludes_and_numbers_that_json_excludes_are_replaced() -> None:
    rollout = {"reward": math.inf, "tokens": math.nan}
    run = build_run(name="a\x00b\ud800c\x9b", sentence="\x00\ud800", rollouts=[rollout])
    page = build_report(run, ORIGIN)
    page.encode()
    assert "<title>a\ufffdb\ufffdc\ufffd: report</title>" in page
    assert not re.search(r"[\x00\x9b]", page)
    assert read_records(run)["rollouts"]["rollouts"] == [{"reward": None, "tokens": None}]


def test_secrets_of_a_directory_are_masked(tmp_path: Path) -> None:
    config = {"job": "sum", "cluster": {"env": [{"name": "DB_PASSWORD", "value": "correct-horse"}]}}
    (tmp_path / "config.json").write_text(json.dumps(config))
    (tmp_path / "rollouts").mkdir()
    (tmp_path / "rollouts/step-1.jsonl").write_text('{"prompt": "correct-horse", "response": "x", "reward": 1}\n')
    run = read_run(tmp_path)
    assert "correct-horse" not in build_report(run, ORIGIN)
    assert read_records(run)["rollouts"]["rollouts"][0]["prompt"] == "***"
