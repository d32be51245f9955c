"""The server in a sandbox pod: its claim, its programs, and its end."""

from __future__ import annotations

import errno
import os
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest
from sandbox_servers import build_run, call, claim, run, start_server

from rlt_pod.sandbox.protocol import MAX_FRAME, derive_key, encode
from rlt_pod.sandbox.serve import read_frame

Server = tuple[subprocess.Popen[str], int]


@pytest.fixture
def server() -> Iterator[Server]:
    with start_server() as started:
        yield started


def succeed(output: str) -> dict[str, Any]:
    return {"output": output, "exitCode": 0, "problem": ""}


def test_the_first_client_with_the_key_claims_the_pod(server: Server) -> None:
    other, answer = claim(server[1], key="wrong")
    assert answer is None
    other.close()
    with claim(server[1])[0] as connection:
        with pytest.raises(ConnectionRefusedError):
            claim(server[1])
        assert run(connection, "print(6 * 7)") == succeed("42\n")


def test_files_remain_and_processes_do_not(server: Server) -> None:
    """A process of the first program has a lock, for which the second program waits."""
    first = """
import fcntl, subprocess
file = open("a", "w")
file.write("1")
file.flush()
fcntl.flock(file, fcntl.LOCK_EX)
subprocess.Popen(["sleep", "3600"], pass_fds=[file.fileno()])
"""
    second = "import fcntl; file = open('a'); fcntl.flock(file, fcntl.LOCK_EX); print(file.read())"
    with claim(server[1])[0] as connection:
        assert run(connection, first) == succeed("")
        assert run(connection, second) == succeed("1\n")


@pytest.mark.parametrize(
    ("program", "output", "problem", "exit_code"),
    [
        ("while True: print('x' * 10_000)", "xxx", "the output is too long", None),
        ("import os; os.kill(os.getpid(), 9)", "", "the program was ended by SIGKILL", None),
        ("import os; os.kill(os.getpid(), 40)", "", "the program was ended by signal 40", None),
        ("len(bytearray(2**31))", "MemoryError", "", 1),
        ("print(1 / 0)", "ZeroDivisionError", "", 1),
        ("import sys; sys.exit(3)", "", "", 3),
    ],
)
def test_a_program_that_misbehaves_ends_alone(
    server: Server, program: str, output: str, problem: str, exit_code: int | None
) -> None:
    with claim(server[1])[0] as connection:
        answer = run(connection, program)
        assert output in answer["output"]
        assert (answer["problem"], answer["exitCode"]) == (problem, exit_code)
        assert run(connection, "print(1)") == succeed("1\n")


def test_a_program_can_lift_its_limit_of_memory(server: Server) -> None:
    """One that reserves more than it uses. The memory of the pod still limits it."""
    program = "import resource as r; r.setrlimit(r.RLIMIT_DATA, (r.RLIM_INFINITY,) * 2); print(len(bytearray(2**29)))"
    with claim(server[1])[0] as connection:
        assert run(connection, program) == succeed(f"{2**29}\n")


def test_the_driver_stops_a_program(server: Server) -> None:
    with claim(server[1])[0] as connection:
        connection.sendall(encode(build_run("import time; time.sleep(3600)")) + encode({"stop": True}))
        answer = read_frame(connection, MAX_FRAME)
        assert answer == {"answer": {"output": "", "exitCode": None, "problem": "the program was stopped"}}
        connection.sendall(encode({"stop": True}))  # the program before has ended
        assert run(connection, "print(1)") == succeed("1\n")


@pytest.mark.parametrize(
    ("command", "variables", "problem"),
    [
        (["missing"], {}, "No such file"),
        (["sleep", 5], {}, "not int"),
        (["true"], {"A": 5}, "not int"),
        (["true"], {"A": "\0"}, "null byte"),
        ([], {}, "out of range"),
    ],
)
def test_a_program_that_cannot_start_is_a_problem(
    server: Server, command: list[Any], variables: dict[str, Any], problem: str
) -> None:
    with claim(server[1])[0] as connection:
        answer = call(connection, run={"command": command, "stdin": "", "variables": variables})
        assert answer["problem"].startswith("the program did not start: ")
        assert problem in answer["problem"]


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
    with claim(server[1])[0] as connection:
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
    with claim(server[1])[0] as connection:
        assert run(connection, program)["output"] == f"{errno.EADDRINUSE}\n" * 3


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can create a namespace of processes")
def test_programs_cannot_signal_process_1_and_can_end_what_others_left() -> None:
    count = """
import contextlib, glob
def count():
    found = []
    for path in glob.glob("/proc/[0-9]*/comm"):
        with contextlib.suppress(OSError):  # it has ended
            found.append(open(path).read())
    return found.count("tail\\n")
"""
    with start_server(is_process_1=True) as (process, port), claim(port)[0] as connection:
        signals = "import os; [os.kill(1, number) for number in (2, 9, 15)]; print(os.getppid())"
        assert run(connection, signals) == succeed("1\n")
        leave = "import subprocess; subprocess.Popen(['tail', '-f', '/dev/null'], start_new_session=True)"
        assert run(connection, leave) == succeed("")
        assert run(connection, f"{count}print(count())")["output"] == "1\n"
        assert run(connection, "import os; os.kill(-1, 9)")["problem"] == ""
        assert run(connection, f"{count}while count(): pass")["exitCode"] == 0
        connection.close()
        assert process.wait(60) == 0


def test_the_pod_ends_with_its_connection(server: Server) -> None:
    connection, _ = claim(server[1])
    connection.sendall(encode(build_run("import time; time.sleep(3600)")))
    connection.close()
    assert server[0].wait(60) == 0


def test_the_key_does_not_contain_the_token() -> None:
    assert derive_key("token") != derive_key("other")
    assert "token" not in derive_key("token")
