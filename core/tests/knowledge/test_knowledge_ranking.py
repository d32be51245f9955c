"""Which finding is first: causes before their effects, and the rank that was late."""

from __future__ import annotations

import io

import pytest
from knowledge.logs import SIGNATURES, diagnose, list_codes

from rlt_core.knowledge.diagnosis import diagnose_logs

ACTOR_DIED = SIGNATURES["ActorDied"]["positive"]
OUT_OF_MEMORY = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB."


def watchdog(rank: int, sequence: int = 812) -> str:
    return (
        f"(WorkerDict pid={500 + rank}) [rank{rank}]:[E130 09:00:0{rank}.000 ProcessGroupNCCL.cpp:632] "
        f"[Rank {rank}] Watchdog caught collective operation timeout: WorkNCCL(SeqNum={sequence}, OpType=ALLREDUCE, "
        "NumelIn=1, NumelOut=1, Timeout(ms)=600000) ran for 600040 milliseconds before timing out."
    )


def test_a_cause_precedes_its_wrappers_in_any_order() -> None:
    lines = [ACTOR_DIED, SIGNATURES["EngineDead"]["positive"], OUT_OF_MEMORY]
    assert list_codes("\n".join(lines))[0] == "GpuOutOfMemory"
    assert list_codes("\n".join(reversed(lines)))[0] == "GpuOutOfMemory"


@pytest.mark.parametrize(
    ("cause", "effect"),
    [
        ("SharedMemoryExhausted", "NcclSystemError"),
        ("TooManyProcesses", "RayWorkerNotRegistered"),
        ("RayPortInUse", "RayHeadUnreachable"),
        ("RayVersionMismatch", "TooManyGpusRequested"),
        ("ImagePullRateLimited", "ImageNotFound"),
        ("PermissionDenied", "ModelConfigMissing"),
        ("DiskFull", "ModelWeightsCorrupt"),
        ("HubAccessDenied", "TokenizerFilesMissing"),
        ("GpuOutOfMemory", "NcclCudaError"),
        ("NcclNoInterface", "NcclInternalError"),
    ],
)
def test_a_cause_precedes_its_effect_that_an_earlier_line_shows(cause: str, effect: str) -> None:
    codes = list_codes(f"{SIGNATURES[effect]['positive']}\n{SIGNATURES[cause]['positive']}")
    assert codes.index(cause) < codes.index(effect)


def test_a_wrapper_alone_is_found() -> None:
    assert list_codes(ACTOR_DIED) == ["ActorDied"]


def test_of_equal_causes_the_first_line_is_first() -> None:
    lines = [SIGNATURES[code]["positive"] for code in ("KvCacheNoMemory", "EngineWakeMemory")]
    assert list_codes("\n".join(lines)) == ["KvCacheNoMemory", "EngineWakeMemory"]
    assert list_codes("\n".join(reversed(lines))) == ["EngineWakeMemory", "KvCacheNoMemory"]


def test_of_two_logs_the_earlier_time_is_first() -> None:
    late = "2026-01-30 09:00:05,1 ValueError: No available memory for the cache blocks."
    early = "2026-01-30 09:00:01,1 CUDA Error: out of memory at /csrc/cumem_allocator.cpp:62"
    assert list_codes(late, early) == ["EngineWakeMemory", "KvCacheNoMemory"]


def test_hardware_precedes_what_it_causes() -> None:
    lines = [watchdog(0), OUT_OF_MEMORY, SIGNATURES["GpuMemoryUncorrectable"]["positive"]]
    assert list_codes("\n".join(lines)) == ["GpuMemoryUncorrectable", "GpuOutOfMemory", "CollectiveTimeout"]


def test_the_error_of_one_rank_precedes_the_timeouts_of_the_others() -> None:
    lines = [watchdog(rank) for rank in (0, 1, 2)] + ["[rank3]: OSError: [Errno 28] No space left on device: '/a'"]
    first, second = diagnose("\n".join(lines))
    assert (first.code, first.rank, second.code) == ("DiskFull", 3, "CollectiveTimeout")


