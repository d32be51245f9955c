"""The selection that the warning about mixed nodes names."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from fabric.node_builders import GPUS, HCA, IB, node, nvidia
from fabric.node_set import NVIDIA

from rlt_core.fabric.decision import decide_fabric
from rlt_core.fabric.nodes import parse_nodes

NODES = parse_nodes([*(node(name, nvidia() | IB, GPUS | HCA) for name in "abc"), node("d", nvidia(), GPUS)])


def test_the_named_node_selector_gives_rdma() -> None:
    (warning,) = [each for each in decide_fabric(NODES, [NVIDIA]).warnings if "do not agree" in each]
    found = re.search(r'nodeSelector to \{(\S+): "(\S+)"\}', warning)
    assert found
    decision = decide_fabric(NODES, [replace(NVIDIA, node_selector={found[1]: found[2]})])
    assert (decision.fabric, decision.agree, decision.candidates) == ("infiniband", True, ("a", "b", "c"))


@pytest.mark.parametrize(("workers", "is_named"), [(3, True), (4, False)])
def test_a_selection_has_room_for_all_workers(workers: int, is_named: bool) -> None:
    warnings = decide_fabric(NODES, [replace(NVIDIA, workers=workers)]).warnings
    assert any("to use RDMA" in each for each in warnings) == is_named
