"""The part Evaluations of the page and of a report in a real browser.

- none, one and five suites: scores, intervals, gains, gates with their bound and verdict, in light and dark, at 360 and
  1440 pixels, and axe-core finds no serious violation;
- samples that changed are listed with their responses, and hostile text is text;
- a new evaluation appears.
"""

from __future__ import annotations

import json
from functools import partial
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect
from run_page import HOSTILE, assert_accessible, open_page, serve

from rlt_api.spec.suite_changes import ChangedSample, SuiteChanges
from rlt_trainer.evaluation.bootstrap import Interval
from rlt_trainer.evaluation.gate import Gate
from rlt_trainer.telemetry.run_directory import RunDirectory

pytestmark = pytest.mark.slow
RUN = "#/run/sum-1/evaluations"
NAMES = ["math", "aime", "algebra", "code", HOSTILE]


def write_suites(run: RunDirectory, count: int) -> None:
    """Write the first suites of NAMES: evaluations every four steps, a gate for every other one, and changes."""
    suites: list[dict[str, Any]] = [{"name": name, "every": 4, "beforeTrain": True} for name in NAMES[:count]]
    for suite in suites[::2]:
        suite["promoteIf"] = {"gainAbove": 0, "minimum": 0.6}
    if len(suites) > 3:
        suites[3]["promoteIf"] = {"minimum": 0.9, "metric": "best"}
    config = {"job": "sum", "version": 1, "training": {"totalSteps": 16}, "evaluation": suites}
    (run.path / "config.json").write_text(json.dumps(config))
    lines = [json.loads(line) for line in (run.path / "metrics.jsonl").read_text().splitlines()]
    (run.path / "metrics.jsonl").unlink()
    for line in [{"step": 0}, *lines]:
        metrics = dict(line)
        step = metrics.pop("step")
        run.append_metrics(step, metrics | (measure(step, count) if step % 4 == 0 else {}))
    gates = {name: gate for name, gate in zip(NAMES[:count], build_gates(), strict=False) if gate}
    if gates:
        run.write_gates(12, gates)
    for name in NAMES[:count]:
        run.write_changes(name, partial(build_changes, name))


def measure(step: int, count: int) -> dict[str, float]:
    """The metrics of the suites after a step."""
    metrics: dict[str, float] = {}
    for number, name in enumerate(NAMES[:count]):
        score = 0.3 + step / 32 - number / 20
        metrics |= {f"val/{name}/reward/{key}": score + change for key, change in LIMITS.items()}
        if step:
            metrics |= {f"val/{name}/reward/gain{end}": step / 32 + change for end, change in GAINS.items()}
    return metrics


LIMITS = {"mean": 0.0, "low": -0.05, "high": 0.05}
GAINS = {"": 0.0, "_low": -0.03, "_high": 0.03}


def build_gates() -> list[Gate | None]:
    gain = Interval(0.375, 0.345, 0.405)
    evidence = "mean 0.6750, minimum 0.6, gain +0.3750 (95% interval +0.3450 to +0.4050), gainAbove 0"
    failed = Gate(False, "best@4 0.7000, minimum 0.9", "best@4", 0.7)
    return [Gate(True, evidence, "mean", 0.675, gain), None, Gate(None, "no such file"), failed, None]


def build_changes(suite: str) -> SuiteChanges:
    texts = {"prompt": f"1+1= {HOSTILE}", "answer": "2", "response": HOSTILE}
    won = [ChangedSample(index=row, base_score=0, score=1, base_response="3", **texts) for row in range(2)]
    lost = ChangedSample(index=7, base_score=1, score=0.5, prompt="2+2=", answer="4")
    return SuiteChanges(suite=suite, step=12, prompts=90, won=30, lost=1, samples=[*won, lost])


def list_verdicts(page: Page) -> list[str]:
    return page.get_by_role("region", name="Suites").locator("tbody tr td:last-child").all_inner_texts()


