"""The architecture of the model, without its weights."""

from __future__ import annotations

from transformers import AutoConfig, PreTrainedConfig

from rlt_api.blocks.model import Model
from rlt_trainer.data.seeded_model import seeded_config


def load_config(model: Model) -> PreTrainedConfig:
    """The architecture of `model`. Raises ValueError naming model.path if there is none."""
    if model.from_seed is not None:
        return seeded_config(model.from_seed)
    assert model.path
    return configured(model.path, revision=model.revision, trust_remote_code=model.trust_remote_code)


def configured(path: str, *, revision: str | None = None, trust_remote_code: bool = False) -> PreTrainedConfig:
    """The architecture at `path`, a folder or a name on the hub. Raises ValueError naming it if there is none."""
    try:
        config: PreTrainedConfig = AutoConfig.from_pretrained(
            path, revision=revision, trust_remote_code=trust_remote_code
        )
    except (OSError, ValueError) as error:
        raise unusable(path, error) from error
    return config


def unusable(path: str, error: Exception) -> ValueError:
    """The error for a model at `path` that cannot be loaded."""
    reason = str(error).strip().partition("\n")[0]
    return ValueError(
        f"model.path {path}: no causal language model can be loaded from it ({reason}). It must be a folder in the "
        "pods with config.json and weights, or the name of a model on the Hugging Face hub."
    )
