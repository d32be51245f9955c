"""Files that the driver writes into a sandbox and reads from it, beside hostile programs."""

from __future__ import annotations

import base64
import socket
from collections.abc import Iterator
from typing import Any

import pytest
from sandbox_servers import call, claim, run, start_server

from rlt_pod.sandbox.files import MAX_LISTED
from rlt_pod.sandbox.protocol import MAX_FILE


@pytest.fixture
def connection() -> Iterator[socket.socket]:
    with start_server() as (_, port), claim(port)[0] as claimed:
        yield claimed


def put(connection: socket.socket, path: str, content: bytes) -> Any:
    return call(connection, put={"path": path, "content": base64.b64encode(content).decode()})["problem"]


def get(connection: socket.socket, path: str) -> bytes | None:
    content = call(connection, get={"path": path})["content"]
    return None if content is None else base64.b64decode(content)


def test_programs_and_the_driver_share_files(connection: socket.socket) -> None:
    assert put(connection, "in/a.bin", bytes(range(256))) == ""
    assert put(connection, "in/a.bin", b"\0shorter") == ""
    assert run(connection, "print(open('in/a.bin').read()); open('out', 'w').write('done')")["output"] == "\0shorter\n"
    assert get(connection, "out") == b"done"
    whole = run(connection, "import os; print(os.path.abspath('out'), end='')")["output"]
    assert get(connection, whole) == b"done"


@pytest.mark.parametrize(
    "program",
    [
        "",
        "os.mkdir('a')",
        "os.mkfifo('a')",
        "os.symlink('/proc/self/environ', 'a')",
        "os.symlink('/proc/self/mem', 'a')",
        "os.symlink('a', 'a')",
        f"open('a', 'wb').truncate({MAX_FILE + 1})",
        "open('a', 'w'); os.chmod('a', 0)",
    ],
)
def test_what_is_not_a_readable_file_is_none(connection: socket.socket, program: str) -> None:
    """Process 1 has the key in its environment. It reads no more than a program can."""
    run(connection, f"import os; {program}")
    assert get(connection, "a") is None
    assert run(connection, "print(1)")["output"] == "1\n"


def test_a_folder_that_is_a_link_leads_to_no_file_of_process_1(connection: socket.socket) -> None:
    run(connection, "import os; os.symlink('/proc/self', 'a')")
    assert get(connection, "a/environ") is None
    assert put(connection, "a/comm", b"x") != ""


@pytest.mark.parametrize(("path", "problem"), [("/proc/a", "No such"), (".", "directory"), ("\0", "null")])
def test_a_file_that_cannot_be_written_is_a_problem(connection: socket.socket, path: str, problem: str) -> None:
    assert problem in put(connection, path, b"x")


def test_files_are_listed_from_the_newest_on(connection: socket.socket) -> None:
    run(
        connection,
        f"""
import os
os.makedirs("a/b")
for age, path in enumerate([{MAX_LISTED} * "x", "a/b/new", *map(str, range({MAX_LISTED}))]):
    open(path, "w").write("abc")
    os.utime(path, (0, 2e9 - age))
os.symlink("/etc/passwd", "link")
os.symlink("a", "c")
os.mkfifo("fifo")
""",
    )
    found = call(connection, list={})["files"]
    assert len(found) == MAX_LISTED
    assert found[0] == {"path": MAX_LISTED * "x", "size": 3}
    assert found[1] == {"path": "a/b/new", "size": 3}
    assert not {"link", "fifo", "c/b/new"} & {each["path"] for each in found}


def test_a_list_of_many_entries_ends(connection: socket.socket) -> None:
    """Folders are read up to a number of entries, also if each of them is the only one in its folder."""
    program = "import os\nfor number in range(12_000): open(str(number), 'w')\n"
    deep = "for number in range(300): os.mkdir('d'); os.chdir('d')\n"
    assert run(connection, program + deep)["problem"] == ""
    assert len(call(connection, list={})["files"]) == MAX_LISTED


def test_a_name_that_is_not_utf_8_is_listed(connection: socket.socket) -> None:
    run(connection, r"open(b'\xff', 'w')")
    assert call(connection, list={})["files"] == [{"path": "?", "size": 0}]


def test_the_longest_file_has_room_in_a_frame(connection: socket.socket) -> None:
    assert put(connection, "a", b"x" * MAX_FILE) == ""
    assert get(connection, "a") == b"x" * MAX_FILE
