"""The policy's API in a sandbox: HTTP requests of its programs, with the test as driver."""

from __future__ import annotations

import base64
import json
import socket
from collections.abc import Iterator
from typing import Any

import pytest
from sandbox_servers import build_run, call, claim, start_server

from rlt_pod.sandbox.protocol import MAX_FRAME, MAX_REQUESTS, encode
from rlt_pod.sandbox.serve import read_frame

MAX_BODY = 1000


@pytest.fixture
def connection() -> Iterator[socket.socket]:
    with start_server() as (_, port), claim(port)[0] as claimed:
        yield claimed


def begin(connection: socket.socket, program: str) -> None:
    """Start a program that sends requests by `ask(body, path, **headers)` and by `PORT`."""
    port = call(connection, openApi={"maxBody": MAX_BODY})["port"]
    setup = f"""
import http.client, json, socket
PORT = {port}
def send(body, path="/v1/a?b=c", method="POST", **headers):
    connection = http.client.HTTPConnection("127.0.0.1", PORT)
    connection.request(method, path, body, {{name.replace("_", "-"): value for name, value in headers.items()}})
    return connection
def ask(*arguments, **options):
    response = send(*arguments, **options).getresponse()
    print(response.status, response.getheader("Content-Type"), response.read().decode())
"""
    connection.sendall(encode(build_run(setup + program)))


def read(connection: socket.socket) -> dict[str, Any]:
    message = read_frame(connection, MAX_FRAME)
    assert message is not None
    return message


def respond(connection: socket.socket, number: int, text: str) -> None:
    body = base64.b64encode(text.encode()).decode()
    connection.sendall(encode({"response": number, "status": 200, "contentType": "text/plain", "body": body}))


def read_output(connection: socket.socket) -> list[str]:
    answer = read(connection)["answer"]
    assert answer["problem"] == ""
    return str(answer["output"]).splitlines()


def test_a_request_has_its_response(connection: socket.socket) -> None:
    chunks = "iter([b'{', b'}'])"
    begin(connection, f"ask({chunks}, x_api_key='k', Authorization='Bearer b'); ask(None, '/v1/models', 'GET')")
    assert read(connection) == {
        "request": 0,
        "method": "POST",
        "path": "/v1/a",
        "keys": ["k", "Bearer b"],
        "body": base64.b64encode(b"{}").decode(),
    }
    respond(connection, 0, "ö")
    second = read(connection)
    assert (second["request"], second["method"], second["body"]) == (1, "GET", "")
    respond(connection, 1, "models")
    assert read_output(connection) == ["200 text/plain ö", "200 text/plain models"]


@pytest.mark.parametrize(
    ("program", "status", "message"),
    [
        (f"ask('x' * {MAX_BODY + 1})", "413", f"The body has more than {MAX_BODY} bytes."),
        ("ask('x' * 10**7)", "413", f"The body has more than {MAX_BODY} bytes."),
        (f"ask(iter([b'x' * {MAX_BODY + 1}]))", "413", f"The body has more than {MAX_BODY} bytes."),
        ("ask('zz\\r\\n', Transfer_Encoding='chunked')", "400", "A chunk is invalid"),
        ("ask('-2\\r\\n-2\\r\\n', Transfer_Encoding='chunked')", "400", "A chunk is invalid: its size is -2"),
        ("ask('', Content_Length='-1')", "400", "Content-Length '-1' is not a length in bytes."),
        ("ask('', Content_Length='1' * 99)", "400", "is not a length in bytes."),
    ],
)
def test_a_request_beyond_the_limits_does_not_reach_the_driver(
    connection: socket.socket, program: str, status: str, message: str
) -> None:
    begin(connection, program)
    (line,) = read_output(connection)
    found, kind, body = line.split(" ", 2)
    assert (found, kind) == (status, "application/json")
    assert message in json.loads(body)["error"]["message"]


def test_a_client_that_disconnects_withdraws_its_request(connection: socket.socket) -> None:
    begin(connection, "send('1').close(); ask('2')")
    messages = [read(connection) for _ in range(3)]  # the second request may come before the first one is withdrawn
    numbers = {base64.b64decode(sent["body"]).decode(): sent["request"] for sent in messages if "request" in sent}
    assert [sent["cancel"] for sent in messages if "cancel" in sent] == [numbers["1"]]
    respond(connection, numbers["1"], "late")
    respond(connection, numbers["2"], "second")
    assert read_output(connection) == ["200 text/plain second"]


def test_requests_beyond_the_maximum_wait_in_the_sandbox(connection: socket.socket) -> None:
    total = MAX_REQUESTS + 3
    begin(connection, f"for sent in [send(str(i)) for i in range({total})]: print(sent.getresponse().read().decode())")
    numbers = [read(connection)["request"] for _ in range(MAX_REQUESTS)]
    connection.settimeout(0.5)
    with pytest.raises(TimeoutError):
        connection.recv(1)
    connection.settimeout(60)
    for number in numbers:
        respond(connection, number, "first")
    for number in [read(connection)["request"] for _ in range(total - MAX_REQUESTS)]:
        respond(connection, number, "later")
    assert sorted(read_output(connection)) == ["first"] * MAX_REQUESTS + ["later"] * (total - MAX_REQUESTS)


def test_silent_and_invalid_clients_do_not_stop_others(connection: socket.socket) -> None:
    program = """
silent = [socket.create_connection(("127.0.0.1", PORT)) for _ in range(30)]
for garbage in (b"\\0" * 10, b"\\r\\n\\r\\n", b"x" * 10**6, b"POST / HTTP/1.1\\r\\nContent-Length: 9\\r\\n\\r\\nshort"):
    with socket.create_connection(("127.0.0.1", PORT)) as client:
        try:
            client.sendall(garbage)
        except OSError:
            pass
ask("b")
"""
    begin(connection, program)
    message = read(connection)
    assert base64.b64decode(message["body"]) == b"b"
    respond(connection, message["request"], "answered")
    assert read_output(connection) == ["200 text/plain answered"]
