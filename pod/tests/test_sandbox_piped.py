"""Programs of a sandbox that run on between requests."""

from __future__ import annotations

import base64
import socket
from collections.abc import Iterator
from typing import Any

import pytest
from sandbox_servers import call, claim, run, start_server

from rlt_pod.sandbox.protocol import MAX_READ


@pytest.fixture
def connection() -> Iterator[socket.socket]:
    with start_server() as (_, port), claim(port)[0] as connection:
        yield connection


def start(connection: socket.socket, program: str) -> str:
    given = {"name": "0", "command": ["python3", "-u", "-c", program], "variables": {"TASK": "7"}}
    return str(call(connection, start=given)["problem"])


def talk(connection: socket.socket, content: bytes = b"", seconds: float = 60.0) -> tuple[bytes, int, str]:
    given = {"name": "0", "content": base64.b64encode(content).decode(), "seconds": seconds}
    answer: dict[str, Any] = call(connection, talk=given)
    return base64.b64decode(answer["output"]), answer["left"], answer["problem"]


def test_a_program_runs_on_beside_others(connection: socket.socket) -> None:
    program = "import os, sys\nfor line in sys.stdin: print(os.environ['TASK'], line, end='')"
    assert start(connection, program) == ""
    assert talk(connection, b"a\n") == (b"7 a\n", 0, "")
    assert run(connection, "print(1)")["output"] == "1\n"
    assert talk(connection, b"b\n") == (b"7 b\n", 0, "")
    assert talk(connection, seconds=0.0) == (b"", 0, "")


def test_the_output_of_a_talk_is_bounded_and_the_program_waits(connection: socket.socket) -> None:
    """It writes ten times as much as an answer has, and is still there after the first one."""
    start(connection, f"import os; os.write(1, b'x' * {10 * MAX_READ})")
    sizes = []
    while not (found := talk(connection))[2]:
        sizes.append(len(found[0]))
    assert max(sizes) <= MAX_READ
    assert sum(sizes) == 10 * MAX_READ


def test_what_a_program_does_not_read_is_left(connection: socket.socket) -> None:
    start(connection, "import time; time.sleep(60)")
    content = b"x" * 2**20
    output, left, problem = talk(connection, content, seconds=0.1)
    assert (output, problem) == (b"", "")
    assert 0 < left < len(content)


def test_the_end_has_the_last_errors(connection: socket.socket) -> None:
    start(connection, "import sys; print(1); sys.exit('x' * 10_000 + ' no such module')")
    assert talk(connection)[0] == b"1\n"
    output, _, problem = talk(connection)
    assert (output, problem.startswith("it has ended. x"), len(problem) < 600) == (b"", True, True)
    assert problem.endswith("no such module")


def test_a_second_program_of_a_name_replaces_the_first(connection: socket.socket) -> None:
    start(connection, "import os, time; print(os.getpid()); time.sleep(60)")
    first = int(talk(connection)[0])
    start(connection, "import time; time.sleep(60)")
    program = f"import os; print(os.path.exists('/proc/{first}'))"
    assert run(connection, program)["output"] == "False\n"


def test_a_program_that_does_not_start_is_a_problem(connection: socket.socket) -> None:
    given = {"name": "0", "command": ["no-such-program"], "variables": {}}
    assert "the program did not start" in call(connection, start=given)["problem"]
    assert talk(connection) == (b"", 0, "it does not run")
