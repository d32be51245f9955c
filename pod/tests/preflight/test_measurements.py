"""Measurements of a process in its pod, on real files, folders, interfaces and connections."""

from __future__ import annotations

import json
import os
import socket
import sys
from pathlib import Path

import pytest

from rlt_pod.preflight.facts import shared_folder
from rlt_pod.preflight.facts.connections import Listener, find_broken_links, listen
from rlt_pod.preflight.facts.data_facts import find_unreadable, find_unwritable
from rlt_pod.preflight.facts.interfaces import (
    Interface,
    find_interface,
    list_interfaces,
    matches_nccl,
    select_by_gloo,
    select_by_nccl,
)
from rlt_pod.preflight.facts.network_facts import digest_variables, find_resolution_error, find_unreachable_ports
from rlt_pod.preflight.facts.rdma import measure_rdma
from rlt_pod.preflight.facts.service_facts import measure_services, parse_nvidia_smi, read_versions
from rlt_pod.preflight.trial.trainer_trial import check_report, run_trial

LOOPBACK = "127.0.0.1"


def test_unreadable_paths_are_returned_with_the_reason(tmp_path: Path) -> None:
    model = tmp_path / "model"
    model.mkdir()
    assert find_unreadable([str(model), str(tmp_path / "no.parquet")]) == {
        str(model): "the folder is empty",
        str(tmp_path / "no.parquet"): "No such file or directory",
    }
    (model / "config.json").write_text("{}")
    assert find_unreadable([str(model)]) == {}
    (model / "model.safetensors").symlink_to(tmp_path / "gone")
    (model / "loop").symlink_to(model / "loop")
    assert find_unreadable([str(model)]) == {}, "broken links are not files"


