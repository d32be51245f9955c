"""Node sets of the golden matrix, each with a demand and the expected decision."""

from __future__ import annotations

from fabric.node_set import Case
from fabric.node_sets_clouds import CLOUDS
from fabric.node_sets_devices import DEVICES
from fabric.node_sets_mixed import MIXED
from fabric.node_sets_on_premises import ON_PREMISES
from fabric.node_sets_rejected import REJECTED

CASES: dict[str, Case] = {**ON_PREMISES, **CLOUDS, **MIXED, **REJECTED, **DEVICES}
"""Name -> node set."""
