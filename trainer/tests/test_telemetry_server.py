"""The driver's HTTP server on real sockets."""

from __future__ import annotations

import json
import os
import socket
import struct
import urllib.error
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.parser import text_string_to_metric_families

from rlt_api.spec.suite_changes import SuiteChanges
from rlt_api.spec.training_config import ProgressReport
from rlt_pod.report.driver_server import read_token
from rlt_trainer.telemetry.run_directory import RunDirectory
from rlt_trainer.telemetry.server import ProgressServer
from rlt_trainer.telemetry.spans import Span


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ProgressServer]:
    server = ProgressServer(0, run_directory=tmp_path, job="j", namespace="n")
    server.start()
    yield server
    server.close()


def get(server: ProgressServer, path: str, host: str = "127.0.0.1", accept: str = "*/*") -> tuple[str, str]:
    """Content type and body."""
    request = urllib.request.Request(f"http://{host}:{server.port}{path}", headers={"Accept": accept})
    with urllib.request.urlopen(request, timeout=10) as response:
        return response.headers["Content-Type"], response.read().decode()


def status(server: ProgressServer, path: str, headers: dict[str, str]) -> int:
    request = urllib.request.Request(f"http://127.0.0.1:{server.port}{path}", headers=headers)
    try:
        with urllib.request.urlopen(request, timeout=10) as response:
            return int(response.status)
    except urllib.error.HTTPError as error:
        return error.code


def value(server: ProgressServer, name: str) -> float:
    samples = [s for f in text_string_to_metric_families(get(server, "/metrics")[1]) for s in f.samples]
    (found,) = [s.value for s in samples if s.name == name]
    return float(found)


def report(step: int, stage: str = "training") -> ProgressReport:
    return ProgressReport(stage=stage, step=step, total_steps=9, updated="2026-01-01T00:00:00Z")


def test_progress_is_the_latest_report(server: ProgressServer) -> None:
    server.publish(report(1), {})
    server.publish(report(2), {})
    content_type, body = get(server, "/progress")
    assert content_type == "application/json"
    assert ProgressReport.model_validate_json(body) == report(2)


@pytest.mark.parametrize(
    "path",
    [
        "/progress",
        "/history",
        "/rollouts?step=1",
        "/spans?step=1",
        "/changes",
        "/logs",
        "//host/rollouts",
        "/Metrics",
        "/",
    ],
)
def test_all_but_the_metrics_needs_the_token(tmp_path: Path, path: str) -> None:
    server = ProgressServer(0, run_directory=tmp_path, token="a-token")
    server.start()
    try:
        for header in ("X-Ray-Authorization", "Authorization"):
            assert status(server, path, {header: "Bearer a-token"}) in (200, 404, 503)
            for wrong in ("", "a-token", "Bearer ", "Bearer a-toke", "Bearer a-token2", "Bearer \u00e4"):
                assert status(server, path, {header: wrong}) == 401
        assert status(server, path, {}) == 401
        assert [status(server, path, {}) for path in ("/metrics", "/metrics?name[]=a", "/healthz")] == [200] * 3
    finally:
        server.close()


def test_an_empty_token_is_rejected(tmp_path: Path) -> None:
    server = ProgressServer(0, run_directory=tmp_path, token="")
    server.start()
    try:
        assert status(server, "/progress", {"X-Ray-Authorization": "Bearer "}) == 401
    finally:
        server.close()


def test_the_token_is_read_as_ray_reads_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / ".ray/auth_token"
    file.parent.mkdir()
    file.write_text("from-file\n")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert read_token({"RAY_AUTH_MODE": "token"}) == "from-file"
    path = {"RAY_AUTH_TOKEN_PATH": str(file)}
    assert read_token({"RAY_AUTH_MODE": "token", **path}) == "from-file"
    assert read_token({"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": "given", **path}) == "given"
    assert read_token({"RAY_AUTH_MODE": "disabled", **path}) is None
    assert read_token({}) is None
    with pytest.raises(OSError, match="No such file"):
        read_token({"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": str(tmp_path / "missing")})


def test_progress_before_the_first_report_is_unavailable(server: ProgressServer) -> None:
    with pytest.raises(urllib.error.HTTPError, match="503"):
        get(server, "/progress")
    assert get(server, "/healthz")[1] == "ok\n"


def test_a_number_that_json_does_not_support_becomes_null(server: ProgressServer) -> None:
    broken = report(1).model_copy(update={"tokens_per_second": float("nan")})
    server.publish(broken, {})
    assert json.loads(get(server, "/progress")[1], parse_constant=pytest.fail)["tokensPerSecond"] is None


@pytest.mark.parametrize("accept", ["*/*", "application/openmetrics-text;version=1.0.0", "text/plain;version=0.0.4"])
def test_metrics_have_the_format_that_the_scraper_accepts(server: ProgressServer, accept: str) -> None:
    server.publish(report(1), {"critic/rewards/mean": 0.5})
    content_type, body = get(server, "/metrics", accept=accept)
    assert ("openmetrics" in content_type) == ("openmetrics" in accept)
    assert 'rlt_trainer_reward_mean{job="j",namespace="n"} 0.5' in body


