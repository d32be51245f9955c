"""The list of the page in a real browser.

- it is filtered, sorted and searched, and live;
- what is missing is explained;
- the form of a cluster admits a visitor with a token, and a lost API server and an expired token are shown.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from cluster_page import serve_cluster
from playwright.sync_api import Browser, expect
from run_page import HOSTILE, STEPS, assert_accessible, open_page, serve, write_step
from simulated_api_server import SimulatedApiServer

from rlt_trainer.telemetry.run_directory import RunDirectory

pytestmark = pytest.mark.slow


def test_the_list_is_filtered_sorted_and_searched(browser: Browser, run: RunDirectory) -> None:
    folder = run.path.parent
    page, errors = open_page(browser)
    names = page.locator(".runs tbody a")
    with serve(folder) as url:
        page.goto(url)
        expect(names).to_have_text(["sum"])
        small = RunDirectory(folder / "small-1")
        config = {"job": HOSTILE, "version": 1, "model": {"path": "Qwen/Qwen3-8B"}, "training": {"totalSteps": 1}}
        (small.path / "config.json").write_text(json.dumps(config))
        small.append_metrics(1, {"critic/rewards/mean": 0.9})
        damaged = folder / "damaged-1"
        damaged.mkdir()
        (damaged / "config.json").write_text('{"job": "dam')
        expect(names).to_have_count(3)  # the list is live
        for column, first, last in (("Reward", HOSTILE, "damaged-1"), ("Progress", HOSTILE, "damaged-1")):
            page.get_by_role("button", name=column).click()
            expect(page.get_by_role("columnheader", name=column)).to_have_attribute("aria-sort", "descending")
            expect(names).to_have_text([first, "sum", last])
        page.get_by_role("button", name="Name").click()
        expect(names).to_have_text([HOSTILE, "damaged-1", "sum"])
        page.get_by_role("button", name="Name").press("Enter")
        expect(names).to_have_text(["sum", "damaged-1", HOSTILE])
        page.get_by_label("Phase").select_option("Complete")
        expect(names).to_have_text([HOSTILE])
        expect(page.get_by_text("1 of 3 runs")).to_be_visible()
        assert page.locator("main img").count() == 0
        page.get_by_label("Phase").select_option("All phases")
        page.get_by_label("Search").fill("QWEN3")
        expect(names).to_have_text([HOSTILE])
        page.get_by_label("Search").fill("none of them")
        expect(page.get_by_text("No run matches the filter.")).to_be_visible()
        assert_accessible(page)
        write_step(run, STEPS + 1)
        page.get_by_label("Search").fill("sum")
        expect(page.get_by_role("row", name="Compare sum")).to_contain_text("13 / 16")  # live, with the filter
        expect(names).to_have_text(["sum"])
        second = RunDirectory(folder / "second-of-sum")
        (second.path / "config.json").write_text(json.dumps({**config, "job": "sum"}))
        expect(page.get_by_text("second-of-sum")).to_be_visible()  # runs of one name have their IDs
        page.goto("about:blank")
    assert errors == []
    page.context.close()


def test_a_page_without_runs_and_a_run_that_is_missing_are_explained(browser: Browser, tmp_path: Path) -> None:
    page, errors = open_page(browser)
    (tmp_path / "runs").mkdir()
    with serve(tmp_path / "runs") as url:
        page.goto(url)
        expect(page.get_by_text("There are no runs here yet.")).to_be_visible()
        assert_accessible(page)
        page.goto(f"{url.partition('?')[0]}#/run/gone")
        expect(page.get_by_role("alert")).to_contain_text("has no run gone")
        assert_accessible(page)
        errors.clear()  # the status 404
        run = RunDirectory(tmp_path / "runs" / "gone")
        (run.path / "config.json").write_text('{"job": "sum", "version": 99}')
        write_step(run, 1)
        with (run.path / "metrics.jsonl").open("a") as file:
            file.write('{"step": 2, "critic/rew')
        expect(page.locator(".notes")).to_contain_text("config.json has version 99")
        expect(page.locator(".notes")).to_contain_text("The last line of metrics.jsonl is incomplete")
        expect(page.locator(".tile").filter(has_text="Reward")).to_contain_text("0.0625")
        page.goto("about:blank")
    assert errors == []
    page.context.close()


def test_a_visitor_of_a_cluster_logs_in(browser: Browser, tmp_path: Path) -> None:
    simulated = SimulatedApiServer(users={"alice.token": "alice"})
    simulated.rights = {("alice", "list", "a", ""), ("alice", "get", "a", "")}
    simulated.add_job("a", "sum")
    failed = {"number": 1, "startTime": "2026-01-01T00:00:00Z", "completionTime": "2026-01-01T00:01:00Z"}
    simulated.jobs[0]["status"] |= {
        "startTime": "2026-01-01T00:00:00Z",
        "attempts": [{**failed, "reason": "OutOfMemory", "step": 7}],
        "activeSince": "2026-01-01T00:02:00Z",
        "gpus": 16,
        "progress": {"step": 3, "totalSteps": 9, "eta": "5m"},
    }
    page, errors = open_page(browser)
    with serve_cluster(simulated, tmp_path) as (url, _):
        page.goto(url)
        for token in ("wrong", "alice.token"):
            assert_accessible(page)
            errors.clear()  # the status 401 of the form
            page.get_by_label("Token").fill(token)
            page.get_by_role("button", name="Log in").click()
        expect(page.get_by_role("row", name="a/sum")).to_contain_text("3 / 9 5m left")
        expect(page.get_by_role("row", name="a/sum").get_by_role("cell", name="16", exact=True)).to_be_visible()
        (cookie,) = page.context.cookies()
        assert (cookie["httpOnly"], cookie["sameSite"]) == (True, "Strict")
        assert page.url.startswith(f"{url.rstrip('/')}{cookie['path']}")
        page.get_by_role("link", name="a/sum", exact=True).click()
        expect(page.get_by_role("heading", name="a/sum", exact=True)).to_be_visible()
        expect(page.locator(".notes")).to_contain_text("pods is forbidden")
        simulated.full_rights = {"alice.token"}
        page.get_by_role("link", name="Time").click()
        expect(page.locator(".gantt rect")).to_have_count(1)
        page.get_by_role("link", name="State").click()
        expect(page.locator(".timeline li")).to_have_text(
            ["Attempt 1OutOfMemory, step 7, 1 min 0 s", re.compile("Attempt 2Running, step 3, for ")]
        )
        assert_accessible(page)
        page.get_by_role("link", name="Logs").click()
        page.get_by_role("combobox").select_option("Pod sum-pod")
        expect(page.locator(".log")).to_have_text("a line of the pod\n")
        live = page.locator("#live")
        simulated.is_down = True
        expect(live).to_have_text("unavailable", timeout=20_000)
        expect(page.locator(".log")).to_have_text("a line of the pod\n")  # the page keeps what it has
        simulated.is_down = False
        expect(live).to_have_text("Live", timeout=20_000)
        simulated.users.clear()
        expect(live).to_have_text("Your token is no longer valid.", timeout=20_000)
        errors.clear()  # the status 401 or 503 of a reload
        page.goto("about:blank")
    assert errors == []
    page.context.close()