def test_the_rank_without_a_timeout_is_named() -> None:
    lines = ["NCCL INFO comm 0x5 rank 0 nranks 8 cudaDev 0"] + [watchdog(rank) for rank in (7, 0, 1, 2, 4, 5, 6)]
    (finding,) = diagnose("\n".join(lines))
    assert finding.message.endswith("Ranks 0, 1, 2, 4, 5, 6, 7 timed out in ALLREDUCE 812; Rank 3 did not take part.")


def test_the_last_rank_is_named_if_a_log_states_the_number_of_ranks() -> None:
    workers = "\n".join(watchdog(rank) for rank in range(3))
    (finding,) = diagnose("(EngineCore pid=4) world_size=4 rank=0 backend=nccl", workers)
    assert finding.message.endswith("; Rank 3 did not take part.")
    (finding,) = diagnose(workers)
    assert "Rank 3" not in finding.message


def test_a_rank_without_a_line_is_not_accused() -> None:
    """The log of one pod has the ranks of the pod."""
    (finding,) = diagnose("\n".join(["NCCL INFO comm 0x5 rank 0 nranks 8 cudaDev 0", *map(watchdog, range(4))]))
    assert "did not take part" not in finding.message
    assert finding.message.endswith("timed out in ALLREDUCE 812; these logs have no report of ranks 4, 5, 6, 7.")


def test_a_rank_with_lines_is_accused_and_its_last_line_quoted() -> None:
    waits = "[rank5]: waiting for the reward server, token=hf_abcdefghijklmnopqrst"
    lines = ["NCCL INFO comm 0x5 rank 0 nranks 8 cudaDev 0", *map(watchdog, range(4)), "[rank5]: loading", waits]
    (finding,) = diagnose("\n".join(lines))
    assert "Rank 5 did not take part. Last line of rank 5: [rank5]: waiting for the reward server" in finding.message
    assert "hf_abc" not in finding.message


def test_folded_reports_accuse_no_rank() -> None:
    folded = watchdog(3) + " [repeated 14x across cluster]"
    (finding,) = diagnose(f"NCCL INFO comm 0x5 rank 0 nranks 16 cudaDev 0\n[rank7]: step 3\n{folded}\n")
    assert "did not take part" not in finding.message
    assert "14 more reports are folded" in finding.message


def test_the_rank_behind_the_others_is_named() -> None:
    lines = [watchdog(0), watchdog(1, sequence=640), watchdog(2), watchdog(3)]
    (finding,) = diagnose("\n".join(lines))
    assert "Rank 1 is behind the others: collective 640." in finding.message


def test_secrets_are_masked() -> None:
    (finding,) = diagnose("GatedRepoError: 401 Client Error, HF_TOKEN=hf_abcdefghijklmnopqrstuv")
    assert finding.evidence == "GatedRepoError: 401 Client Error, HF_TOKEN=***"


SOCKETS = "n1:812:934 [0] NCCL INFO NET/IB : No device found.\nn1:812:934 [0] NCCL INFO Using network Socket\n"


def test_sockets_are_a_warning_where_rdma_is_expected() -> None:
    variable = "n1:812:934 [0] NCCL INFO NCCL_IB_HCA set by environment to mlx5_0,mlx5_1\n"
    (finding,) = diagnose(variable + SOCKETS)
    assert (finding.code, finding.severity, finding.line, finding.node) == ("NcclUsesSockets", "warning", 2, "n1")
    assert [each.code for each in diagnose_logs([io.BytesIO(SOCKETS.encode())], expects_rdma=True)] == [finding.code]
    assert list_codes(SOCKETS) == []
    assert list_codes(variable + "NCCL_IB_DISABLE=1\n" + SOCKETS) == []
