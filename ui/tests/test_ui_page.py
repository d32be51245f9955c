"""The page in a real browser, over a run directory that the trainer's own writers have made.

- each part shows the numbers of the run, in light and dark, at 360 and 1440 pixels, without an error on the console;
- hostile text is text;
- the tokens of responses are colored, logs are followed, and runs are compared;
- a run of 1,000 steps takes about the time of a short one;
- a new step appears, and a lost connection is shown and recovers;
- the form of a cluster admits a visitor with a token;
- axe-core finds no serious violation.
"""

from __future__ import annotations

import json
import re
import shutil
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import uvicorn
from axe_playwright_python.sync_playwright import Axe
from cluster_page import serve_cluster
from playwright.sync_api import Browser, Page, expect, sync_playwright
from simulated_api_server import SimulatedApiServer

from browser import obtain_chromium
from rlt_trainer.telemetry.run_directory import RunDirectory
from rlt_trainer.telemetry.spans import Span
from rlt_ui.directories import RunFolder
from rlt_ui.server import build_app

pytestmark = pytest.mark.slow
TOKEN = "a-token-of-the-test"
PAGE = "/a-path-of-the-test/"
HOSTILE = "<img src=x onerror=\"document.title='hostile'\">"
STEPS = 12
LONG = 1000
RUN = "#/run/sum-1"


@contextmanager
def serve(folder: Path, port: int = 0) -> Iterator[str]:
    """Serve the page. Yields the URL with the token."""
    with socket.create_server(("127.0.0.1", port)) as listener:
        app = build_app(RunFolder(folder), TOKEN, PAGE, lambda: uvicorn_server.should_exit)
        uvicorn_server = uvicorn.Server(uvicorn.Config(app, log_level="error", lifespan="off"))
        thread = threading.Thread(target=uvicorn_server.run, kwargs={"sockets": [listener]})
        thread.start()
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}{PAGE}?token={TOKEN}"
        finally:
            uvicorn_server.should_exit = True
            thread.join()


def write_step(run: RunDirectory, step: int) -> None:
    metrics = {
        **{"critic/rewards/mean": step / 16, "critic/rewards/min": 0.0, "critic/rewards/max": 1.0},
        **{"actor/entropy": 2.0 / step, "actor/kl_loss": 0.01 * step, "response_length/mean": 40.0 + step},
        **{"timing_s/gen": 1.5, "timing_s/update_actor": 0.5, "timing_s/step": 2.0, "perf/total_num_tokens": 512.0},
    }
    run.append_metrics(step, metrics)
    rollouts = [
        {
            "index": row // 2,
            "prompt": f"{row}+{step}=",
            "response": HOSTILE if row == 3 else str(row),
            "reward": row / 4,
            "by_token": {"texts": [HOSTILE, "b"], "advantages": [-0.5, 1.0], "mismatches": [0.25, None]},
            **({"advantage": 4.5 - row, "tokens": 7, "finish_reason": "length"} if row else {}),
            **({"images": ["images/1f.png"]} if row == 3 else {}),
        }
        for row in range(4)
    ]
    run.write_rollouts(step, rollouts)
    start = 2.0 * step
    phases = [(-1, "step", 0.0, 2.0), (-1, "gen", 0.0, 1.5), (0, "update_actor", 1.5, 2.0)]
    run.append_spans([Span(rank, phase, start + begin, start + end, step) for rank, phase, begin, end in phases])


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


def write_runs(run: RunDirectory) -> None:
    """Write eight runs next to another: one of 1,000 steps with its metrics in a cycle, and copies."""
    for number in range(2, 9):
        copy = run.path.parent / f"sum-{number}"
        shutil.copytree(run.path, copy)
        (copy / "config.json").write_text(json.dumps({"job": f"copy-{number}", "version": 1}))
    lines = [json.loads(line) for line in (run.path / "metrics.jsonl").read_text().splitlines()]
    long = run.path.parent / "long"
    long.mkdir()
    (long / "config.json").write_text(json.dumps({"job": "long", "version": 1}))
    steps = [{**lines[step % STEPS], "step": step} for step in range(1, LONG + 1)]
    (long / "metrics.jsonl").write_text("".join(json.dumps(step) + "\n" for step in steps))


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Debian's Chromium without a window."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=obtain_chromium(), args=["--no-sandbox", "--disable-gpu"])
        yield browser
        browser.close()


def open_page(browser: Browser, *, width: int = 1440, dark: bool = False) -> tuple[Page, list[str]]:
    """A page, and the list that gets its errors."""
    page = browser.new_context(
        viewport={"width": width, "height": 900}, color_scheme="dark" if dark else "light"
    ).new_page()
    errors: list[str] = []
    page.on("console", lambda message: errors.append(message.text) if message.type in ("error", "warning") else None)
    page.on("pageerror", lambda error: errors.append(str(error)))
    return page, errors


