"""The immutable blocks of a job's spec: as CEL rules for the CRD, and as a comparison for the webhook."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

IMMUTABLE_BLOCKS = (
    "runtimeRef",
    "framework",
    "managedBy",
    "model",
    "data",
    "rewards",
    "algorithm",
    "training",
    "evaluation",
    "evaluateOnly",
    "publish",
    "rollout",
    "cluster",
    "network",
    "scheduling",
    "storage",
    "checkpoint",
    "preflight",
    "failurePolicy",
    "observability",
    "security",
)
"""Blocks that have an effect only when the job starts. Every reconciliation reads the others."""


def immutability_rules() -> Iterator[tuple[str, str]]:
    """Yield the CEL expression and the message for each block (`model.cel`)."""
    for block in IMMUTABLE_BLOCKS:
        given = f"has(self.{block})"
        rule = f"{given} == has(oldSelf.{block}) && (!{given} || self.{block} == oldSelf.{block})"
        yield rule, f"{block} is immutable: create a job with another name, or delete this one first"


def changed_blocks(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    """Return the immutable blocks in which two specs differ."""
    return [block for block in IMMUTABLE_BLOCKS if old.get(block) != new.get(block)]
