"""The page of a cluster: who is admitted, and what each person sees.

- without a valid token every path answers 401, and nothing else;
- a person sees the jobs that the API server permits, and a job without a right looks like a missing one;
- a login limits its cookie to a random path;
- a revoked token or right ends after the time of the cache;
- the server reads pods with the token of the person, never with its own.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest
from simulated_api_server import SimulatedApiServer, serve, write_kubeconfig

from rlt_core.kubernetes import reviews
from rlt_core.kubernetes.client import connect
from rlt_ui import personal_jobs, server
from rlt_ui.__main__ import build_app
from rlt_ui.access import COOKIE, HEADERS
from rlt_ui.login import UNAVAILABLE

ALICE = "alice.token-1"
BOB = "bob.token-2"
STRANGER = "stranger.token-3"
URL = "http://127.0.0.1:8000"
PATHS = ("/", "/api/runs", "/api/events", "/static/app.js", "/s/abc/", "/s/abc/api/runs", "/login", "/nothing")


@pytest.fixture
def api_server() -> SimulatedApiServer:
    """Alice can list and get the jobs of a, and Bob can get b/second."""
    simulated = SimulatedApiServer(users={ALICE: "alice", BOB: "bob", STRANGER: "stranger"})
    simulated.rights = {("alice", "list", "a", ""), ("alice", "get", "a", ""), ("bob", "get", "b", "second")}
    for namespace, name in (("a", "first"), ("b", "second"), ("b", "third")):
        simulated.add_job(namespace, name)
    return simulated


@pytest.fixture
async def client(
    api_server: SimulatedApiServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[httpx.AsyncClient]:
    """A client of the page, without a token."""
    with serve(api_server) as url:
        write_kubeconfig(tmp_path / "kubeconfig", url)
        monkeypatch.setenv("KUBECONFIG", str(tmp_path / "kubeconfig"))
        api = await connect("a test")
        async with httpx.AsyncClient(transport=httpx.ASGITransport(build_app(api, [], "")), base_url=URL) as client:
            yield client
        await api.close()


def bearer(token: str) -> dict[str, str]:
    return {"authorization": f"Bearer {token}"}


async def list_ids(client: httpx.AsyncClient, token: str) -> list[str]:
    response = await client.get("/api/runs", headers=bearer(token))
    assert response.status_code == 200, response.text
    return [run["id"] for run in response.json()["runs"]]


@pytest.mark.parametrize("method", ["GET", "HEAD", "POST", "DELETE", "OPTIONS"])
@pytest.mark.parametrize(
    "headers",
    [
        {},
        bearer("invalid"),
        bearer(""),
        bearer("two words"),
        {"authorization": f"Basic {ALICE}"},
        {"authorization": f"Basic {ALICE}", "cookie": f"{COOKIE}={ALICE}"},
        {"cookie": f"{COOKIE}=invalid"},
        {"cookie": f"other={ALICE}"},
        {"x-remote-user": "alice", "impersonate-user": "alice"},
    ],
)
async def test_without_a_valid_token_every_path_answers_401_and_nothing_else(
    client: httpx.AsyncClient, method: str, headers: dict[str, str]
) -> None:
    for path in PATHS:
        response = await client.request(method, path, headers=headers)
        assert response.status_code == 401, path
        assert response.headers["www-authenticate"] == "Bearer"
        assert "set-cookie" not in response.headers
        assert response.text in ("", "A bearer token of the cluster is required: it is missing, invalid or expired.")


async def test_an_invalid_token_does_not_reach_the_api_server(
    client: httpx.AsyncClient, api_server: SimulatedApiServer
) -> None:
    for text in ("", "two words", "ü", "a" * 20_000):
        headers = httpx.Headers([(b"authorization", f"Bearer {text}".encode())])
        assert (await client.get("/api/runs", headers=headers)).status_code == 401
    assert api_server.reviews["tokenreviews"] == 0


async def test_a_browser_gets_the_form(client: httpx.AsyncClient) -> None:
    response = await client.get("/s/abc/", headers={"accept": "text/html,*/*"})
    assert response.status_code == 401
    assert '<form method="post" action="/login">' in response.text
    assert "form-action 'self'" in response.headers["content-security-policy"]
    assert "script" not in response.text
    assert "Log in with a bearer token of the cluster." in response.text
    headers = {"accept": "text/html", "origin": URL}
    rejected = await client.post("/login", data={"token": "wrong"}, headers=headers)
    assert "The token is invalid or expired." in rejected.text


async def test_a_person_sees_the_jobs_of_the_namespaces_in_which_it_can_list_jobs(client: httpx.AsyncClient) -> None:
    assert await list_ids(client, ALICE) == ["a/first"]
    assert await list_ids(client, BOB) == []
    assert await list_ids(client, STRANGER) == []


@pytest.mark.parametrize("name", ["run", "metrics", "rollouts", "spans", "logs", "report"])
async def test_a_job_without_a_right_looks_like_a_missing_one(client: httpx.AsyncClient, name: str) -> None:
    async def get(token: str, run: str) -> httpx.Response:
        return await client.get(f"/api/{name}", params={"run": run, "step": "1"}, headers=bearer(token))

    for token, run in ((ALICE, "a/first"), (BOB, "b/second")):
        assert (await get(token, run)).status_code == 200
    for token, run in ((ALICE, "b/second"), (BOB, "b/third"), (STRANGER, "a/first"), (ALICE, "a/missing")):
        response = await get(token, run)
        assert response.status_code == 404
        assert response.json()["error"] == f"Job {run} does not exist, or you have no right to get it."
    for run in ("first", "/first", "a/", "a/../b/second", "a/first/x"):
        assert (await get(ALICE, run)).status_code == 404


async def test_pods_and_metrics_are_read_with_the_token_of_the_person(
    client: httpx.AsyncClient, api_server: SimulatedApiServer
) -> None:
    run: Any = (await client.get("/api/run", params={"run": "a/first"}, headers=bearer(ALICE))).json()
    assert (run["id"], run["pods"]) == ("a/first", None)
    assert run["notes"] == [f"{personal_jobs.OWN_RIGHTS} {each} is forbidden" for each in ("pods", "events")]
    assert run["commands"][0] == "rlt status first -n a"
    metrics: Any = (await client.get("/api/metrics", params={"run": "a/first"}, headers=bearer(ALICE))).json()
    assert metrics["notes"] == [f"{personal_jobs.OWN_RIGHTS} forbidden"]
    assert api_server.readers == [(f"/api/v1/namespaces/a/{each}", ALICE) for each in ("pods", "events")]


@pytest.mark.parametrize(
    ("reads_jobs", "reason"), [(True, "pods is forbidden"), (False, f"{personal_jobs.OWN_RIGHTS} forbidden")]
)
async def test_a_report_has_what_the_person_may_read_and_names_the_rest(
    client: httpx.AsyncClient, api_server: SimulatedApiServer, reads_jobs: bool, reason: str
) -> None:
    if reads_jobs:  # otherwise the token is valid for the page alone
        api_server.job_rights = {ALICE}
    for name in ("metrics", "rollouts", "spans"):
        found: Any = await client.get(f"/api/{name}", params={"run": "a/first", "step": "1"}, headers=bearer(ALICE))
        assert found.json()["notes"] == [reason]
    changes: Any = await client.get("/api/changes", params={"run": "a/first"}, headers=bearer(ALICE))
    assert changes.json() == {"suites": [], "notes": [] if reads_jobs else [reason]}  # the job has no suites
    report = await client.get("/api/report", params={"run": "a/first"}, headers=bearer(ALICE))
    assert report.status_code == 200
    assert f'"notes": ["No metrics and no rollouts: {reason}"]' in report.text
    assert '"source": "job a/first"' in report.text


async def test_a_person_with_the_rights_sees_metrics(client: httpx.AsyncClient, api_server: SimulatedApiServer) -> None:
    api_server.full_rights = {ALICE}
    run: Any = (await client.get("/api/run", params={"run": "a/first"}, headers=bearer(ALICE))).json()
    assert run["notes"] == []
    metrics: Any = (await client.get("/api/metrics", params={"run": "a/first"}, headers=bearer(ALICE))).json()
    assert metrics["metrics"] == {"critic/rewards/mean": [0.5]}
    spans: Any = (await client.get("/api/spans", params={"run": "a/first", "step": "1"}, headers=bearer(ALICE))).json()
    assert (spans["spans"], spans["notes"]) == ([{"rank": -1, "phase": "gen", "start": 1.0, "end": 2.0}], [])
    changes: Any = (await client.get("/api/changes", params={"run": "a/first"}, headers=bearer(ALICE))).json()
    assert ([each["suite"] for each in changes["suites"]], changes["notes"]) == (["math"], [])
    logs: Any = (await client.get("/api/logs", params={"run": "a/first"}, headers=bearer(ALICE))).json()
    assert [each["id"] for each in logs["logs"]][:2] == ["file/1/program.log", "pod/first-pod"]
    report = await client.get("/api/report", params={"run": "a/first"}, headers=bearer(ALICE))
    assert report.headers["content-disposition"].endswith("''a.first-report.html")
    missing = await client.get("/api/report", params={"run": "b/second"}, headers=bearer(ALICE))
    assert missing.status_code == 404
    assert {token for _, token in api_server.readers} == {ALICE}
    assert any(path.endswith("/proxy/history") for path, _ in api_server.readers)


async def read_usage(client: httpx.AsyncClient, token: str) -> tuple[dict[str, int], list[str]]:
    """The accelerator seconds of each namespace, and notes."""
    response = await client.get("/api/usage", headers=bearer(token))
    assert response.status_code == 200, response.text
    found: Any = response.json()
    return {bill["group"]: bill["acceleratorSeconds"] for bill in found["bills"]}, found["notes"]


@pytest.fixture
def used(api_server: SimulatedApiServer) -> SimulatedApiServer:
    """The jobs of the API server have used accelerators, and two deleted ones."""
    for namespace, name, seconds in (("a", "first", 1), ("b", "second", 10), ("a", "gone", 100), ("b", "old", 1000)):
        api_server.use(namespace, name, update=seconds)
    return api_server


async def test_a_person_without_a_right_sees_no_usage_and_the_reasons(
    client: httpx.AsyncClient, used: SimulatedApiServer
) -> None:
    assert await read_usage(client, STRANGER) == ({}, [personal_jobs.NO_NAMESPACE])
    used.rights |= {("alice", "list", "b", "")}
    seconds, notes = await read_usage(client, ALICE)
    assert seconds == {"a": 1, "b": 10}
    assert [note.partition(" cannot be read")[0] for note in notes] == [
        "Without deleted jobs, whose record in namespace rlt-system"
    ] * 2
    assert ["rlt-usage-a is forbidden" in notes[0], "rlt-usage-b is forbidden" in notes[1]] == [True, True]


async def test_a_person_sees_the_usage_of_its_namespaces_and_of_the_records_that_it_can_read(
    client: httpx.AsyncClient, used: SimulatedApiServer
) -> None:
    used.record_rights = {(ALICE, "rlt-usage-a")}
    assert await read_usage(client, ALICE) == ({"a": 101}, [])
    used.full_rights = {ALICE}  # it can list all records
    assert await read_usage(client, ALICE) == ({"b": 1000, "a": 101}, [])


async def test_a_log_is_read_with_the_token_of_the_person_and_ends_with_its_right(
    client: httpx.AsyncClient, api_server: SimulatedApiServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    api_server.full_rights = {ALICE}
    monkeypatch.setattr(server, "LOG_POLL_S", 0)
    monkeypatch.setattr(reviews, "CACHE_S", 0.0)

    async def read(token: str, run: str, log: str) -> str:
        ends = iter([False, True])
        monkeypatch.setattr(server, "stream_changes", partial(end_after, ends))
        return (await client.get("/api/log", params={"run": run, "log": log}, headers=bearer(token))).text

    stream_changes = server.stream_changes

    def end_after(ends: Iterator[bool], name: str, read: Any, interval: float, _is_ending: object) -> Any:
        return stream_changes(name, read, interval, lambda: next(ends))

    assert '"a line of the pod\\n"' in await read(ALICE, "a/first", "pod/first-pod")
    assert {token for _, token in api_server.readers} == {ALICE}
    assert "has no pod other" in await read(ALICE, "a/first", "pod/other")
    for token, run in ((ALICE, "b/second"), (STRANGER, "a/first")):
        assert "does not exist, or you have no right" in await read(token, run, "pod/first-pod")


async def test_a_login_limits_its_cookie_to_a_random_path(client: httpx.AsyncClient) -> None:
    response = await client.post("/login", data={"token": ALICE}, headers={"origin": URL})
    assert response.status_code == 303
    page = response.headers["location"]
    assert re.fullmatch(r"/s/[\w-]{20,}/", page)
    attributes = response.headers["set-cookie"].split("; ")
    assert {"HttpOnly", "SameSite=strict", f"Path={page}"} <= set(attributes)
    assert "Secure" not in attributes
    assert (await client.get(page)).status_code == 200
    assert (await client.get(f"{page}static/app.js")).status_code == 200
    assert [run["id"] for run in (await client.get(f"{page}api/runs")).json()["runs"]] == ["a/first"]
    assert (await client.get("/api/runs")).status_code == 401
    assert "cookie" not in client.build_request("GET", "http://127.0.0.1:9000/s/other/").headers
    again = await client.post("/login", data={"token": ALICE}, headers={"origin": URL})
    assert again.headers["location"] != page


async def test_the_cookie_of_an_https_page_is_secure(client: httpx.AsyncClient) -> None:
    headers = {"origin": "https://rlt.example.com", "host": "rlt.example.com"}
    response = await client.post("/login", data={"token": ALICE}, headers=headers)
    assert "Secure" in response.headers["set-cookie"].split("; ")


@pytest.mark.parametrize(
    ("token", "origin"),
    [
        (ALICE, "http://attacker.example"),
        (ALICE, "null"),
        (ALICE, ""),
        ("invalid", URL),
        ("", URL),
        ("a" * 5000, URL),
        ("a" * 70_000, URL),
    ],
)
async def test_a_login_of_another_site_or_with_an_invalid_token_is_rejected(
    client: httpx.AsyncClient, token: str, origin: str
) -> None:
    response = await client.post("/login", data={"token": token}, headers={"origin": origin})
    assert response.status_code == 401
    assert "set-cookie" not in response.headers


async def test_the_page_is_read_only_and_not_for_other_sites(client: httpx.AsyncClient) -> None:
    for method in ("POST", "PUT", "DELETE"):
        assert (await client.request(method, "/api/runs", headers=bearer(ALICE))).status_code == 403
    cross = {"sec-fetch-site": "cross-site", "sec-fetch-mode": "cors"}
    assert (await client.get("/api/runs", headers=bearer(ALICE) | cross)).status_code == 403


async def test_every_response_has_the_headers(client: httpx.AsyncClient) -> None:
    for path in ("/", "/api/runs", "/static/app.js", "/nothing"):
        response = await client.get(path, headers=bearer(ALICE))
        assert HEADERS.items() <= {key: response.headers.get(key) for key in HEADERS}.items()


async def test_results_are_kept_for_a_time_and_revoked_ones_end_after_it(
    client: httpx.AsyncClient, api_server: SimulatedApiServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert reviews.CACHE_S <= 10
    for _ in range(3):
        assert await list_ids(client, ALICE) == ["a/first"]
    assert api_server.reviews == {"tokenreviews": 1, "subjectaccessreviews": 2}
    api_server.rights.clear()
    assert await list_ids(client, ALICE) == ["a/first"]
    monkeypatch.setattr(reviews, "CACHE_S", 0.0)
    assert await list_ids(client, ALICE) == []
    del api_server.users[ALICE]
    assert (await client.get("/api/runs", headers=bearer(ALICE))).status_code == 401


async def test_nothing_is_shown_while_the_api_server_cannot_check(
    client: httpx.AsyncClient, api_server: SimulatedApiServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert await list_ids(client, ALICE) == ["a/first"]
    monkeypatch.setattr(reviews, "CACHE_S", 0.0)
    api_server.is_down = True
    response = await client.get("/api/runs", headers=bearer(ALICE))
    assert response.status_code == 503
    assert response.text == UNAVAILABLE  # without the error of the connection


@pytest.mark.parametrize(
    ("audiences", "is_admitted"), [(["rlt-ui"], True), (["api"], False), ([], False), (None, False)]
)
def test_a_token_needs_the_audience_of_the_page(audiences: list[str] | None, is_admitted: bool) -> None:
    status = {"authenticated": True, "user": {"username": "alice"}, "audiences": audiences}
    assert (reviews.find_person(status, "rlt-ui") is not None) == is_admitted
    assert reviews.find_person(status, "") == reviews.Person("alice")


@pytest.mark.parametrize("status", [{}, {"authenticated": False, "user": {"username": "a"}}, {"authenticated": True}])
def test_a_review_without_a_user_is_rejected(status: dict[str, Any]) -> None:
    assert reviews.find_person(status, "") is None
