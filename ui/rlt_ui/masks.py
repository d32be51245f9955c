"""Rollouts without the plain-text secrets of their run."""

from __future__ import annotations

from typing import Any

from rlt_api.findings.masking import mask_text
from rlt_ui.source import Json


def mask_rollouts(rollouts: list[Json], secrets: list[str]) -> list[Json]:
    """Rollouts with the secrets in their texts masked. Of one with a secret in its tokens, the tokens are left out."""

    def has_secret(rollout: Json) -> bool:
        text = "".join(rollout.get("by_token", {}).get("texts", []))
        return mask_text(text, secrets) != text

    kept = [{key: each[key] for key in each if key != "by_token"} if has_secret(each) else each for each in rollouts]
    return [mask(each, secrets) for each in kept]


def mask(value: Any, secrets: list[str]) -> Any:
    """JSON with the secrets in its texts masked."""
    if isinstance(value, str):
        return mask_text(value, secrets)
    if isinstance(value, dict):
        return {key: mask(each, secrets) for key, each in value.items()}
    return [mask(each, secrets) for each in value] if isinstance(value, list) else value
