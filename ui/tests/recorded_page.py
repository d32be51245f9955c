"""The page of `rlt ui` over a run of the trainer, in a real browser."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from pathlib import Path
from statistics import fmean

from playwright.sync_api import Page, expect, sync_playwright

from rlt_e2e.browser import obtain_chromium

REWARD = "Reward, mean of 10 steps"


def assert_page_shows(run: Path) -> None:
    """Each part of the page has the numbers that the run has recorded, and the browser reports no error."""
    command = [sys.executable, "-m", "rlt_cli.main", "ui", str(run)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server, sync_playwright() as playwright:
        assert server.stdout
        browser = playwright.chromium.launch(executable_path=obtain_chromium(), args=["--no-sandbox", "--disable-gpu"])
        page = browser.new_page()
        errors = list[str]()
        page.on("console", lambda message: errors.append(message.text) if message.type == "error" else None)
        page.on("pageerror", lambda error: errors.append(str(error)))
        try:
            page.goto(server.stdout.readline().split()[0])
            _assert_parts(page, run)
            assert errors == []
        finally:
            browser.close()
            server.send_signal(signal.SIGINT)


def _assert_parts(page: Page, run: Path) -> None:
    metrics = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    spans = [json.loads(line) for line in (run / "spans.jsonl").read_text().splitlines()]
    last = metrics[-1]
    step = int(last["step"])
    rollouts = [json.loads(line) for line in (run / f"rollouts/step-{step}.jsonl").read_text().splitlines()]
    expect(page.locator(".head")).to_contain_text(f"{step} / {step}")
    tiles = {REWARD: "critic/rewards/mean", "Entropy": "actor/entropy", "Step time": "timing_s/step"}
    for title, name in tiles.items():
        tile = page.locator(".tile").filter(has=page.get_by_text(title, exact=True)).locator(".value")
        shown = fmean(each[name] for each in metrics[-10:] if name in each) if title == REWARD else last[name]
        assert float(tile.inner_text().split()[0]) == float(f"{shown:.4g}"), title
    expect(page.get_by_role("img", name="Gradient norm")).to_be_visible()
    page.get_by_role("link", name="Time").click()
    expect(page.locator(".gantt rect")).to_have_count(sum(span["step"] == step for span in spans))
    page.get_by_role("link", name="Rollouts").click()
    page.get_by_label("One response for each prompt").uncheck()
    expect(page.locator(".rollouts li")).to_have_count(len(rollouts))
    best = max(each["reward"] for each in rollouts)
    assert float(page.locator(".rollouts .number").first.inner_text()) == float(f"{best:.4g}")
    page.get_by_role("button", name="Compare group").first.click()
    page.get_by_label("Color tokens by").select_option("mismatch")
    assert page.locator(".token").count() > 0
    page.keyboard.press("Escape")
    page.get_by_role("link", name="Config").click()
    config = json.loads((run / "config.json").read_text())
    row = page.get_by_role("row", name=re.compile(r"^training\.trainBatchSize "))
    expect(row).to_contain_text(str(config["training"]["trainBatchSize"]))
