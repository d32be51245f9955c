"""The server of the page over run directories.

- a request needs the token, a host name of this machine and a page of this server, and cannot write;
- browsers send the cookie with the token to the random path of the page alone;
- an ID of a run is only compared: paths do not leave the folder;
- hostile text, lines that are cut off and records of another version are data, and what is missing is named;
- rollouts are sorted, searched and paged.
"""

from __future__ import annotations

import hashlib
import json
import re
import socket
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from starlette.testclient import TestClient

from rlt.errors import NotFoundError
from rlt.report.comparison import compare_runs
from rlt.runs.run import read_run
from rlt_ui import server
from rlt_ui.access import HEADERS
from rlt_ui.directories import RunFolder
from rlt_ui.logs import MAX_LOG_BYTES, read_file
from rlt_ui.report import STATIC
from rlt_ui.server import build_app, stream_changes, stream_versions

TOKEN = "a-token-of-the-test"
PAGE = "/a-path-of-the-test/"
HOSTILE = "<script>alert(1)</script>"
CHANGES = {"suite": "math", "step": 20, "prompts": 9, "won": 1, "lost": 0}
URL = "http://127.0.0.1:8000"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with one run."""
    run = tmp_path / "runs" / "sum-1"
    (run / "rollouts").mkdir(parents=True)
    config = {"job": "sum", "version": 1, "training": {"totalSteps": 4}, "algorithm": {"advEstimator": "grpo"}}
    (run / "config.json").write_text(json.dumps(config))
    steps = [{"step": n, "critic/rewards/mean": n / 4, "timing_s/step": 2.0, "timing_s/gen": 1.5} for n in (1, 2)]
    (run / "metrics.jsonl").write_text("".join(json.dumps(step) + "\n" for step in steps))
    rollouts = [
        {
            "index": row // 2,
            "prompt": f"{row // 2}+1=",
            "response": text,
            "reward": reward,
            "rewards": {"exact": reward},
        }
        for row, (text, reward) in enumerate([("1", 1.0), ("7", 0.0), (HOSTILE, None), ("2", 0.5)])
    ]
    for rollout, advantage in zip(rollouts, (-0.5, None, 0.25), strict=False):
        rollout |= {"advantage": advantage, "tokens": 1, "finish_reason": "length"}
    (run / "rollouts" / "step-2.jsonl").write_text("".join(json.dumps(each) + "\n" for each in rollouts))
    return tmp_path / "runs"


@pytest.fixture
def client(folder: Path) -> Iterator[TestClient]:
    """A browser that has opened the URL with the token."""
    with TestClient(build_app(RunFolder(folder), TOKEN, PAGE), base_url=URL) as client:
        assert client.get(PAGE, params={"token": TOKEN}).status_code == 200
        yield client


def get(client: TestClient, name: str, **parameters: object) -> Any:
    response = client.get(f"{PAGE}api/{name}", params={key: str(value) for key, value in parameters.items()})
    assert response.status_code == 200, response.text
    return response.json()


@pytest.mark.parametrize(
    "path",
    [
        "/",
        f"/?token={TOKEN}",
        PAGE,
        f"{PAGE}?token=other",
        f"{PAGE}api/runs",
        f"{PAGE}api/runs?token={TOKEN}",
        f"{PAGE}static/app.js",
    ],
)
def test_a_request_without_the_token_is_rejected(folder: Path, path: str) -> None:
    response = TestClient(build_app(RunFolder(folder), TOKEN, PAGE), base_url=URL).get(path)
    assert response.status_code == 403
    assert "set-cookie" not in response.headers
    assert "sum" not in response.text


@pytest.mark.parametrize(
    "headers",
    [
        {"host": "attacker.example:8000"},
        {"host": "127.0.0.1.attacker.example"},
        {"host": ""},
        {"sec-fetch-site": "cross-site", "sec-fetch-mode": "cors"},
        {"sec-fetch-site": "same-site", "sec-fetch-mode": "no-cors"},
    ],
)
def test_other_hosts_and_sites_are_rejected_with_the_token(client: TestClient, headers: dict[str, str]) -> None:
    assert client.get(f"{PAGE}api/runs").status_code == 200
    assert client.get(f"{PAGE}api/runs", headers=headers).status_code == 403


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS"])
def test_the_page_is_read_only(client: TestClient, method: str) -> None:
    assert client.request(method, f"{PAGE}api/runs").status_code == 403


def test_every_response_has_the_headers_and_the_cookie_is_for_no_script_and_no_site(folder: Path) -> None:
    client = TestClient(build_app(RunFolder(folder), TOKEN, PAGE), base_url=URL)
    opened = client.get(PAGE, params={"token": TOKEN})
    assert {"HttpOnly", "SameSite=Strict"} <= set(opened.headers["set-cookie"].split("; "))
    for response in (opened, client.get(f"{PAGE}api/runs"), client.get(f"{PAGE}static/app.js"), client.get("/nothing")):
        assert HEADERS.items() <= {key: response.headers.get(key) for key in HEADERS}.items()
    assert "unsafe-inline" not in HEADERS["Content-Security-Policy"]


def test_the_cookie_is_limited_to_the_path_of_the_page_because_ports_do_not_limit_it(client: TestClient) -> None:
    other_server = "http://127.0.0.1:9000"
    assert TOKEN in client.build_request("GET", f"{other_server}{PAGE}").headers["cookie"]
    for path in ("/", "/another-path/", PAGE.rstrip("/") + "-2/"):
        assert "cookie" not in client.build_request("GET", f"{other_server}{path}").headers


async def test_each_server_has_a_random_path(folder: Path) -> None:
    urls: list[str] = []

    def announce(url: str) -> None:
        urls.append(url)
        raise InterruptedError

    for _ in range(2):
        with pytest.raises(InterruptedError):
            await server.serve(RunFolder(folder), 0, announce)
    first, second = (urlsplit(url).path for url in urls)
    assert first != second
    assert re.fullmatch(r"/[\w-]{20,}/", first)


async def test_a_browser_can_connect_as_soon_as_the_url_is_printed(folder: Path) -> None:
    def announce(url: str) -> None:
        address = urlsplit(url)
        socket.create_connection((address.hostname, address.port), timeout=60).close()
        raise InterruptedError

    with pytest.raises(InterruptedError):
        await server.serve(RunFolder(folder), 0, announce)


@pytest.mark.parametrize("run", ["../sum-1", "sum-1/../../secret", "/etc", "sum-1/rollouts", "sum-2", "%2e%2e"])
def test_a_run_outside_of_the_list_is_not_found(client: TestClient, folder: Path, run: str) -> None:
    secret = folder.parent / "secret"
    secret.mkdir()
    (secret / "metrics.jsonl").write_text('{"step": 1}\n')
    for name in ("run", "metrics", "rollouts", "spans", "logs", "report"):
        assert client.get(f"{PAGE}api/{name}", params={"run": run, "step": "1"}).status_code == 404


def test_the_report_is_a_file_with_its_policy(client: TestClient) -> None:
    response = client.get(f"{PAGE}api/report", params={"run": "sum-1"})
    assert response.status_code == 200
    assert response.headers["content-disposition"] == "attachment; filename*=UTF-8''sum-1-report.html"
    assert """http-equiv="Content-Security-Policy" content="default-src 'none'; script-src 'sha256-""" in response.text
    assert "2 of 4 steps are recorded." in response.text


