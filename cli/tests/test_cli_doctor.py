"""The output of `rlt doctor`: a table, Markdown that GitHub renders as plain text, and an unreachable API server."""

from __future__ import annotations

from pathlib import Path

import click
import yaml
from click.testing import CliRunner

from rlt_cli.main import cli
from rlt_cli.pages.doctor import format_markdown, format_page
from rlt_core.doctor.line import Line, State

LINES = (
    Line("kuberay", State.OK, "CRD of KubeRay 1.6"),
    Line("image pull", State.WARNING, "pull of a|b <img> by @team failed", "kubectl get pods"),
    Line("driver", State.ERROR, "too old", "update it"),
    Line("quota", State.UNKNOWN, "not readable", "docs/doctor.md"),
)


def test_the_table_has_a_mark_for_each_state_and_the_fix() -> None:
    titles, *rows, blank, summary = click.unstyle(format_page(LINES)).splitlines()
    assert titles.split() == ["TOPIC", "FOUND"]
    assert [row[0] for row in rows] == ["✓", "!", "✗", "?"]
    assert rows[2].endswith("too old Fix: update it")
    assert (blank, summary) == ("", "1 ok, 1 warning, 1 error, 1 unknown")


def test_the_summary_counts_each_state() -> None:
    assert format_page([*LINES, LINES[1]]).splitlines()[-1] == "1 ok, 2 warnings, 1 error, 1 unknown"


def test_the_table_fits_the_terminal() -> None:
    assert all(len(line) <= 40 for line in click.unstyle(format_page(LINES, 40)).splitlines())


def test_markdown_contains_the_clusters_text_as_plain_text() -> None:
    header, rule, *rows = format_markdown(LINES).splitlines()
    assert header.count("|") == rule.count("|") == 5
    assert all(row.replace("\\|", "").count("|") == 5 for row in rows[:4])
    assert "\\<img\\>" in rows[1]
    assert "@team" not in rows[1]


def test_an_unreachable_api_server_is_one_sentence(tmp_path: Path) -> None:
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "a",
        "clusters": [{"name": "a", "cluster": {"server": "http://127.0.0.1:1"}}],
        "users": [{"name": "a", "user": {}}],
        "contexts": [{"name": "a", "context": {"cluster": "a", "user": "a"}}],
    }
    (tmp_path / "config").write_text(yaml.safe_dump(config))
    done = CliRunner().invoke(cli, ["doctor", "--kubeconfig", str(tmp_path / "config")])
    assert done.exit_code == 1
    assert done.stdout == ""
    assert done.stderr.startswith("error: The API server does not respond: ")
