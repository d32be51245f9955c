"""The rollouts of a step."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Rollout = Mapping[str, Any]
"""A line of rollouts/step-N.jsonl: prompt, response, reward, and more."""