@pytest.mark.parametrize("path", ["static/../server.py", "static/%2e%2e/server.py", "static/%2e%2e%2fserver.py"])
def test_files_outside_of_static_are_not_served(client: TestClient, path: str) -> None:
    assert client.get(f"{PAGE}{path}").status_code == 404


def test_links_in_the_folder_are_not_followed(client: TestClient, folder: Path, tmp_path: Path) -> None:
    (folder / "link").symlink_to(folder / "sum-1")
    assert [run["id"] for run in get(client, "runs")["runs"]] == ["sum-1"]


def test_the_list_and_the_run_have_the_recorded_values(client: TestClient) -> None:
    (row,) = get(client, "runs")["runs"]
    assert (row["name"], row["step"], row["totalSteps"], row["rewards"]) == ("sum", 2, 4, [0.25, 0.5])
    run = get(client, "run", run="sum-1")
    assert (run["phase"], run["algorithm"], run["rolloutSteps"]) == ("Incomplete", "grpo", [2])
    metrics = get(client, "metrics", run="sum-1")
    assert (metrics["steps"], metrics["seconds"]) == ([1, 2], [2.0, 4.0])
    assert metrics["metrics"]["critic/rewards/mean"] == [0.25, 0.5]


def test_runs_are_compared_as_by_the_command(client: TestClient, folder: Path) -> None:
    other = folder / "sum,2"
    other.mkdir()
    (other / "config.json").write_text('{"job": "other", "training": {"totalSteps": 9}}')
    (other / "metrics.jsonl").write_text('{"step": 1, "critic/rewards/mean": null, "timing_s/step": 3}\n')
    found = get(client, "compare", runs="sum-1,sum%2C2")
    assert found["comparison"] == compare_runs([read_run(folder / "sum-1"), read_run(other)]).to_json()
    assert found["comparison"]["configuration"] == [{"field": "training.totalSteps", "values": ["4", "9"]}]
    assert [each["info"]["id"] for each in found["runs"]] == ["sum-1", "sum,2"]
    assert found["runs"][0]["data"] == get(client, "metrics", run="sum-1")
    assert client.get(f"{PAGE}api/compare", params={"runs": "sum-1,../sum-1"}).status_code == 404
    assert client.get(f"{PAGE}api/compare", params={"runs": ",".join(["sum-1"] * 9)}).status_code == 400