def test_a_cache_that_cannot_be_written_is_returned_with_its_folder(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    environment = {"TRITON_CACHE_DIR": str(tmp_path / "file/triton"), "HF_HOME": str(tmp_path / "new/hf")}
    assert find_unwritable(environment) == {"TRITON_CACHE_DIR": f"{tmp_path}/file/triton: Not a directory"}
    assert list((tmp_path / "new/hf").iterdir()) == []
    kernels = {"FLASHINFER_WORKSPACE_BASE": str(tmp_path / "file")}
    assert find_unwritable(kernels) == {"FLASHINFER_WORKSPACE_BASE": f"{tmp_path}/file: File exists"}
    assert find_unwritable({"HF_HOME": str(tmp_path / "file"), "HF_HUB_OFFLINE": "1"}) == {}


def test_versions_are_read_from_the_installed_distributions() -> None:
    assert read_versions()["python"] == sys.version.split()[0]
    assert "ray" in read_versions()


def test_limits_are_the_processs_limits() -> None:
    import resource

    facts = measure_services("a", is_head=True, shared_memory="/dev/shm")
    soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    assert facts.open_files == (None if soft == resource.RLIM_INFINITY else soft)
    assert facts.shared_memory == os.statvfs("/dev/shm").f_blocks * os.statvfs("/dev/shm").f_frsize


def test_an_address_belongs_to_its_interface() -> None:
    found = find_interface(list_interfaces(), LOOPBACK)
    assert found
    assert (found.name, found.mtu > 0) == ("lo", True)
    assert find_interface(list_interfaces(), "192.0.2.1") is None


SELECTIONS = [
    ("eth", ["eth0", "eth1"]),
    ("=eth0", ["eth0"]),
    ("eth0,ib", ["eth0", "ib0"]),
    ("^lo,ib", ["eth0", "eth1"]),
    ("^=eth0", ["eth1", "ib0", "lo"]),
    ("ens", []),
]


@pytest.mark.parametrize(("value", "names"), SELECTIONS)
def test_interfaces_are_selected_as_nccl_does(value: str, names: list[str]) -> None:
    interfaces = tuple(Interface(name, (), 1500) for name in ("eth0", "eth1", "ib0", "lo"))
    assert sorted(each.name for each in select_by_nccl(value, interfaces)) == names


def test_gloo_takes_exact_names_and_nccl_ports_are_ignored() -> None:
    interfaces = tuple(Interface(name, (), 1500) for name in ("eth0", "eth01"))
    assert [each.name for each in select_by_gloo("eth0,ib0", interfaces)] == ["eth0"]
    assert matches_nccl("=mlx5_0:1,mlx5_2:1", "mlx5_2")
    assert not matches_nccl("=mlx5_0:1", "mlx5_01")


def write_port(sysfs: Path, device: str, state: str, gids: list[str]) -> None:
    """A port in sysfs, as the kernel presents it."""
    port = sysfs / device / "ports/1"
    (port / "gids").mkdir(parents=True)
    (port / "gid_attrs/ndevs").mkdir(parents=True)
    for name, text in (("state", state), ("rate", "400 Gb/sec (4X NDR)"), ("link_layer", "Ethernet")):
        (port / name).write_text(f"{text}\n")
    for index, gid in enumerate(gids):
        (port / f"gids/{index}").write_text(f"{gid}\n")
        if gid.strip("0:"):
            (port / f"gid_attrs/ndevs/{index}").write_text("rdma0\n")


def test_rdma_ports_are_read_from_sysfs(tmp_path: Path) -> None:
    sysfs = tmp_path / "sys"
    devices = tmp_path / "dev"
    zero = "0000:0000:0000:0000:0000:0000:0000:0000"
    write_port(sysfs, "mlx5_0", "4: ACTIVE", [zero, "0000:0000:0000:0000:0000:ffff:0a00:0001"])
    write_port(sysfs, "mlx5_1", "1: DOWN", [zero])
    write_port(sysfs, "bnxt_re0", "4: ACTIVE", [])
    assert measure_rdma({}, sysfs=sysfs, devices=devices).lacks_device_files
    devices.mkdir()
    (devices / "uverbs0").touch()
    found = measure_rdma({"NCCL_IB_HCA": "mlx5", "NCCL_IB_GID_INDEX": "1"}, sysfs=sysfs, devices=devices)
    first, second = found.ports
    assert (first.device, first.is_active, first.gigabits, first.link_layer) == ("mlx5_0", True, 400.0, "Ethernet")
    assert (first.netdev, first.gids[0], first.gids[1][-9:]) == ("rdma0", "", "0a00:0001")
    assert (second.device, second.is_active, second.state) == ("mlx5_1", False, "DOWN")
    assert (found.gid_index, found.lacks_device_files) == (1, False)
    assert measure_rdma({}, sysfs=tmp_path / "none", devices=devices).ports == ()


NVIDIA_SMI = [
    (0, "0, 0, No, No\n1, 0, No, No", ()),
    (0, "0, [N/A], [N/A], [N/A]", ()),
    (0, "WARNING: infoROM is corrupted at gpu 0000:3B:00.0\n0, 0, No, No", ()),
    (0, "0, 3, No, No", ("GPU 0 has 3 uncorrectable memory errors",)),
    (0, "0, 0, Yes, No", ("GPU 0 failed to remap a row",)),
    (0, "0, 0, No, Yes", ("GPU 0 has rows to remap, which needs a reset",)),
    (9, "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.", None),
    (15, "Unable to determine the device handle for GPU0000:3B:00.0: GPU is lost.  Reboot the system", "GPU is lost"),
]


@pytest.mark.parametrize(("code", "output", "problems"), NVIDIA_SMI)
def test_hardware_errors_are_read_from_nvidia_smi(code: int, output: str, problems: object) -> None:
    found = parse_nvidia_smi(code, output)
    assert problems in found[0] if found and isinstance(problems, str) else found == problems


def test_pods_see_each_others_files(tmp_path: Path) -> None:
    folder = shared_folder.get_scratch_folder(str(tmp_path / "run"), "x")
    assert [shared_folder.write_file(folder, pod) for pod in "ab"] == [None, None]
    found = shared_folder.find_files(folder, "a", None, ["a", "b"])
    assert (found.unseen, found.free > 0) == ((), True)
    shared_folder.remove_folder(folder)
    assert list((tmp_path / "run").iterdir()) == []


def test_files_that_are_not_visible_are_returned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_folder, "VISIBILITY_TIMEOUT_S", 0.2)
    folder = shared_folder.get_scratch_folder(str(tmp_path), "x")
    assert shared_folder.write_file(folder, "a") is None
    assert shared_folder.find_files(folder, "a", None, ["a", "b"]).unseen == ("b",)


