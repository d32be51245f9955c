"""A log that ends while the ranks connect to each other: a hang without an error."""

from __future__ import annotations

import pytest
from knowledge.logs import HEALTHY, SIGNATURES, diagnose, list_codes, write_healthy_log

from rlt_core.knowledge.last_line import TAIL
from rlt_core.knowledge.scan import CHUNK

CODE = "ProcessGroupInitHang"
LINE = SIGNATURES[CODE]["positive"]
INFO = "worker-0:812:934 [0] NCCL INFO "


@pytest.mark.parametrize(
    "line",
    [
        LINE,
        f"(WorkerDict pid=411, ip=10.0.0.3) 2026-01-30 08:57:28,123 {LINE} ...",
        f"\x1b[36m(WorkerDict pid=411)\x1b[0m {LINE} (nccl)\r",
        "> initializing torch distributed ...",
        f"{INFO}comm 0x55d0 rank 0 nranks 8 cudaDev 0 nvmlDev 0 busId 1b000 commId 0x1f - Init START",
        "INFO 01-30 08:57:28 [pynccl.py:111] vLLM is using nccl==2.26.2",
    ],
)
def test_a_log_that_ends_with_the_line_has_a_finding(line: str) -> None:
    (finding,) = diagnose(f"loading the model\n{line}\n\n")
    assert (finding.code, finding.line) == (CODE, 2)
    assert "rlt preflight" in finding.remedy


@pytest.mark.parametrize("line", ["step:1 - actor/kl_loss:0.1", "Loading checkpoint shards: 100%", *HEALTHY[:20]])
def test_a_log_that_continues_has_none(line: str) -> None:
    assert list_codes(f"{LINE}\n{line}\n") == []


def test_the_lines_of_several_ranks_and_of_nccl_count_as_the_end() -> None:
    ranks = "\n".join(f"(WorkerDict pid={rank}) {LINE}" for rank in range(8))
    assert list_codes(f"{ranks}\n{INFO}Bootstrap: Using eth0:10.0.0.1<0>\n") == [CODE]
    assert list_codes(f"{ranks}\n{INFO}comm 0x55d0 rank 0 nranks 8 - Init COMPLETE\n{INFO}NET/IB\n") == []


@pytest.mark.parametrize(
    "end",
    [
        "Terminated",
        "[2026-01-30 09:00:00,001 E 9 9] logging.cc:497: *** SIGTERM received at time=1769763600 on cpu 0 ***\nPC: @",
        'Traceback (most recent call last):\n  File "a.py", line 1\n    wait()\nKeyboardInterrupt',
        "slurmstepd: error: *** JOB 7 ON n1 CANCELLED AT 2026-01-30T09:00:00 DUE TO TIME LIMIT ***",
        "srun: Job step aborted: Waiting up to 32 seconds for job step to finish.",
        'rlt-progress {"step": 0}',
    ],
)
def test_what_the_end_of_the_program_prints_does_not_hide_it(end: str) -> None:
    assert CODE in list_codes(f"start\n{LINE}\n{end}\n")
    assert CODE not in list_codes(f"start\n{LINE}\ngenerating\n{end}\n")


def test_it_is_found_with_its_line_after_any_number_of_chunks() -> None:
    for size in (TAIL - 10, CHUNK - 5, CHUNK + 300, 2 * CHUNK):
        before = (b"x" * 99 + b"\n") * (size // 100)
        (finding,) = diagnose(before + LINE.encode() + b"\n")
        assert finding.line == before.count(b"\n") + 1


def test_a_step_of_slurm_that_starts_late_is_not_the_end() -> None:
    waits = SIGNATURES["SlurmStepWaits"]["variant"]
    assert list_codes(f"{LINE}\n{waits}\n") == ["SlurmStepWaits"]
    assert list_codes(f"{LINE}\n{waits}\nsrun: Step created for job 205912\nstep:1 - actor/kl_loss:0.1\n") == []


def test_an_error_precedes_it() -> None:
    error = SIGNATURES["GpuOutOfMemory"]["positive"]
    assert list_codes(f"{error}\n{LINE}") == ["GpuOutOfMemory", CODE]


def test_healthy_logs_that_continue_have_no_finding() -> None:
    assert list_codes(write_healthy_log(100_000, seed=3) + b"step:1 - actor/kl_loss:0.1\n") == []


@pytest.mark.parametrize(
    "after",
    [
        'rlt-progress {"step": 0}\nstep:1 - actor/kl_loss:0.1',
        'rlt-progress {"step": 3}',
        f"{INFO}Connected all rings",
        f"{INFO}Init timings - ncclCommInitRank: rank 0 nranks 8 total 0.5",
        "[2026-01-30 09:00:00,001 E 9 9] x.cc:7: *** SIGTERM received ***\nrestarted\nstep:1 - actor/kl_loss:0.1",
    ],
)
def test_a_start_that_succeeded_is_not_a_hang(after: str) -> None:
    assert CODE not in list_codes(f"start\n{LINE}\n{after}\n")