def test_tokens_are_counted_once_per_step(server: ProgressServer) -> None:
    server.publish(report(4, "preparing"), {})  # resumed after step 4
    for step in (5, 5, 6):
        server.publish(report(step), {"perf/total_num_tokens": 100.0})
    server.publish(report(6, "exporting"), {"perf/total_num_tokens": 100.0})
    assert value(server, "rlt_trainer_tokens_total") == 200
    assert value(server, "rlt_trainer_steps_total") == 2


def test_the_timestamp_changes_with_progress_and_not_with_repeated_reports(server: ProgressServer) -> None:
    started = value(server, "rlt_trainer_last_step_timestamp_seconds")
    server.publish(report(1), {"actor/entropy": 1.0})
    stepped = value(server, "rlt_trainer_last_step_timestamp_seconds")
    server.publish(report(1), {"actor/entropy": 1.0})
    assert stepped > started
    assert value(server, "rlt_trainer_last_step_timestamp_seconds") == stepped
    server.publish(report(1), {"actor/entropy": 0.5})  # a warm-up step does not change the step number
    assert value(server, "rlt_trainer_last_step_timestamp_seconds") > stepped


def test_other_paths_are_not_found(server: ProgressServer) -> None:
    with pytest.raises(urllib.error.HTTPError, match="404"):
        get(server, "/etc/passwd")


def test_the_server_listens_on_ipv4_and_ipv6(server: ProgressServer) -> None:
    if not socket.has_dualstack_ipv6():
        pytest.skip("this machine has no IPv6")
    assert get(server, "/healthz", host="[::1]") == get(server, "/healthz")


def test_broken_clients_do_not_block_other_clients(server: ProgressServer, capsys: pytest.CaptureFixture[str]) -> None:
    server.publish(report(1), {f"metric/{i}": 1.0 for i in range(20_000)})
    silent = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(20)]
    reset = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(20)]
    for client in reset:
        client.sendall(b"GET /metrics HTTP/1.1\r\n\r\n")
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        client.close()
    silent[0].sendall(b"\x16\x03\x01\x00\xff\r\n\r\n")
    server.publish(report(2), {})
    assert ProgressReport.model_validate_json(get(server, "/progress")[1]).step == 2
    for client in silent:
        client.close()
    assert capsys.readouterr().err == ""


def test_concurrent_scrapes_see_consistent_steps(server: ProgressServer) -> None:
    def scrape(_: int) -> bool:
        text = get(server, "/metrics")[1]
        seen = {s.name: s.value for f in text_string_to_metric_families(text) for s in f.samples}
        return seen["rlt_trainer_step"] == seen["rlt_trainer_epoch"]

    server.publish(report(0), {"training/epoch": 0})
    with ThreadPoolExecutor(4) as pool:
        scrapes = pool.map(scrape, range(60))
        for step in range(1, 2000):
            server.publish(report(step), {"training/epoch": step})
        assert all(scrapes)


def test_a_port_in_use_is_reported(server: ProgressServer) -> None:
    with pytest.raises(ValueError, match=rf"Port {server.port} .*is not available.*Stop the process"):
        ProgressServer(server.port, run_directory=".")


def test_closing_releases_the_port() -> None:
    first = ProgressServer(0, run_directory=".")
    first.start()
    port = first.port
    first.close()
    second = ProgressServer(port, run_directory=".")
    assert second.port == port
    second.close()


def get_error(server: ProgressServer, path: str) -> tuple[int, str]:
    with pytest.raises(urllib.error.HTTPError) as caught:
        get(server, path)
    return caught.value.code, caught.value.read().decode()


def test_the_history_has_the_last_values_of_repeated_steps(server: ProgressServer, tmp_path: Path) -> None:
    run = RunDirectory(tmp_path)
    for step, reward in ((1, 0.1), (2, 0.2), (3, 0.3), (2, 0.25)):  # resumed from the checkpoint of step 1
        run.append_metrics(step, {"critic/rewards/mean": reward})
    content_type, body = get(server, "/history")
    rows = [json.loads(line) for line in body.splitlines()]
    assert content_type == "application/x-ndjson"
    assert [(row["step"], row["critic/rewards/mean"]) for row in rows] == [(1, 0.1), (2, 0.25)]
    assert [json.loads(line)["step"] for line in get(server, "/history?since=1")[1].splitlines()] == [2]


def test_a_line_that_is_being_written_is_not_served(server: ProgressServer, tmp_path: Path) -> None:
    (tmp_path / "metrics.jsonl").write_text('{"step": 1}\n{"step": 2, "actor/kl')
    assert get(server, "/history")[1] == '{"step": 1}\n'


def test_a_run_without_a_step_has_an_empty_history(server: ProgressServer) -> None:
    assert get(server, "/history")[1] == ""
    assert get_error(server, "/rollouts") == (404, "the run has no responses yet\n")