def test_a_folder_that_cannot_be_written_returns_the_error(tmp_path: Path) -> None:
    (tmp_path / "run").write_text("a file")
    folder = shared_folder.get_scratch_folder(str(tmp_path / "run"), "x")
    assert shared_folder.write_file(folder, "a") == "Not a directory"


def test_a_volume_without_rename_is_reported(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()  # a file cannot replace it
    assert shared_folder.write_file(tmp_path, "a") == "rename: Is a directory"


def test_a_peer_that_does_not_listen_is_a_broken_link() -> None:
    with listen(LOOPBACK) as open_, socket.create_server((LOOPBACK, 0)) as closed:
        closed_port = closed.getsockname()[1]
        closed.close()
        peers = [Listener("b", LOOPBACK, open_.getsockname()[1]), Listener("c", LOOPBACK, closed_port)]
        (link,) = find_broken_links("a", peers, timeout_s=2)
        ports = (open_.getsockname()[1], closed_port)
        assert find_unreachable_ports(LOOPBACK, ports) == {closed_port: "127.0.0.1: Connection refused"}
    assert (link.pod, link.peer, link.error) == ("a", "c", "127.0.0.1: Connection refused")


def test_a_name_without_an_address_is_reported() -> None:
    assert find_resolution_error("localhost") is None
    assert find_resolution_error("name.invalid") is not None


def test_variables_are_compared_without_their_values() -> None:
    own = {"HF_TOKEN": "secret", "CUDA_VISIBLE_DEVICES": "1", "VLLM_HOST_IP": "10.0.0.1"}
    digests = digest_variables({"NCCL_DEBUG": "INFO", **own})
    assert list(digests) == ["NCCL_DEBUG"]
    assert digests != digest_variables({"NCCL_DEBUG": "WARN"})


REPORT = {"seconds": 3.14, "resumeSeconds": 8.0, "checkpointBytes": 2**30, "text": "Hi", "peakMemory": 60 * 2**30}


def test_a_trial_without_responses_is_checked() -> None:
    step, _ = check_report({name: value for name, value in REPORT.items() if name not in ("text", "peakMemory")}, None)
    assert step.message == "One step is done."


def test_the_report_of_the_trial_is_checked() -> None:
    step, memory, checkpoint = check_report(REPORT, 80 * 2**30)
    assert (step.value, step.message) == ("3.1 s", "One step is done. The first response is 'Hi'.")
    assert (memory.result, memory.value, memory.threshold) == ("passed", "60.0Gi", "80.0Gi")
    assert (checkpoint.result, checkpoint.value) == ("passed", "1.0Gi")
    assert check_report(REPORT, 61 * 2**30)[1].result == "warned"
    assert [each.name for each in check_report(REPORT, None)] == ["training-step", "checkpoint"]


def run_script(script: str, timeout_s: float = 60.0) -> tuple[str, str, str | None]:
    """Run a Python script as the trial. Its last argument is the file of the report."""
    (result,) = run_trial([sys.executable, "-c", script], timeout_s=timeout_s)[:1]
    return result.name, result.result, result.message


def test_a_trial_that_fails_is_quoted() -> None:
    error = "print('loading'); raise SystemExit('rlt-trainer: error: model.path: /m: no such folder.')"
    assert run_script(error) == ("training-step", "failed", "model.path: /m: no such folder.")
    assert run_script("raise SystemExit(9)")[2] == "The program exited with code 9: "
    assert "did not end within 0 s" in str(run_script("import threading; threading.Event().wait()", 0.2)[2])


def test_the_report_of_a_trial_is_read() -> None:
    script = f"import sys; open(sys.argv[-1], 'w').write({json.dumps(json.dumps(REPORT))})"
    assert run_script(script)[:2] == ("training-step", "passed")
