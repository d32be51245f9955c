"""The browser and the run for the page's tests."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, sync_playwright
from run_page import HOSTILE, STEPS, write_step

from rlt_e2e.browser import obtain_chromium
from rlt_trainer.telemetry.run_directory import RunDirectory


@pytest.fixture
def run(tmp_path: Path) -> RunDirectory:
    """A run of STEPS steps in a folder of runs."""
    run = RunDirectory(tmp_path / "runs" / "sum-1")
    config = {"job": "sum", "version": 1, "training": {"totalSteps": 16, "learningRate": 0.0003}}
    (run.path / "config.json").write_text(json.dumps(config))
    for step in range(1, STEPS + 1):
        write_step(run, step)
    log = run.path / "attempts" / "1" / "program.log"
    log.parent.mkdir(parents=True)
    log.write_text(f"{HOSTILE}\nstep 1\n")
    return run


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Debian's Chromium without a window."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=obtain_chromium(), args=["--no-sandbox", "--disable-gpu"])
        yield browser
        browser.close()
