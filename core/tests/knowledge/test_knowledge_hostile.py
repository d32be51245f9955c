"""Logs that are made to be slow, are not text, or end in the middle: time is linear, and nothing is raised."""

from __future__ import annotations

import gzip
import random
import time

import pytest
from knowledge.logs import SIGNATURES, diagnose, list_codes

LINE = SIGNATURES["DiskFull"]["positive"]
PARTS = {
    "frames": b'  File "/a.py", line 1, in f\n',
    "exceptions": b"ValueError: x\n",
    "tracebacks": b"Traceback (most recent call last):\nKeyError: 1\nDuring handling of the above exception, another\n",
    "processes": b"(W pid=%d) Traceback (most recent call last):\n(W pid=%d) FooError: %d\n",
    "dotted": b"a." * 200 + b"Error: x\n",
    "one line of errors": b"Error: Exception: ",
    "fatal lines": b"srun: error: error: x NCCL WARN x\n",
    "steps": b"step:1 - step Step step:\nFooError: x\n",
    "bars": b"1/9 [00:01<00:02, 1it/s] 2/9 [00:01<00:02, 1it/s]\n",
    "ranks": b"[rank3]: [Rank 3] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=1, OpType=A)\n",
    "remainders": b"waiting for 1 of 2, 1 of 2, 1 / 2 pending\n",
    "tags": b"[a] [b] [c] (x pid=1) [rank0]: FooError: [repeated 3x across cluster] x\n",
    "quotes": b"couldn't assign flavors to pod set pod set untolerated in flavor in flavor\n",
    "validation": b"1 validation error for A\n  a\n",
    "binary": bytes(range(256)),
}
BASE = 200_000
"""Bytes of the shorter log."""
MAX_RATIO = 10
"""Maximum ratio of the times for logs of which one is four times as long: 4 if linear, 16 if quadratic."""


def build(part: bytes, size: int) -> bytes:
    count = size // len(part)
    if b"%d" not in part:
        return part * count
    return b"".join(part % (number, number, number) for number in range(count))


def measure(log: bytes) -> float:
    start = time.thread_time()
    diagnose(log)
    return time.thread_time() - start


@pytest.mark.parametrize("name", PARTS)
def test_the_time_grows_with_the_length_of_any_log(name: str) -> None:
    short = build(PARTS[name], BASE)
    long = build(PARTS[name], 4 * BASE)
    once = measure(long) / measure(short)
    assert once < MAX_RATIO or min(measure(long) for _ in range(3)) < MAX_RATIO * min(measure(short) for _ in range(3))


@pytest.mark.parametrize("cut", range(1, 60, 7))
def test_a_log_that_ends_in_the_middle_of_a_line_is_read(cut: int) -> None:
    text = f'Traceback (most recent call last):\n  File "/a.py", line 1, in f\nFooError: é{LINE}'.encode()
    for end in range(0, len(text) - cut, 11):
        diagnose(text[:end])
    assert list_codes(text[cut:])[0] == "DiskFull"


def test_text_between_binary_data_is_found() -> None:
    noise = random.Random(0).randbytes(300_000)
    assert "DiskFull" in list_codes(noise + b"\n" + LINE.encode() + b"\n" + noise)
    diagnose(gzip.compress(noise))


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be"])
def test_a_log_in_utf_16_is_read(encoding: str) -> None:
    """PowerShell writes logs in UTF-16."""
    assert list_codes(f"start\n{LINE}\n".encode(encoding)) == ["DiskFull"]


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("OSError: [Errno 28] 设备上没有空间: '/数据/检查点'", "DiskFull"),
        ("bash: rock: 未找到命令", "ScriptMissing"),
        ("отказано в доступе\nValueError: неверное значение", "UnknownException"),
        ("ConnectionRefusedError: [Errno 111] 接続を拒否されました", "ConnectionRefused"),
    ],
)
def test_logs_in_other_languages_are_read(text: str, code: str) -> None:
    assert list_codes(text)[0] == code
