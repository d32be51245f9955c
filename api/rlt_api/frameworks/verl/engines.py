"""The settings of another engine than FSDP: the keys that its config has, and Megatron's own names."""

from __future__ import annotations

import re
from collections.abc import Mapping

from pydantic import JsonValue

from rlt_api.frameworks.verl.keys import load_keys

MEGATRON: Mapping[str, str] = {
    r"\.fsdp_config\.(param_offload|optimizer_offload|seed)$": r".megatron.\1",
    r"^critic\.fsdp\.(param_offload|optimizer_offload)$": r"critic.megatron.\1",
    r"\.ulysses_sequence_parallel_size$": ".megatron.context_parallel_size",
    r"\.optim\.lr_scheduler_type$": ".optim.lr_decay_style",
}
"""FSDP's key -> Megatron's."""
OF_FSDP = re.compile(r"\.fsdp(_config)?\.")


def fit_engine(settings: Mapping[str, JsonValue], engine: str) -> dict[str, JsonValue]:
    """Return the settings that the engine has. Hydra ends with an error for other keys, such as actor.grad_clip, which
    all engines also have as actor.optim.clip_grad, and actor.strategy follows from the engine."""
    if engine == "dp":
        return dict(settings)
    keys = load_keys(engine)
    fitted = {}
    for key, value in settings.items():
        name = _rename(key) if engine == "megatron" else key
        is_added = name.startswith("+") and not OF_FSDP.search(name)
        if is_added or (name in keys and not name.endswith(".strategy")):
            fitted[name] = value
    return fitted


def _rename(key: str) -> str:
    for pattern, replacement in MEGATRON.items():
        key = re.sub(pattern, replacement, key)
    return key
