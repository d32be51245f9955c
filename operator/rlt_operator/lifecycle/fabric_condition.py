"""The condition FabricVerified, from what was decided about the network. Pure."""

from __future__ import annotations

from rlt_api.conditions import Reason
from rlt_api.status import NetworkStatus
from rlt_operator.conditions import ConditionUpdate


def fabric_condition(network: NetworkStatus) -> ConditionUpdate:
    """FabricVerified."""
    what = f"Profile {network.profile}, fabric {network.fabric}"
    if network.refused:
        return ConditionUpdate("False", network.refused.code, _sentence(network.refused.message))
    if not network.agree:
        return ConditionUpdate("False", Reason.NODES_DISAGREE, _sentence(network.warnings[0]))
    if network.candidates == 0:
        return ConditionUpdate("Unknown", Reason.NO_NODES, f"{what}; there is no node for a worker yet.")
    nodes = f"{network.candidates} node{'s' * (network.candidates > 1)}"
    return ConditionUpdate("True", Reason.FABRIC_FOUND, f"{what}, on {nodes}.")


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:].removesuffix('.')}."