def test_rollouts_of_a_step_and_the_latest(server: ProgressServer, tmp_path: Path) -> None:
    run = RunDirectory(tmp_path)
    for step in (9, 10):
        run.write_rollouts(step, [{"response": f"of {step}"}])
    assert json.loads(get(server, "/rollouts?step=9")[1]) == {"response": "of 9"}
    assert json.loads(get(server, "/rollouts")[1]) == {"response": "of 10"}
    assert get_error(server, "/rollouts?step=11") == (404, "step 11 has no responses; the latest are of step 10\n")


def test_rollouts_that_are_too_large_are_not_read(server: ProgressServer, tmp_path: Path) -> None:
    run = RunDirectory(tmp_path)
    run.write_rollouts(1, [{}])
    os.truncate(tmp_path / "rollouts/step-1.jsonl", 2 * 2**30)  # the file is sparse
    code, reason = get_error(server, "/rollouts")
    assert code == 413
    assert reason.endswith("step-1.jsonl has 2048 MiB, more than the 64 MiB that are served: read the file\n")


def test_a_repeated_step_has_the_spans_of_its_last_time(server: ProgressServer, tmp_path: Path) -> None:
    assert get(server, "/spans?step=1")[1] == ""
    run = RunDirectory(tmp_path)
    for time, step in enumerate([1, 2, 11, 1]):  # resumed from the start
        run.append_spans([Span(rank, "gen", float(time), time + 1.0, step) for rank in (-1, 0)])
    with (tmp_path / "spans.jsonl").open("a") as file:
        file.write('{"rank": 1, "step": 1')
    rows = [json.loads(line) for line in get(server, "/spans?step=1")[1].splitlines()]
    assert [(row["rank"], row["start"]) for row in rows] == [(-1, 3.0), (0, 3.0)]
    assert get_error(server, "/spans") == (400, "step is missing\n")


def test_the_changes_of_each_suite_are_a_line(server: ProgressServer, tmp_path: Path) -> None:
    assert get(server, "/changes") == ("application/x-ndjson", "")
    for suite in ("math", "aime"):
        find = partial(SuiteChanges, suite=suite, step=2, prompts=9, won=1, lost=2)
        RunDirectory(tmp_path).write_changes(suite, find)
    rows = [json.loads(line) for line in get(server, "/changes")[1].splitlines()]
    assert [(row["suite"], row["won"], row["lost"]) for row in rows] == [("aime", 1, 2), ("math", 1, 2)]


def test_logs_are_served_of_all_attempts_and_no_other_files(server: ProgressServer, tmp_path: Path) -> None:
    assert get(server, "/logs")[1] == ""
    for number in (1, 2):
        folder = tmp_path / "attempts" / str(number)
        folder.mkdir(parents=True)
        (folder / "program.log").write_text(f"of {number}\n")
    (tmp_path / "secret").write_text("a secret")
    (tmp_path / "attempts" / "1" / "link").symlink_to(tmp_path / "secret")
    listed = [json.loads(line) for line in get(server, "/logs")[1].splitlines()]
    assert [(each["path"], each["size"]) for each in listed] == [("1/program.log", 5), ("2/program.log", 5)]
    assert get(server, "/logs?file=1/program.log") == ("text/plain", "of 1\n")
    for path in ("1/link", "../secret", "1/../../secret", "/etc/passwd", "1"):
        assert get_error(server, f"/logs?file={path}")[0] == 404


@pytest.mark.parametrize(
    "path", ["/history?since=-1", "/spans?step=x", "/rollouts?step=../../config", "/history?since=1e3"]
)
def test_an_invalid_step_is_rejected(server: ProgressServer, path: str) -> None:
    code, message = get_error(server, path)
    assert (code, "is not a step number" in message) == (400, True)


def test_the_time_of_the_latest_checkpoint_changes_with_its_step(server: ProgressServer) -> None:
    started = value(server, "rlt_trainer_latest_checkpoint_timestamp_seconds")
    server.publish(report(1), {})
    assert value(server, "rlt_trainer_latest_checkpoint_timestamp_seconds") == started
    saved = report(2).model_copy(update={"latest_checkpoint_step": 2})
    server.publish(saved, {})
    first = value(server, "rlt_trainer_latest_checkpoint_timestamp_seconds")
    assert first > started
    server.publish(saved.model_copy(update={"step": 3}), {})
    assert value(server, "rlt_trainer_latest_checkpoint_timestamp_seconds") == first


def test_requests_of_the_engines_are_counted_at_the_scrape(server: ProgressServer) -> None:
    server.publish(report(1), {})
    assert "rlt_trainer_engine_requests" not in get(server, "/metrics")[1]
    server.count_requests = lambda: {"running": 7, "waiting": 0}
    assert 'rlt_trainer_engine_requests{job="j",namespace="n",state="running"} 7.0' in get(server, "/metrics")[1]


def test_metrics_of_the_engines_are_read_at_the_scrape(server: ProgressServer) -> None:
    usage = GaugeMetricFamily("vllm:kv_cache_usage_perc", "Usage of the KV cache", 0.25)
    server.read_engine_metrics = lambda: {1: [usage]}
    assert 'vllm:kv_cache_usage_perc{engine="1",job="j",namespace="n"} 0.25' in get(server, "/metrics")[1]