@pytest.mark.parametrize(("width", "dark"), [(1440, False), (360, True)])
def test_each_part_shows_the_run_and_is_accessible(browser: Browser, run: RunDirectory, width: int, dark: bool) -> None:
    page, errors = open_page(browser, width=width, dark=dark)
    with serve(run.path.parent) as url:
        page.goto(url)
        expect(page.get_by_role("link", name="sum", exact=True)).to_be_visible()
        assert_accessible(page)
        assert "token" not in page.url
        page.get_by_role("link", name="sum", exact=True).click()
        expect(page.get_by_role("heading", name="sum", exact=True)).to_be_visible()
        expect(page.locator(".tile").filter(has_text="Reward")).to_contain_text("0.75")
        expect(page.get_by_role("img", name="Entropy in nats by step")).to_be_visible()
        assert_accessible(page)
        page.get_by_role("link", name="Time").click()
        expect(page.locator(".shares").first).to_contain_text("gen 75 %")
        expect(page.locator(".gantt rect")).to_have_count(3)
        assert_accessible(page)
        page.get_by_role("link", name="Rollouts").click()
        expect(page.locator(".rollouts li")).to_have_count(4)
        expect(page.locator(".rollouts li").first).to_contain_text(HOSTILE)
        expect(page.locator(".rollouts li").first).to_contain_text("advantage +1.5")
        expect(page.locator(".rollouts li").first).to_contain_text("finish reason length")
        expect(page.locator(".rollouts li").first).to_contain_text("image images/1f.png")
        page.get_by_label("Order").select_option("highest advantage first")
        expect(page.locator(".rollouts li").first).to_contain_text("advantage +3.5")
        expect(page.locator(".rollouts li").last).to_contain_text("advantage \u2013")  # not recorded
        page.get_by_role("button", name="Compare group").first.click()
        expect(page.locator("dialog article")).to_have_count(2)
        page.get_by_label("Color tokens by").select_option("advantage")
        expect(page.locator(".token")).to_have_count(4)
        expect(page.locator(".token").first).to_have_text(HOSTILE)
        colors = page.evaluate("[...document.querySelectorAll('.token')].map((each) => each.style.background)")
        assert ["--series-2" in each for each in colors] == [True, False] * 2  # below and above 0
        assert_accessible(page)
        page.keyboard.press("Escape")
        page.get_by_role("link", name="Logs").click()
        expect(page.locator(".log")).to_contain_text(f"{HOSTILE}\nstep 1")
        with (run.path / "attempts" / "1" / "program.log").open("a") as log:
            log.write("step 2\n")
        expect(page.locator(".log")).to_contain_text("step 2")
        assert_accessible(page)
        page.get_by_role("link", name="Config").click()
        expect(page.get_by_role("cell", name="training.learningRate")).to_be_visible()
        expect(page.get_by_role("row", name="training.learningRate")).to_contain_text("not the default")
        page.get_by_label("Only fields that differ").check()
        expect(page.get_by_role("cell", name="training.totalSteps")).to_be_visible()
        expect(page.get_by_role("cell", name="version")).to_have_count(0)
        assert_accessible(page)
        with page.expect_download() as download:
            page.get_by_role("link", name="Export as HTML").click()
        report = download.value.path().read_text()
        assert "12 of 16 steps" in report
        assert HOSTILE not in report
        assert "&lt;img src=x" in report
        assert "hostile" not in page.title()
        assert page.locator("main img").count() == 0
        assert page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth") == 0
        page.goto("about:blank")  # ends the events before the server
    assert errors == []
    page.context.close()


OPEN = """async (run) => {
  const start = performance.now();
  async function wait(isDone) {
    while (!isDone()) {
      if (performance.now() - start > 30000) throw new Error(`${run}: ${document.querySelector("main").textContent}`);
      await new Promise(requestAnimationFrame);
    }
    return performance.now() - start;
  }
  location.hash = `#/run/${run}`;
  const duration = await wait(() => document.querySelectorAll(".chart canvas").length >= 4);
  location.hash = "#/";
  await wait(() => document.querySelector(".runs"));
  return duration;
}"""
"""Opens a run and returns to the list. The result is the time until the plots are drawn, in milliseconds."""


def test_long_runs_are_drawn_as_fast_as_short_ones_and_compared(browser: Browser, run: RunDirectory) -> None:
    write_runs(run)
    page, errors = open_page(browser)
    with serve(run.path.parent) as url:
        page.goto(url)
        expect(page.get_by_role("link", name="long", exact=True)).to_be_visible()
        times = {name: min(page.evaluate(OPEN, name) for _ in range(3)) for name in ("sum-1", "long")}
        print("milliseconds", times)
        assert times["long"] < 5 * times["sum-1"]
        for name in ("sum", "long", *(f"copy-{number}" for number in range(2, 8))):
            page.get_by_label(f"Compare {name}", exact=True).check()
        expect(page.get_by_label("Compare copy-8")).to_be_disabled()
        page.get_by_role("link", name="Compare 8 runs").click()
        expect(page.get_by_role("row", name="training.learningRate")).to_contain_text("0.0003")
        for name in ("sum", "long", *(f"copy-{number}" for number in range(2, 8))):
            expect(page.locator(".u-legend").first).to_contain_text(name)
        assert_accessible(page)
        page.goto("about:blank")
    assert errors == []
    page.context.close()


def test_a_new_step_appears_and_a_lost_connection_recovers(browser: Browser, run: RunDirectory) -> None:
    page, _ = open_page(browser)
    reward, live = page.locator(".tile").filter(has_text="Reward"), page.locator("#live")
    with serve(run.path.parent) as url:
        page.goto(url + RUN)
        expect(live).to_have_text("Live")
        expect(reward).to_contain_text("0.75")
        write_step(run, STEPS + 1)
        expect(reward).to_contain_text("0.8125")
    expect(live).to_contain_text("Connection lost")
    expect(reward).to_contain_text("0.8125")
    write_step(run, STEPS + 2)
    with serve(run.path.parent, int(url.split(":")[2].split("/")[0])):
        expect(live).to_have_text("Live", timeout=20_000)
        expect(reward).to_contain_text("0.875")
        page.goto("about:blank")
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
        page.goto("about:blank")
    assert errors == []
    page.context.close()


def assert_accessible(page: Page) -> None:
    """axe-core finds no violation of impact serious or critical."""
    found = Axe().run(page).response["violations"]
    serious = [each for each in found if each["impact"] in ("serious", "critical")]
    assert [(each["id"], [node["html"] for node in each["nodes"]]) for each in serious] == []
