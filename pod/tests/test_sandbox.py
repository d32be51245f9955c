"""The server in a sandbox pod: its claim, its programs, and its end."""

from __future__ import annotations

import errno
import socket
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest
from sandbox_servers import KEY, start_server

from rlt_pod.sandbox.protocol import MAX_FRAME, derive_key, encode, prove
from rlt_pod.sandbox.serve import read_frame

Server = tuple[subprocess.Popen[str], int]


@pytest.fixture
def server() -> Iterator[Server]:
    with start_server() as started:
        yield started


def exchange(connection: socket.socket, message: dict[str, Any]) -> Any:
    connection.sendall(encode(message))
    return read_frame(connection, MAX_FRAME)


def connect(server: Server, key: str = KEY) -> tuple[socket.socket, Any]:
    connection = socket.create_connection(("127.0.0.1", server[1]), timeout=60)
    challenge = read_frame(connection, MAX_FRAME)
    assert challenge
    return connection, exchange(connection, {"proof": prove(key, str(challenge["nonce"]))})


def run(connection: socket.socket, program: str, timeout: float = 60.0, command: str = "python3") -> Any:
    return exchange(connection, {"command": [command, "-u", "-"], "stdin": program, "timeoutSeconds": timeout})


def test_the_first_client_with_the_key_claims_the_pod(server: Server) -> None:
    other, answer = connect(server, key="wrong")
    assert answer is None
    other.close()
    with connect(server)[0] as connection:
        with pytest.raises(ConnectionRefusedError):
            connect(server)
        assert run(connection, "print(6 * 7)") == {"output": "42\n", "problem": ""}


def test_files_remain_and_processes_do_not(server: Server) -> None:
    with connect(server)[0] as connection:
        run(connection, "import subprocess; open('a', 'w').write('1'); subprocess.Popen(['sleep', '3600'])")
        program = "import os; print(open('a').read(), os.popen('ps -o args= -C sleep').read().count('3600'))"
        assert run(connection, program)["output"] == "1 0\n"


@pytest.mark.parametrize(
    ("program", "output", "problem"),
    [
        ("import time; print('begin'); time.sleep(3600)", "begin\n", "the program did not end within 2 s"),
        ("while True: print('x' * 10_000)", "xxx", "the output is too long"),
        ("import os; os.kill(os.getpid(), 9)", "", "the program was ended by SIGKILL"),
        ("import os; os.kill(os.getpid(), 40)", "", "the program was ended by signal 40"),
        ("len(bytearray(2**31))", "MemoryError", ""),
        ("print(1 / 0)", "ZeroDivisionError", ""),
    ],
)
def test_a_program_that_misbehaves_ends_alone(server: Server, program: str, output: str, problem: str) -> None:
    with connect(server)[0] as connection:
        answer = run(connection, program, timeout=2.0 if "sleep" in program else 60.0)
        assert output in answer["output"]
        assert answer["problem"] == problem
        assert run(connection, "print(1)") == {"output": "1\n", "problem": ""}


def test_a_program_that_cannot_start_is_a_problem(server: Server) -> None:
    with connect(server)[0] as connection:
        assert "No such file" in run(connection, "", command="missing")["problem"]


def test_a_program_cannot_read_the_key(server: Server) -> None:
    program = """
import os
print([name for name in os.environ if "RLT" in name])
for file in ("environ", "mem", "maps"):
    try:
        open(f"/proc/{os.getppid()}/{file}", "rb").read(1)
    except PermissionError:
        print(file)
"""
    with connect(server)[0] as connection:
        assert run(connection, program)["output"] == "[]\nenviron\nmem\nmaps\n"


def test_a_program_cannot_take_the_port(server: Server) -> None:
    """It would get the claims of other conversations."""
    program = f"""
import socket
for family, address in ((socket.AF_INET, "127.0.0.1"), (socket.AF_INET, ""), (socket.AF_INET6, "::")):
    with socket.socket(family) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        try:
            listener.bind((address, {server[1]}))
        except OSError as error:
            print(error.errno)
"""
    with connect(server)[0] as connection:
        assert run(connection, program)["output"] == f"{errno.EADDRINUSE}\n" * 3


def test_the_pod_ends_with_its_connection(server: Server) -> None:
    connection, _ = connect(server)
    request = {"command": ["python3", "-c", "import time; time.sleep(3600)"], "stdin": "", "timeoutSeconds": 3600.0}
    connection.sendall(encode(request))
    connection.close()
    assert server[0].wait(60) == 0


def test_the_key_does_not_contain_the_token() -> None:
    assert derive_key("token") != derive_key("other")
    assert "token" not in derive_key("token")
