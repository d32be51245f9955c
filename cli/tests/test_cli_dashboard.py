"""Which requests the local server of rlt dashboard rejects. e2e/tests/test_cli.py opens the dashboard of a job."""

from __future__ import annotations

import pytest

from rlt_cli.dashboard_server import find_rejection

NAVIGATION = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"}


@pytest.mark.parametrize(
    ("host", "path", "headers"),
    [
        ("127.0.0.1:8265", "/", {}),
        ("localhost:8265", "/api/jobs/", {"Sec-Fetch-Site": "same-origin", "Sec-Fetch-Mode": "cors"}),
        ("localhost", "/static/a..b.js", {"Sec-Fetch-Site": "none"}),
        ("127.0.0.1:8265", "/", NAVIGATION),
    ],
)
def test_requests_of_the_dashboard_are_forwarded(host: str, path: str, headers: dict[str, str]) -> None:
    assert find_rejection(host, path, headers) is None


@pytest.mark.parametrize(
    ("host", "path", "headers", "text"),
    [
        ("attacker.example:8265", "/", {}, "not this machine"),
        ("", "/", {}, "not this machine"),
        ("127.0.0.1:8265", "/api/jobs/", {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors"}, "other sites"),
        ("localhost:8265", "/api/jobs/", {"Sec-Fetch-Site": "same-site", "Sec-Fetch-Mode": "cors"}, "other sites"),
        ("localhost:8265", "/../../../../secrets", {}, "leaves the dashboard"),
        ("localhost:8265", "/%2e%2e/secrets", {}, "leaves the dashboard"),
    ],
)
def test_other_requests_are_rejected(host: str, path: str, headers: dict[str, str], text: str) -> None:
    assert text in str(find_rejection(host, path, headers))