def test_a_changed_run_is_read_again(client: TestClient, folder: Path) -> None:
    assert get(client, "metrics", run="sum-1")["steps"] == [1, 2]
    with (folder / "sum-1" / "metrics.jsonl").open("a") as file:
        file.write('{"step": 3, "critic/rewards/mean": null}\n{"step": 4, "criti')
    metrics = get(client, "metrics", run="sum-1")
    assert (metrics["steps"], metrics["metrics"]["critic/rewards/mean"][-1]) == ([1, 2, 3], None)
    assert "incomplete" in " ".join(get(client, "run", run="sum-1")["notes"])


def test_rollouts_are_ordered_searched_and_paged(client: TestClient) -> None:
    def rows(**parameters: object) -> list[int]:
        return [each["row"] for each in get(client, "rollouts", run="sum-1", **parameters)["rollouts"]]

    assert rows() == [0, 1, 2, 3]
    assert rows(order="best") == [0, 3, 1, 2]
    assert rows(order="worst") == [2, 1, 3, 0]
    assert rows(order="best", offset=1, limit=2) == [3, 1]
    assert rows(order="highest-advantage") == [2, 0, 1, 3]
    assert rows(order="lowest-advantage") == [0, 2, 1, 3]  # the line without an advantage is last
    assert rows(search="SCRIPT") == [2]
    assert rows(group=1) == [2, 3]


def test_hostile_text_is_returned_as_json_and_the_difference_is_that_to_the_group(client: TestClient) -> None:
    response = client.get(f"{PAGE}api/rollouts", params={"run": "sum-1"})
    assert response.headers["content-type"] == "application/json"
    first, second, third, _ = response.json()["rollouts"]
    assert (first["difference"], second["difference"], third["difference"]) == (0.5, -0.5, None)
    assert (first["advantage"], first["tokens"], first["finish_reason"]) == (-0.5, 1, "length")
    assert third["response"] == HOSTILE


def test_run_directories_have_no_usage_and_a_wrong_query_is_explained(client: TestClient) -> None:
    assert get(client, "runs")["hasUsage"] is False
    for query, status, reason in (
        ("by=job&days=30", 404, "Run directories have no accelerator hours"),
        ("by=team", 400, "by: team: use job, namespace, user, model, accelerator."),
        ("days=31", 400, "days: 31: use at most 30"),
        ("days=-1", 400, "days: -1: pass a number of 0 or more."),
    ):
        response = client.get(f"{PAGE}api/usage?{query}")
        assert (response.status_code, reason in response.json()["error"]) == (status, True), query


def test_the_changes_of_suites_have_no_secret_and_a_damaged_file_is_named(client: TestClient, folder: Path) -> None:
    assert get(client, "changes", run="sum-1") == {"suites": [], "notes": []}
    run = folder / "sum-1"
    secret = {"job": "sum", "framework": {"env": [{"name": "WANDB_API_KEY", "value": "hidden-value"}]}}
    (run / "config.json").write_text(json.dumps(secret))
    sample = {"index": 0, "baseScore": 0, "score": 1, "prompt": HOSTILE, "response": "the key is hidden-value"}
    for suite, text in (("bad", "{"), ("math", json.dumps({**CHANGES, "samples": [sample]}))):
        (run / "evaluation" / suite).mkdir(parents=True)
        (run / "evaluation" / suite / "changes.json").write_text(text)
    found = get(client, "changes", run="sum-1")
    (shown,) = found["suites"][0]["samples"]
    assert (shown["prompt"], shown["response"]) == (HOSTILE, "the key is ***")
    assert found["notes"] == ["The changed samples of a suite cannot be read."]


