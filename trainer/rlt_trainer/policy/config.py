"""The architecture of the model, without its weights."""

from __future__ import annotations

from contextlib import suppress

from transformers import AutoConfig, GenerationConfig, PreTrainedConfig

from rlt_api.blocks.model import Model
from rlt_api.training_config import TrainingConfig
from rlt_trainer.data.seeded_model import seeded_config


def load_config(model: Model) -> PreTrainedConfig:
    """The architecture of `model`. Raises ValueError naming model.path if there is none."""
    if model.from_seed is not None:
        return seeded_config(model.from_seed)
    assert model.path
    return config_at(model.path, revision=model.revision, trust_remote_code=model.trust_remote_code)


def end_tokens(model: Model, architecture: PreTrainedConfig) -> set[int]:
    """The tokens that end a text by the model's config and generation config. Empty where neither says."""
    named = [getattr(architecture.get_text_config(), "eos_token_id", None)]
    if model.path is not None:
        with suppress(OSError):  # it has no generation config
            named.append(GenerationConfig.from_pretrained(model.path, revision=model.revision or "main").eos_token_id)
    return {token for each in named for token in (each if isinstance(each, list) else [each]) if token is not None}


def critic_model(config: TrainingConfig) -> Model:
    """What the critic starts from: algorithm.critic.modelPath, or the policy's model."""
    critic = config.algorithm.critic
    if critic is None or critic.model_path is None:
        return config.model
    trusted = config.model.trust_remote_code
    return Model(path=critic.model_path, revision=critic.model_revision, trust_remote_code=trusted)


def config_at(path: str, *, revision: str | None = None, trust_remote_code: bool = False) -> PreTrainedConfig:
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
        "pods with config.json and weights, or the name of a model on the Hugging Face hub. Code that it brings along "
        "is run with model.trustRemoteCode alone."
    )
