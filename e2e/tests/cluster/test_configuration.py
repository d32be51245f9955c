"""Names, addresses and configuration of a cluster that is not running."""

from pathlib import Path

import pytest

from rlt_e2e.cluster import addons, cgroups, control_plane, go_programs, programs
from rlt_e2e.cluster.agent_sandbox import AGENT_SANDBOX
from rlt_e2e.cluster.cert_manager import CERT_MANAGER
from rlt_e2e.cluster.fake_nodes import KWOK
from rlt_e2e.cluster.kueue import KUEUE
from rlt_e2e.cluster.layout import Layout
from rlt_e2e.cluster.s3_server import S3


def test_addresses_of_nodes_and_pods_are_in_the_clusters_network() -> None:
    first, second = Layout(Path("/state"), 2, subnet=77).all_nodes()
    assert (first.address, first.pods) == ("10.77.0.2", "10.77.1.0/24")
    assert (second.address, second.pods) == ("10.77.0.3", "10.77.2.0/24")


def test_link_names_have_at_most_15_characters() -> None:
    assert all(len(node.veth) <= 15 for node in Layout(Path("/state"), 99, subnet=255).all_nodes())


def test_unknown_node_is_rejected_with_the_existing_nodes() -> None:
    with pytest.raises(ValueError, match=r"node 'node-3' does not exist: .*node-1.*node-2"):
        Layout(Path("/state"), 2).node("node-3")


@pytest.mark.parametrize(("nodes", "address"), [(0, "127.0.0.1"), (2, "10.100.0.1")])
def test_control_plane_listens_on_one_address(nodes: int, address: str) -> None:
    layout = Layout(Path("/state"), nodes)
    for name in control_plane.list_processes(layout):
        command = " ".join(control_plane.build_command(layout, name))
        assert "0.0.0.0" not in command
    assert f"--bind-address={address}" in control_plane.build_command(layout, "kube-apiserver")


def test_api_server_rejects_anonymous_requests() -> None:
    command = control_plane.build_command(Layout(Path("/state"), 2), "kube-apiserver")
    assert "--anonymous-auth=false" in command
    assert "--authorization-mode=Node,RBAC" in command


def test_every_pinned_program_has_a_version() -> None:
    pins = go_programs.parse_versions((go_programs.GO_FOLDER / "go.mod").read_text())
    assert pins["k8s.io/kubernetes"].startswith("v1.")
    assert pins["github.com/ray-project/kuberay/ray-operator"].startswith("v1.")


FAMILIES = (programs.CLUSTER, AGENT_SANDBOX, CERT_MANAGER, KUEUE, KWOK, S3)


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)
def test_modules_with_copied_files_are_pinned(family: go_programs.Family) -> None:
    pins = go_programs.parse_versions((family.module / "go.mod").read_text())
    assert {module for module, _, _ in family.copies} <= set(pins)
    assert "v0.0.0" not in family.linker_flags()


def test_go_version_is_parsed_as_numbers() -> None:
    assert go_programs.parse_go_version("module x\n\ngo 1.25.0\n") == (1, 25, 0)


def test_environment_is_mounted_read_only_in_trainer_images_only() -> None:
    policy = addons.environment_policy()[0]["spec"]
    assert isinstance(policy, dict)
    patch = policy["mutations"][0]["applyConfiguration"]["expression"]
    assert patch.count("readOnly: true") == 2 * len(addons.MOUNTED)
    assert f'startsWith("{addons.TRAINER_IMAGES}")' in policy["matchConditions"][0]["expression"]


def test_hierarchies_of_both_cgroup_versions_are_found() -> None:
    mounts = (
        "tmpfs /sys/fs/cgroup tmpfs rw 0 0\n"
        "cgroup /sys/fs/cgroup/memory cgroup rw,memory 0 0\n"
        "cgroup2 /sys/fs/cgroup/unified cgroup2 rw 0 0\n"
    )
    expected = [(Path("/sys/fs/cgroup/memory"), False), (Path("/sys/fs/cgroup/unified"), True)]
    assert cgroups.parse_hierarchies(mounts) == expected
