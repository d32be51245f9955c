"""The nodes that are asked for, as far as no cluster has to run for them."""

from cluster.fake_nodes import RACK, TAINT, ZONE, FakeNode, racks


def test_racks_lie_in_two_zones() -> None:
    nodes = racks(4, nodes=2, gpus=8)
    assert [(node.name, node.labels[RACK], node.labels[ZONE]) for node in nodes[2:5]] == [
        ("rack-1-0", "rack-1", "a"),
        ("rack-1-1", "rack-1", "a"),
        ("rack-2-0", "rack-2", "b"),
    ]
    assert len({node.name for node in nodes}) == 8


def test_a_fake_node_takes_only_pods_that_tolerate_it() -> None:
    manifest = FakeNode("one", {RACK: "r"}, {"nvidia.com/gpu": "8"}).manifest()
    assert manifest["spec"] == {"taints": [TAINT]}
    amounts = {"cpu": "128", "memory": "2Ti", "pods": "110", "nvidia.com/gpu": "8"}
    assert manifest["status"] == {"capacity": amounts, "allocatable": amounts}
