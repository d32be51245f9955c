"""The config of the model: its architecture, without weights."""

from __future__ import annotations

from contextlib import suppress

from transformers import AutoConfig, GenerationConfig, PreTrainedConfig

from rlt_api.blocks.algorithm import Distillation
from rlt_api.blocks.model import Model
from rlt_api.spec.training_config import TrainingConfig
from rlt_trainer.data.image_processor import ImageProcessor
from rlt_trainer.data.seeded_model import build_seeded_config
from rlt_trainer.policy.families import VISION


def load_config(model: Model) -> PreTrainedConfig:
    """Load the config of `model`. Raises ValueError naming model.path if it cannot be loaded."""
    if model.from_seed is not None:
        return build_seeded_config(model.from_seed)
    assert model.path
    return load_config_from(model.path, revision=model.revision, trust_remote_code=model.trust_remote_code)


def find_eos_tokens(model: Model, architecture: PreTrainedConfig) -> set[int]:
    """Return the EOS tokens of the model's config and generation config. Empty if neither sets them."""
    named = [getattr(architecture.get_text_config(), "eos_token_id", None)]
    if model.path is not None:
        with suppress(OSError):  # the model has no generation config
            named.append(GenerationConfig.from_pretrained(model.path, revision=model.revision or "main").eos_token_id)
    return {token for each in named for token in (each if isinstance(each, list) else [each]) if token is not None}


def resolve_critic_model(config: TrainingConfig) -> Model:
    """Return the model that the critic is initialized from: algorithm.critic.modelPath, or the policy's model."""
    critic = config.algorithm.critic
    if critic is None or critic.model_path is None:
        return config.model
    trusted = config.model.trust_remote_code
    return Model(path=critic.model_path, revision=critic.model_revision, trust_remote_code=trusted)


def resolve_teacher_model(config: TrainingConfig, distillation: Distillation) -> Model:
    """Return the model of the teacher."""
    path = distillation.model_path
    revision = distillation.model_revision
    return Model(path=path, revision=revision, trust_remote_code=config.model.trust_remote_code)


def load_config_from(path: str, *, revision: str | None = None, trust_remote_code: bool = False) -> PreTrainedConfig:
    """Load the config at `path`, a folder or a name on the hub. Raises ValueError naming it if it cannot be loaded."""
    try:
        config: PreTrainedConfig = AutoConfig.from_pretrained(
            path, revision=revision, trust_remote_code=trust_remote_code
        )
    except (OSError, ValueError) as error:
        raise build_model_error(path, error) from error
    return config


def load_image_processor(config: TrainingConfig) -> ImageProcessor | None:
    """Load the image processor of the policy. None: no prompt has images (data.imageKey).

    Raises ValueError if the model has none, if it is not a vision-language model, or if it is one and no prompt has
    images.
    """
    architecture = load_config(config.model)
    sees = architecture.model_type in VISION
    if config.data.image_key is None:
        if sees:
            raise ValueError(
                f"model.path {config.model.path}: models of type {architecture.model_type} require prompts with "
                "images. Set data.imageKey, or use a model of text alone."
            )
        return None
    if not sees:
        raise ValueError(
            f"data.imageKey: {config.data.image_key} requires a model of type {', '.join(VISION)}, and "
            f"{config.model.path or 'model.fromSeed'} is of type {architecture.model_type}. Change model.path, or "
            "remove imageKey."
        )
    assert config.model.path
    return ImageProcessor(config.model.path, architecture, revision=config.model.revision)


def build_model_error(path: str, error: Exception) -> ValueError:
    """Build the error for a model at `path` that cannot be loaded."""
    reason = str(error).strip().partition("\n")[0]
    return ValueError(
        f"model.path {path}: no causal language model can be loaded from it ({reason}). Use a folder in the pods with "
        "config.json and weights, or the name of a model on the Hugging Face hub. A model with custom code needs "
        "model.trustRemoteCode."
    )
