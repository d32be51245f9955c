"""Manifests of fake nodes."""

from rlt_e2e.cluster.fake_nodes import RACK, TAINT, ZONE, FakeNode, build_racks


def test_racks_are_in_two_zones() -> None:
    nodes = build_racks(4, nodes=2, gpus=8)
    assert [(node.name, node.labels[RACK], node.labels[ZONE]) for node in nodes[2:5]] == [
        ("rack-1-0", "rack-1", "a"),
        ("rack-1-1", "rack-1", "a"),
        ("rack-2-0", "rack-2", "b"),
    ]
    assert len({node.name for node in nodes}) == 8


def test_fake_node_has_a_taint_and_its_resources() -> None:
    manifest = FakeNode("one", {RACK: "r"}, {"nvidia.com/gpu": "8"}).build_manifest()
    assert manifest["spec"] == {"taints": [TAINT]}
    amounts = {"cpu": "128", "memory": "2Ti", "pods": "110", "nvidia.com/gpu": "8"}
    assert manifest["status"] == {"capacity": amounts, "allocatable": amounts}