async def test_gates_are_a_part_of_the_run_and_change_its_version(client: TestClient, folder: Path) -> None:
    source = RunFolder(folder)
    version = await source.get_version("sum-1")
    assert get(client, "run", run="sum-1")["gates"] == []
    (folder / "sum-1/evaluation").mkdir()
    gates = {"gates": {"math": {"passed": False, "evidence": "mean 0.2"}}}
    (folder / "sum-1/evaluation/gates.json").write_text(json.dumps(gates))
    assert await source.get_version("sum-1") != version
    assert get(client, "run", run="sum-1")["gates"] == [{"suite": "math", "passed": False, "evidence": "mean 0.2"}]


def test_the_tokens_belong_to_a_group_and_are_not_parts_of_a_secret(client: TestClient, folder: Path) -> None:
    file = folder / "sum-1" / "rollouts" / "step-2.jsonl"
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    rows[0]["by_token"] = {"texts": [HOSTILE, "b"], "advantages": [0.5, None], "mismatches": "invalid"}
    rows[1]["by_token"] = {"texts": ["hf_0123456789", "abcdefghij"], "advantages": [0.5, 0.5]}
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert not any("by_token" in each for each in get(client, "rollouts", run="sum-1")["rollouts"])
    first, second = get(client, "rollouts", run="sum-1", group=0)["rollouts"]
    assert first["by_token"] == {"texts": [HOSTILE, "b"], "advantages": [0.5, None]}
    assert "by_token" not in second


def test_a_secret_of_the_config_is_masked_in_rollouts(client: TestClient, folder: Path) -> None:
    secret = {"job": "sum", "framework": {"env": [{"name": "WANDB_API_KEY", "value": "hidden-value"}]}}
    (folder / "sum-1/config.json").write_text(json.dumps(secret))
    (folder / "sum-1/rollouts/step-2.jsonl").write_text('{"response": "it is hidden-value"}\n')
    assert get(client, "rollouts", run="sum-1")["rollouts"][0]["response"] == "it is ***"


def test_two_gibibytes_of_rollouts_take_little_memory(client: TestClient, folder: Path) -> None:
    file = folder / "sum-1" / "rollouts" / "step-2.jsonl"
    lines = file.read_bytes()
    with file.open("wb") as opened:
        opened.seek(2 * 2**30)  # the file is sparse
        opened.write(b"\n" + lines)
    tracemalloc.start()
    page = get(client, "rollouts", run="sum-1", order="best")
    report = client.get(f"{PAGE}api/report", params={"run": "sum-1"})
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert [each["row"] for each in page["rollouts"]] == [0, 3, 1, 2]
    note = "step-2.jsonl has 2048 MiB: only its last 64 MiB are read."
    assert page["notes"] == [note]
    assert note in report.text
    assert peak < 32 * 2**20


def test_the_spans_of_a_repeated_step_are_the_last_ones(client: TestClient, folder: Path) -> None:
    lines = [
        {"rank": 0, "phase": "gen", "start": float(n), "end": n + 1.0, "step": step} for n, step in enumerate([1, 2, 1])
    ]
    (folder / "sum-1" / "spans.jsonl").write_text(
        "".join(json.dumps(each) + "\n" for each in lines) + '{"rank": 0, "ph'
    )
    found = get(client, "spans", run="sum-1", step=1)
    assert [span["start"] for span in found["spans"]] == [2.0]
    assert "incomplete" in found["notes"][0]


