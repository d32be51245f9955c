"""The accelerator hours of the page: pure, and in a real browser over a simulated cluster.

- the bills equal the ones of `rlt usage`, in a window of whole days;
- rows, names and notes are bounded, and hostile names are text;
- the page adds up by group and window, in light and dark, at 360 and 1440 pixels, and axe-core finds no serious
  violation.
"""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from cluster_page import serve_cluster
from playwright.sync_api import Browser, expect
from run_page import HOSTILE, assert_accessible, open_page
from simulated_api_server import SimulatedApiServer

from rlt.usage import add_bills, select_jobs
from rlt_core.names import CREATOR_ANNOTATION
from rlt_ui.source import UsageQuery
from rlt_ui.usage import MAX_NAME, MAX_NOTES, MAX_ROWS, build_usage

NOW = datetime(2026, 1, 8, 12, tzinfo=UTC)


def job(name: str, namespace: str = "a", creator: str = "jane", **by: int) -> dict[str, Any]:
    usage = {"acceleratorSeconds": sum(by.values()), "by": by, "days": [{"day": "2026-01-02", "by": by}]}
    metadata = {"namespace": namespace, "name": name, "uid": name, "annotations": {CREATOR_ANNOTATION: creator}}
    return {"metadata": metadata, "status": {"usage": usage, "model": "Qwen3"}}


def test_the_bills_are_those_of_the_command_line() -> None:
    jobs = [job("first", idle=900, update=2700), job("second", "b", lost=3600), {"metadata": {}, "status": {}}]
    found = build_usage(jobs, UsageQuery("namespace"), NOW, [])
    assert found["bills"] == [bill.to_json() for bill in add_bills(select_jobs(jobs, None), "namespace", {})]
    assert (found["total"]["jobs"], found["total"]["acceleratorSeconds"], found["since"]) == (2, 7200, None)
    assert {"idle", "lost"} <= set(found["parts"])


@pytest.mark.parametrize(
    ("days", "since", "groups"), [(6, "2026-01-02", ["jane"]), (5, "2026-01-03", []), (0, "2026-01-08", [])]
)
def test_a_window_has_whole_days(days: int, since: str, groups: list[str]) -> None:
    found = build_usage([job("first", update=60)], UsageQuery("user", days), NOW, [])
    assert (found["since"], [bill["group"] for bill in found["bills"]]) == (since, groups)


def test_rows_names_and_notes_are_bounded() -> None:
    jobs = [job(f"job-{number}", creator=f"{number}{'x' * 9999}", update=1) for number in range(MAX_ROWS + 5)]
    found = build_usage(jobs, UsageQuery("user"), NOW, ["without deleted jobs"] * 99)
    assert len(found["bills"]) == MAX_ROWS
    assert found["total"]["acceleratorSeconds"] == MAX_ROWS + 5
    assert max(len(bill["group"]) for bill in found["bills"]) == MAX_NAME
    assert found["notes"][MAX_NOTES - 1 :] == ["Without deleted jobs", "Only the 200 largest of 205 groups are shown."]


@pytest.mark.slow
@pytest.mark.parametrize(("width", "dark"), [(1440, False), (360, True)])
def test_the_page_adds_up_jobs(browser: Browser, tmp_path: Path, width: int, dark: bool) -> None:
    simulated = SimulatedApiServer(users={"alice.token": "alice"}, full_rights={"alice.token"})
    simulated.rights = {("alice", verb, namespace, "") for verb in ("list", "get") for namespace in ("a", "b")}
    for namespace, name in (("a", "first"), ("b", "second")):
        simulated.add_job(namespace, name)
    simulated.jobs[1]["status"]["model"] = HOSTILE
    simulated.use("a", "first", generate=3600 * 6, update=3600 * 2, idle=3600 * 2)
    simulated.use("b", "second", update=3600, lost=3600)
    simulated.use("a", "gone", starting=3600 * 8)
    page, errors = open_page(browser, width=width, dark=dark)
    rows = page.get_by_role("region", name="Accelerator hours").locator("tbody tr")
    with serve_cluster(simulated, tmp_path) as (url, _):
        page.goto(url)
        errors.clear()  # the status 401 of the form
        page.get_by_label("Token").fill("alice.token")
        page.get_by_role("button", name="Log in").click()
        page.get_by_role("link", name="Accelerator hours").click()
        expect(page.get_by_text("No job has held accelerators in this time.")).to_be_visible()
        page.get_by_label("Window").select_option("all time")
        expect(page.get_by_role("heading", name="20 accelerator hours of 3 jobs")).to_be_visible()
        assert [row.locator("td").all_inner_texts()[:5] for row in rows.all()] == [
            ["a", "2", "18", "11.1 %", "0 %"],
            ["b", "1", "2", "0 %", "50 %"],
            ["total", "3", "20", "10 %", "5 %"],
        ]
        expect(page.get_by_role("img", name="update 50 %, lost 50 %")).to_be_visible()
        expect(page.locator(".shares")).to_contain_text("starting 40 %")
        assert_accessible(page)
        page.get_by_label("Add up by").select_option("model")
        expect(rows.filter(has_text=HOSTILE)).to_have_count(1)
        assert page.locator("main img").count() == 0
        assert_accessible(page)
        page.goto("about:blank")
    assert errors == []
    page.context.close()
