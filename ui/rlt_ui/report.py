"""A run as one HTML file: the page of a run with its script, its style sheet and the records inside. It loads nothing.

A content security policy with the hashes of the script and the style sheet forbids all others, and all requests. What
the run recorded is in the file as JSON, and the script makes text of it. Without scripts, the file shows the summary.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
import math
import re
from functools import cache
from pathlib import Path
from string import Template
from typing import Any

from rlt.report.markdown import build_summary
from rlt.report.summary import Origin
from rlt.runs.run import Run
from rlt_ui.description import describe_run
from rlt_ui.source import Json, build_columns

STATIC = Path(__file__).parent / "static"
DIGITS = 6
"""Significant digits of the metrics, which halve the size of the file."""
STYLES = ("vendor/uPlot.min.css", "style.css")
IMPORT = re.compile(r'^import (.+) from "\./([\w./]+)";$', re.MULTILINE)
EXPORT = re.compile(r"^export ((?:async )?(?:function|const|class) (\w+))", re.MULTILINE)
DEFAULT_EXPORT = re.compile(r"^export \{ (\w+) as default \};$", re.MULTILINE)


def build_report(run: Run, origin: Origin) -> str:
    """The report of a run as HTML."""
    script = build_script("report.js")
    style = "".join(map(_read, STYLES))
    return Template(_read("report.html")).substitute(
        policy=f"default-src 'none'; script-src '{compute_hash(script)}'; style-src '{compute_hash(style)}'; "
        "base-uri 'none'; form-action 'none'",
        title=html.escape("".join(each if each.isprintable() else "\ufffd" for each in run.name)),
        origin=html.escape(f"Written by rlt {origin.version} at {origin.time}."),
        summary=html.escape(build_summary(run, origin)),
        # The only character that can end the element, or begin a comment in it.
        records=json.dumps(_drop_infinite(build_records(run))).replace("<", "\\u003c"),
        script=script,
        style=style,
    )


def build_records(run: Run) -> Json:
    """What the page gets from a server, by the name of the request."""
    rollouts = list(run.rollouts)
    columns = build_columns(run.steps, ())
    metrics = {
        name: [each and float(f"{each:.{DIGITS}g}") for each in found] for name, found in columns["metrics"].items()
    }
    counts = {"matched": len(rollouts), "recorded": len(rollouts)}
    return {
        "run": describe_run(run),
        "metrics": {**columns, "metrics": metrics},
        "rollouts": {"step": run.rollouts_step, "steps": [], "rollouts": rollouts, **counts, "notes": []},
    }


@cache
def build_script(entry: str) -> str:
    """A module and those that it imports as one script: each is a function that returns its exports."""
    scripts: dict[str, str] = {}
    _add_module(entry, scripts)
    return "\n".join(["const modules = {};", *scripts.values()])


def compute_hash(text: str) -> str:
    """The source of a content security policy that permits an element with this text."""
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"


def _add_module(name: str, scripts: dict[str, str]) -> None:
    """Add a module after those that it imports. Names are relative to STATIC, as in the imports of its modules."""
    source = _read(name)
    for _, imported in IMPORT.findall(source):
        if imported not in scripts:
            _add_module(imported, scripts)
    default = [f"default: {exported}" for exported in DEFAULT_EXPORT.findall(source)]
    exports = default or [exported for _, exported in EXPORT.findall(source)]
    source = DEFAULT_EXPORT.sub("", EXPORT.sub(r"\1", IMPORT.sub(_build_import, source)))
    scripts[name] = f'modules["{name}"] = (() => {{\n{source}\nreturn {{ {", ".join(exports)} }};\n}})();'


def _build_import(match: re.Match[str]) -> str:
    names = match[1] if match[1].startswith("{") else f"{{ default: {match[1]} }}"
    return f'const {names} = modules["{match[2]}"];'


def _read(name: str) -> str:
    return (STATIC / name).read_text(encoding="utf-8")


def _drop_infinite(value: Any) -> Any:
    """The value with None for numbers that JSON cannot represent."""
    if isinstance(value, dict):
        return {key: _drop_infinite(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_drop_infinite(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
