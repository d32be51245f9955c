"""The profile files: required fields, and variables that NCCL supports."""

from __future__ import annotations

import re
from importlib.util import find_spec
from pathlib import Path

import pytest

from rlt_core.fabric.aliases import GPU_RESOURCES
from rlt_core.fabric.machines import find_machine, load_machines
from rlt_core.fabric.profiles import Profile, load_profiles
from rlt_core.fabric.profiles_page import build_profiles_page

FABRIC = re.compile(r"(mnnvl\+)?(infiniband|roce|efa|gib|tcpx|tcpxo|tcp|none)")
ELSEWHERE = {"NCCL_GPUDIRECTTCPX_SOCKET_IFNAME", "NCCL_GPUDIRECTTCPX_CTRL_DEV", "NCCL_FASTRAK_LLCM_DEVICE_DIRECTORY"}
"""Variables of Google's plugins, not of NCCL."""
PLUGINS = {"NCCL_LIB_DIR", "NCCL_MAX_P2P_CHANNELS"}


@pytest.mark.parametrize("profile", load_profiles().values(), ids=lambda profile: profile.name)
def test_a_profile_has_a_source_for_everything(profile: Profile) -> None:
    assert FABRIC.fullmatch(profile.fabric)
    assert profile.sources
    assert profile.attach.source
    assert len({(v.name, v.when) for v in profile.env}) == len(profile.env)
    for variable in (*profile.env, *(v for _, shape in profile.shapes for v in shape)):
        assert variable.value
        assert variable.rule
        assert variable.source.startswith("https://")


@pytest.mark.parametrize("profile", load_profiles().values(), ids=lambda profile: profile.name)
def test_every_profile_sets_the_interfaces(profile: Profile) -> None:
    assert {"NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME"} <= {variable.name for variable in profile.env}


def test_nccl_supports_its_variables() -> None:
    package = find_spec("nvidia.nccl")
    if package is None or not package.submodule_search_locations:
        pytest.skip("NCCL is not installed")
    library = Path(next(iter(package.submodule_search_locations))) / "lib" / "libnccl.so.2"
    binary = library.read_bytes()
    used = {
        variable.name
        for profile in load_profiles().values()
        if dict(profile.match).get("vendor") != ("amd",)
        for variable in (*profile.env, *(v for _, shape in profile.shapes for v in shape))
        if variable.name.startswith("NCCL_")
    }
    unknown = {name for name in used - ELSEWHERE - PLUGINS if name.encode() not in binary}
    assert not unknown


def test_a_machine_has_a_profile_for_its_fabric() -> None:
    for each in load_machines():
        assert each.source.startswith("https://")
        assert any(profile.fabric.endswith(each.fabric) for profile in load_profiles().values())
        assert each.vendor in GPU_RESOURCES.values()
    assert find_machine("m5.large") is None


VERL = """NCCL_DEBUG GPU_MAX_HW_QUEUES TORCH_NCCL_HIGH_PRIORITY NCCL_CHECKS_DISABLE NCCL_IB_HCA NCCL_IB_GID_INDEX
NCCL_CROSS_NIC CUDA_DEVICE_MAX_CONNECTIONS NCCL_PROTO RCCL_MSCCL_ENABLE TOKENIZERS_PARALLELISM HSA_NO_SCRATCH_RECLAIM
HIP_ ROCR_ CUDA_VISIBLE_DEVICES HF_HOME TRANSFORMERS_CACHE SYS_PTRACE seccomp privileged /dev/kfd /dev/dri
/dev/infiniband video --shm-size"""
"""Variables and container options in verl's script for an AMD cluster."""


def test_each_variable_of_verls_amd_cluster_is_kept_or_documented_as_left_out() -> None:
    profile = load_profiles()["amd-roce-mlx5"]
    kept = {variable.name for variable in profile.env}
    assert [name for name in VERL.split() if name not in kept and name not in profile.notes] == []


def test_the_reference_page_is_up_to_date() -> None:
    page = Path(__file__).parents[3] / "docs" / "reference" / "network-profiles.md"
    assert page.read_text() == build_profiles_page()


def test_the_reference_page_has_every_profile_with_its_sources() -> None:
    page = build_profiles_page()
    for profile in load_profiles().values():
        assert f"## {profile.name}" in page
        assert all(source in page for source in profile.sources)
