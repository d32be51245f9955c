"""The measurements and the table of rlt top."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from rlt_cli.pod_usage import GpuUsage, PodUsage, format_usage, parse_nvidia_smi, parse_probe, parse_rocm_smi
from rlt_pod import probe as pod_probe

MIB = 2**20
GIB = 2**30
NVIDIA_SMI = "0, 98, 71234, 81559\n1, 0, 71190, 81559\n"
ROCM_SMI = """WARNING: AMD GPU device(s) is/are in a low-power state. Check power control/runtime_status

{"card0": {"GPU use (%)": "12", "VRAM Total Memory (B)": "206141652992", "VRAM Total Used Memory (B)": "297914368"}, \
"card1": {"GPU use (%)": "0", "VRAM Total Memory (B)": "206141652992", "VRAM Total Used Memory (B)": "297914368"}}
"""


def measured(gpus: dict[str, Any] | None, **changes: Any) -> str:
    limits = {"cpu_limit": 8.0, "memory_limit": 64 * GIB, "shared_memory": 0, "shared_memory_limit": 16 * GIB}
    return json.dumps({"cpu": 1.26, "memory": 12 * GIB, **limits, "gpus": gpus, **changes})


def smi(output: str, code: int | None = 0, program: str = "nvidia-smi") -> dict[str, Any]:
    return {"program": program, "code": code, "output": output}


def test_the_output_of_nvidia_smi_is_in_mebibytes() -> None:
    assert parse_nvidia_smi(NVIDIA_SMI) == (
        GpuUsage(index="0", utilization=98, memory=71234 * MIB, memory_limit=81559 * MIB),
        GpuUsage(index="1", utilization=0, memory=71190 * MIB, memory_limit=81559 * MIB),
    )


def test_a_gpu_in_mig_mode_reports_no_utilization() -> None:
    (gpu,) = parse_nvidia_smi("0, [N/A], 87, 81559\n")
    assert (gpu.utilization, gpu.memory) == (None, 87 * MIB)


def test_the_output_of_rocm_smi_is_in_bytes_and_may_begin_with_a_warning() -> None:
    first, second = parse_rocm_smi(ROCM_SMI)
    assert first == GpuUsage(index="0", utilization=12, memory=297914368, memory_limit=206141652992)
    assert (second.index, second.utilization) == ("1", 0)


@pytest.mark.parametrize(
    ("output", "reason"),
    [
        (measured(None), None),
        (measured(smi(NVIDIA_SMI)), None),
        (measured(smi(ROCM_SMI, program="rocm-smi")), None),
        (measured(smi("No devices were found", 6)), None),
        (measured(smi("Failed to initialize NVML: Driver/library version mismatch\n", 18)), "nvidia-smi: Failed to"),
        (measured(smi("", None)), "nvidia-smi does not answer"),
        (measured(smi("ERROR:root:Driver not initialized", program="rocm-smi")), "rocm-smi: ERROR:root:Driver"),
        (measured(smi("", 1)), "nvidia-smi: exit code 1, no output"),
        ("Traceback (most recent call last):\nPermissionError", "unexpected output: Traceback"),
        ("[]", "unexpected output: []"),
        (measured({"program": "smi"}), "unexpected output: "),
    ],
)
def test_a_measurement_that_is_missing_has_a_reason(output: str, reason: str | None) -> None:
    found = parse_probe("sum-workers-a", "workers", output).reason
    assert found is None if reason is None else str(found).startswith(reason)


def test_the_table_has_a_row_for_each_gpu_and_for_each_pod_without_one() -> None:
    pods = [
        parse_probe("sum-head", "head", measured(None, cpu_limit=None, memory_limit=None)),
        parse_probe("sum-workers-a", "workers", measured(smi(NVIDIA_SMI))),
        PodUsage(pod="sum-workers-b", group="workers", reason="no answer within 20 s"),
    ]
    cells = [re.split(r" {3,}", line) for line in format_usage(pods).splitlines()]
    assert cells == [
        ["POD", "GROUP", "CPU", "MEMORY", "/DEV/SHM", "GPU", "GPU USE", "GPU MEMORY", "REASON"],
        ["sum-head", "head", "1.3", "12.0 GiB", "0.0 / 16.0 GiB"],
        ["sum-workers-a", "workers", "1.3 / 8.0", "12.0 / 64.0 GiB", "0.0 / 16.0 GiB", "0", "98 %", "69.6 / 79.6 GiB"],
        ["", "1", "0 %", "69.5 / 79.6 GiB"],
        ["sum-workers-b", "workers", "no answer within 20 s"],
    ]


def write(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


V2 = {
    "cpu.stat": "usage_usec 2500000\nuser_usec 2000000\n",
    "cpu.max": "200000 100000\n",
    "memory.current": "1000\n",
    "memory.stat": "anon 600\ninactive_file 300\n",
    "memory.max": "4096\n",
}
V1 = {
    "cpuacct/cpuacct.usage": "2500000000\n",
    "cpu/cpu.cfs_quota_us": "200000\n",
    "cpu/cpu.cfs_period_us": "100000\n",
    "memory/memory.usage_in_bytes": "1000\n",
    "memory/memory.stat": "cache 100\ntotal_inactive_file 300\n",
    "memory/memory.limit_in_bytes": "4096\n",
}


@pytest.mark.parametrize("files", [V2, V1])
def test_both_versions_of_control_groups_are_read(tmp_path: Path, files: dict[str, str]) -> None:
    root = write(tmp_path, files)
    assert (pod_probe.read_cpu_time(root), pod_probe.read_cpu_limit(root)) == (2.5, 2.0)
    assert (pod_probe.read_memory(root), pod_probe.read_memory_limit(root)) == (700, 4096)


@pytest.mark.parametrize(
    "files",
    [
        {**V2, "cpu.max": "max 100000\n", "memory.max": "max\n"},
        {**V1, "cpu/cpu.cfs_quota_us": "-1\n", "memory/memory.limit_in_bytes": f"{2**63 - 4096}\n"},
        {},
    ],
)
def test_a_container_without_limits_has_none(tmp_path: Path, files: dict[str, str]) -> None:
    root = write(tmp_path, files)
    assert (pod_probe.read_cpu_limit(root), pod_probe.read_memory_limit(root)) == (None, None)


def test_the_program_runs_on_this_machine_without_the_packages_of_rlt() -> None:
    done = subprocess.run(
        [sys.executable, "-I", "-c", Path(pod_probe.__file__).read_text()], capture_output=True, text=True, check=True
    )
    usage = parse_probe("here", "head", done.stdout)
    assert usage.shared_memory_limit
    assert "unexpected output" not in (usage.reason or "")