async def test_a_log_is_listed_and_followed_without_escapes_and_secrets(
    client: TestClient, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    attempts = folder / "sum-1" / "attempts"
    for path in ("1/program.log", "2/ray/head/raylet.log", "2/program.log"):
        (attempts / path).parent.mkdir(parents=True, exist_ok=True)
        (attempts / path).write_text("a\n")
    (attempts / "2" / "link").symlink_to(folder / "sum-1" / "config.json")
    assert [each["title"] for each in get(client, "logs", run="sum-1")["logs"]] == [
        "Attempt 2: program.log",
        "Attempt 2: ray/head/raylet.log",
        "Attempt 1: program.log",
    ]
    monkeypatch.setattr(server, "PING_POLLS", 1)
    source = RunFolder(folder)
    log = attempts / "2" / "program.log"
    log.write_text(f"{HOSTILE}\n 10%\r 20%\r\n\x1b[36mHF_TOKEN=hf_0123456789abcdefghij\x1b[0m\n")
    events = stream_changes("log", lambda: source.read_log("sum-1", "file/2/program.log"), 0, lambda: False)
    (_, data) = (await anext(events)).strip().split("\n")
    assert json.loads(data.removeprefix("data: ")) == {"text": f"{HOSTILE}\n 20%\r\nHF_TOKEN=***\n", "isCut": False}
    assert (await anext(events)).startswith("event: ping\n")
    log.write_text("x\n" * MAX_LOG_BYTES)
    changed = json.loads((await anext(events)).partition("data: ")[2])
    assert (len(changed["text"]), changed["isCut"]) == (MAX_LOG_BYTES, True)


@pytest.mark.parametrize(
    "log", ["file/2/link", "file/../config.json", "file/1/../../config.json", "file//etc/passwd", ""]
)
def test_another_file_is_not_a_log(folder: Path, log: str) -> None:
    attempt = folder / "sum-1" / "attempts" / "2"
    attempt.mkdir(parents=True)
    (attempt / "link").symlink_to(folder / "sum-1" / "config.json")
    with pytest.raises(NotFoundError, match="has no log"):
        read_file(folder / "sum-1", log)


@pytest.mark.parametrize("parameters", [{"step": "-1"}, {"step": "1e3"}, {"order": "random"}, {"offset": "٣"}])
def test_an_invalid_parameter_is_named(client: TestClient, parameters: dict[str, str]) -> None:
    response = client.get(f"{PAGE}api/rollouts", params={"run": "sum-1", **parameters})
    assert response.status_code == 400
    assert response.json()["error"].startswith(next(iter(parameters)))


async def test_a_change_is_an_event(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "POLL_S", 0)
    events = stream_versions(RunFolder(folder), "sum-1")
    assert (await anext(events)).startswith("event: version\n")
    assert (await anext(events)).startswith("event: ping\n")
    with (folder / "sum-1" / "metrics.jsonl").open("a") as file:
        file.write('{"step": 3}\n')
    assert (await anext(events)).startswith("event: version\n")


async def test_a_failure_is_repeated_until_the_run_is_readable(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "POLL_S", 0)
    monkeypatch.setattr("rlt_ui.directories.CACHE_S", -1)
    events = stream_versions(RunFolder(folder), "later")
    for _ in range(3):
        assert "has no run later" in (await anext(events)).removeprefix("event: failure\ndata: ")
    (folder / "sum-1").rename(folder / "later")
    assert (await anext(events)).startswith("event: version\n")
    assert (await anext(events)).startswith("event: ping\n")


async def test_an_empty_list_has_a_version_so_that_its_first_job_is_a_change(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    versions = iter(["", "sum:1"])

    async def get_version(_run: str | None) -> str:
        return next(versions)

    source = RunFolder(folder)
    monkeypatch.setattr(server, "POLL_S", 0)
    monkeypatch.setattr(source, "get_version", get_version)
    events = stream_versions(source, None)
    assert [await anext(events), await anext(events)] == [
        'event: version\ndata: ""\n\n',
        'event: version\ndata: "sum:1"\n\n',
    ]


def test_the_page_inserts_no_markup_and_loads_nothing_from_elsewhere() -> None:
    files = [file for file in STATIC.iterdir() if file.suffix in (".js", ".html", ".css")]
    assert len(files) > 10
    for file in files:
        text = file.read_text()
        assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function", text), (
            file
        )
        assert set(re.findall(r"https?://[^\s\"'/]+", text)) <= {"http://www.w3.org"}, file


def test_the_vendored_files_have_the_hashes_of_their_table() -> None:
    vendor = STATIC / "vendor"
    table = dict(re.findall(r"\| `([\w.]+)` \| `(\w{64})` \|", (vendor / "README.md").read_text()))
    assert set(table) == {file.name for file in vendor.iterdir()} - {"README.md", "LICENSE"}
    assert table == {name: hashlib.sha256((vendor / name).read_bytes()).hexdigest() for name in table}
