"""Each entry of the knowledge base: a line that shows the failure, variants of the line, and a near miss."""

from __future__ import annotations

import textwrap

import pytest
from knowledge.logs import HEALTHY, SIGNATURES, list_codes, write_healthy_log

from rlt_core.knowledge.entries import load_entries
from rlt_core.knowledge.fallback import UNKNOWN

CODES = [entry.code for entry in load_entries() if entry.patterns]


def test_every_entry_with_patterns_has_a_signature() -> None:
    assert sorted(SIGNATURES) == sorted(CODES)


@pytest.mark.parametrize("code", CODES)
def test_the_line_and_its_variant_are_found_first(code: str) -> None:
    assert list_codes(SIGNATURES[code]["positive"])[0] == code
    assert list_codes(SIGNATURES[code]["variant"])[0] == code


@pytest.mark.parametrize("code", CODES)
def test_the_near_miss_is_not_found(code: str) -> None:
    assert [each for each in list_codes(SIGNATURES[code]["near"]) if each not in UNKNOWN] == []


@pytest.mark.parametrize("code", CODES)
def test_colors_prefixes_and_wrapped_lines_do_not_hide_the_line(code: str) -> None:
    line = SIGNATURES[code]["positive"]
    ray = "\x1b[36m(WorkerDict pid=411, ip=10.0.0.3)\x1b[0m "
    first, *rest = line.split(" ")
    assert code in list_codes(ray + line)
    assert code in list_codes(f"2026-01-30T08:57:28.123456789Z [rank3]: {line}\r\n")
    assert code in list_codes(" ".join([f"\x1b[1;31m{first}\x1b[0m", *rest]))
    assert code in list_codes("\n".join(line[i : i + 80] for i in range(0, len(line), 80)))
    wrapped = textwrap.wrap(line, 80, break_long_words=False, break_on_hyphens=False)
    assert code in list_codes("\n".join(ray + each for each in wrapped))


@pytest.mark.parametrize(
    ("code", "line"),
    [
        ("ModelConfigMissing", "OSError: Can't load the configuration of 'Qwen/Qwen2.5-7B'. If you"),
        ("ModelConfigMissing", "OSError: Can't load feature extractor for '/models/a'. If you"),
        ("NameResolutionFailed", "fatal: unable to access 'https://github.com/a/': Could not resolve host: github.com"),
        ("StoreTimeout", "The client socket has failed to connect to any network address of (head-0, 29500)."),
        ("SharedMemoryExhausted", "ERROR: bus error. This might be caused by insufficient shared memory (shm)."),
        ("SegmentationFault", "!!!!!!! Segfault encountered !!!!!!!"),
        ("SegmentationFault", "ERROR: Unexpected segmentation fault encountered in worker."),
        ("IllegalMemoryAccess", "torch.AcceleratorError: CUDA error: unspecified launch failure"),
        ("HostOutOfMemory", "slurmstepd: error: StepId=7.13. Some of the step tasks have been OOM Killed."),
        ("ProcessKilled", "RuntimeError: DataLoader worker (pid 2121) is killed by signal: Killed."),
        ("KvCacheNoMemory", "RuntimeError: Not enough memory. Please try to increase --mem-fraction-static."),
        ("DriverTooOld", "RuntimeError: Triton Error [CUDA]: device kernel image is invalid"),
        ("DriverTooOld", "Error 803: system has unsupported display driver / cuda driver combination"),
        ("AddressInUse", "Check failed: server_ Failed to start the grpc server. The specified port is 8076."),
        ("EngineWakeMemory", "[torch_memory_saver.cpp] CUresult error: 2 (out of memory)  file=csrc/utils.h line=194"),
        ("RdmaConnectionFailed", "rdma_endpoint.cpp:1033] [Handshake] Failed to modify QP to RTR, check mtu, gid"),
        ("WeightNameUnknown", "(Worker_TP1 pid=6) ERROR [multiproc_executor.py:8] KeyError: 'embed_tokens.weight'"),
        ("ImportFailed", "AttributeError: Qwen2Tokenizer has no attribute all_special_tokens_extended."),
        ("ContainerRuntimeNoGpu", 'failed to get sandbox runtime: no runtime for "nvidia" is configured'),
    ],
)  # fmt: skip
def test_other_texts_of_a_failure_are_found(code: str, line: str) -> None:
    assert list_codes(f"start\n{line}\nend")[0] == code


def test_two_wrapped_messages_of_two_processes_are_found() -> None:
    texts = [SIGNATURES[code]["positive"] for code in ("KvCacheNoMemory", "NcclNoInterface")]
    texts = [f"{'x' * 50} {text} and then some other text that makes the line longer" for text in texts]
    wrapped = [textwrap.wrap(text, 70) for text in texts]
    lines = [f"(Worker pid={rank}) {part}" for parts in zip(*wrapped, strict=False) for rank, part in enumerate(parts)]
    assert len(lines) >= 4
    assert list_codes("\n".join(lines)) == ["KvCacheNoMemory", "NcclNoInterface"]


@pytest.mark.parametrize("text", ["写入失败: 设备上没有空间", "write: デバイスに空き領域がありません"])
def test_messages_in_other_languages_are_found(text: str) -> None:
    assert list_codes(text) == ["DiskFull"]


def test_an_error_that_the_program_handled_is_not_found() -> None:
    """Ray continues without its metrics server."""
    error = "OSError: [Errno 98] Address already in use"
    handled = "ERROR head.py:368 -- An exception occurred while starting the metrics server."
    assert list_codes(f"{handled}\nTraceback (most recent call last):\n{error}") == []
    assert list_codes(error) == ["AddressInUse"]


def test_nothing_is_found_in_ten_megabytes_of_a_healthy_run() -> None:
    step = "step:1 - actor/kl_loss:0.1"  # a log that ends while the ranks connect is not healthy
    assert list_codes(*(f"{line}\n{step}" for line in HEALTHY)) == []
    assert list_codes(write_healthy_log(10_000_000) + step.encode()) == []