@pytest.mark.parametrize(("width", "dark"), [(1440, False), (360, True)])
@pytest.mark.parametrize("count", [0, 1, 5])
def test_the_suites_are_shown(browser: Browser, run: RunDirectory, count: int, width: int, dark: bool) -> None:
    write_suites(run, count)
    page, errors = open_page(browser, width=width, dark=dark)
    with serve(run.path.parent) as url:
        page.goto(url + RUN)
        expect(page.get_by_role("link", name="Evaluations")).to_have_attribute("aria-current", "page")
        if not count:
            expect(page.get_by_text("The run has no suites: spec.evaluation is empty.")).to_be_visible()
            expect(page.get_by_role("heading", name="Samples that changed")).to_be_hidden()
        else:
            assert_suites(page, count)
        assert_accessible(page)
        page.goto("about:blank")
    assert errors == []
    page.context.close()


def assert_suites(page: Page, count: int) -> None:
    rows = page.get_by_role("region", name="Suites").locator("tbody tr")
    expect(rows).to_have_count(count)
    cells = ["math", "12", "0.675", "0.625 to 0.725", "+0.375", "+0.345 to +0.405"]
    assert rows.first.locator("td").all_inner_texts()[:6] == cells
    expect(rows.first).to_contain_text("gain of mean, lower limit > 0; mean ≥ 0.6")
    verdicts = list_verdicts(page)
    assert verdicts[0].startswith("✓ passed\nmean 0.6750")
    if count > 1:
        assert verdicts[1] == "\u2013"
        assert verdicts[2] == "? unknown\nno such file"
        assert verdicts[3].startswith("✗ failed\nbest@4 0.7000")
        assert verdicts[4] == "not decided"
        expect(rows.nth(3)).to_contain_text("best@N ≥ 0.9")
        expect(rows.last).to_contain_text(HOSTILE)
    expect(page.locator(".chart:visible")).to_have_count(2 * count)
    expect(page.get_by_role("img", name="math: gain in gain by step")).to_be_visible()
    legend = page.locator("figure").filter(has=page.get_by_role("heading", name="math: score")).locator(".u-label")
    assert legend.all_inner_texts() == ["step", "95 % high", "95 % low", "mean score", "bound"]
    expect(page.get_by_text("30 won")).to_be_visible()
    expect(page.get_by_text("The 2 largest changes of 30 are recorded.")).to_be_visible()
    expect(page.get_by_role("combobox").first.locator("option")).to_have_count(count)


def test_samples_that_changed_have_their_responses(browser: Browser, run: RunDirectory) -> None:
    write_suites(run, 1)
    page, errors = open_page(browser)
    with serve(run.path.parent) as url:
        page.goto(url + RUN)
        samples = page.get_by_role("region", name="Samples that changed").locator("tbody tr")
        expect(samples).to_have_count(2)
        expect(samples.first).to_contain_text(HOSTILE)
        page.get_by_role("button", name="Compare responses to prompt 1").click()
        expect(page.locator("dialog article")).to_have_text(
            ["Before the first step: mean score 03", f"Step 12: mean score 1{HOSTILE}"]
        )
        assert_accessible(page)
        page.keyboard.press("Escape")
        page.get_by_label("Samples that were").select_option("lost")
        expect(samples).to_have_count(1)
        expect(samples.first).to_contain_text("\u22120.5")
        page.get_by_role("button", name="Compare responses to prompt 7").click()
        expect(page.locator("dialog")).to_contain_text("The file of this evaluation has no texts of this prompt.")
        page.keyboard.press("Escape")
        expect(page.locator("main img")).to_have_count(0)
        assert "hostile" not in page.title()
        run.append_metrics(16, measure(16, 1))
        expect(page.get_by_role("region", name="Suites").locator("tbody tr")).to_contain_text("0.8")  # live
        with page.expect_download() as download:
            page.goto(f"{url.partition('?')[0]}#/run/sum-1")
            page.get_by_role("link", name="Export as HTML").click()
        download.value.save_as(run.path / "report.html")
        page.goto((run.path / "report.html").as_uri())
        expect(page.get_by_role("region", name="Suites")).to_contain_text("✓ passed")
        expect(page.get_by_role("img", name="math: score in mean score by step")).to_be_visible()
        assert_accessible(page)
    assert [each for each in errors if not each.startswith("file:")] == []
    page.context.close()
