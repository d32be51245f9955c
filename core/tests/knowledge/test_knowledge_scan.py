"""Logs of any size and form: chunks, memory and time."""

from __future__ import annotations

import random
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from knowledge.logs import SIGNATURES, diagnose, list_codes, write_healthy_log

from rlt_core.knowledge.scan import CHUNK

LINE = SIGNATURES["DiskFull"]["positive"].encode()


@pytest.mark.parametrize("position", [CHUNK - 40, CHUNK - 1, CHUNK, 2 * CHUNK - len(LINE), 3 * CHUNK + 17])
def test_a_line_at_the_border_of_chunks_is_found_with_its_number(position: int) -> None:
    before = (b"x" * 99 + b"\n") * (position // 100 + 1)
    before = before[-position:] + b"\n"
    (finding,) = diagnose(before + LINE + b"\n" + b"y" * CHUNK)
    assert (finding.code, finding.line) == ("DiskFull", before.count(b"\n") + 1)


def test_a_harmless_line_at_the_border_of_chunks_is_not_found() -> None:
    line = b"worker-0:812:934 [0] NCCL INFO " + b"x" * 60 + b" Call to connect returned Connection refused\n"
    for length in (1, 10, 60, 100):
        before = b"a" * (CHUNK - 2100 - length) + b"\n" + line * 20
        assert list_codes(before + b"\n" * CHUNK) == [], length


def test_a_wrapped_message_at_the_border_of_chunks_is_found() -> None:
    line = SIGNATURES["EngineStartMemory"]["positive"].encode()
    for cut in range(65, len(line) - 10, 20):
        before = b"x" * (CHUNK - cut - 2) + b"\n"
        assert list_codes(before + line[:cut] + b"\n" + line[cut:] + b"\n") == ["EngineStartMemory"], cut


@pytest.mark.parametrize("data", [b"", b"\n", b"\x00\xff\xfe" * 1000, b"\x1b[", b"\r" * 10])
def test_nothing_is_found_without_text(data: bytes) -> None:
    assert diagnose(data) == []


def test_a_line_without_an_end_and_a_progress_bar_hide_nothing() -> None:
    assert list_codes(b"a" * (9 * CHUNK) + b" " + LINE) == ["DiskFull"]
    assert list_codes(b"Training Progress:   0%|  | 0/3\rTraining Progress:  33%|# | 1/3\r" + LINE) == ["DiskFull"]


def test_the_evidence_of_a_long_line_is_the_part_around_the_match() -> None:
    (finding,) = diagnose("a" * 3000 + " " + LINE.decode() + "b" * 3000)
    assert "No space left on device" in finding.evidence
    assert len(finding.evidence) <= 500


def test_a_search_takes_at_most_sixty_times_the_split_into_words() -> None:
    """24 to 33 times as measured: 1 GB takes about a minute if Python splits 500 MB a second. The log has all healthy
    lines, the worst case."""
    log = write_healthy_log(2_000_000)
    fastest = [min(measure(run) for _ in range(3)) for run in (lambda: diagnose(log), lambda: set(log.split()))]
    assert fastest[0] < 60 * fastest[1]


def test_lines_that_differ_in_their_numbers_take_less_than_half_of_the_time() -> None:
    numbers = random.Random(0)
    step = b"step:%d - actor/entropy:%f - critic/rewards/mean:%f - response_length/mean:%f - timing_s/gen:%f\n"
    steps = b"".join(step % (number, *(numbers.random() for _ in range(4))) for number in range(20_000))
    letters = bytes(numbers.choices(b"abcdefghijklmnopqrstuvwxyz    \n", k=len(steps)))
    fastest = [min(measure(run) for _ in range(3)) for run in (lambda: diagnose(steps), lambda: diagnose(letters))]
    assert fastest[0] < 0.5 * fastest[1]


def measure(run: Callable[[], object]) -> float:
    start = time.process_time()
    run()
    return time.process_time() - start


def test_memory_does_not_grow_with_the_log(tmp_path: Path) -> None:
    part = write_healthy_log(500_000) + LINE + b"\n"
    (tmp_path / "1").write_bytes(part * 2)
    (tmp_path / "20").write_bytes(part * 40)
    small, large = (measure_peak_mib(tmp_path / name) for name in ("1", "20"))
    assert large < small + 10


def measure_peak_mib(log: Path) -> float:
    script = (
        "import resource, sys; from rlt_core.knowledge.diagnosis import diagnose_logs\n"
        f"found = diagnose_logs([open({str(log)!r}, 'rb')])\n"
        "assert [each.code for each in found] == ['DiskFull']\n"
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)"
    )
    return float(subprocess.run([sys.executable, "-c", script], capture_output=True, check=True, text=True).stdout)
