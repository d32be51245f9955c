"""Loading the tokenizer of a model, and validating that it belongs to the model."""

from __future__ import annotations

import logging
from pathlib import Path

from transformers import AutoTokenizer, PreTrainedTokenizerBase

from rlt_api.blocks.model import Model
from rlt_trainer.data.byte_tokenizer import build_byte_tokenizer

_log = logging.getLogger(__name__)


def load_tokenizer(model: Model) -> PreTrainedTokenizerBase:
    """Load the tokenizer of `model`. If it has no padding token, the end-of-text token is used.

    (Masks mark the padding, so the token does not matter. verl does the same.)

    Raises ValueError if model.path has no tokenizer, or if the tokenizer has no end-of-text token.
    """
    if model.path is None:
        return build_byte_tokenizer()
    if model.path.startswith(("/", ".")) and not Path(model.path).is_dir():
        raise ValueError(
            f"model.path {model.path}: no such folder in the pod. Put a Hugging Face model there "
            "(spec.storage mounts a volume in all pods) or set the name of a model on the Hugging Face hub."
        )
    try:
        tokenizer: PreTrainedTokenizerBase = AutoTokenizer.from_pretrained(
            model.path, revision=model.revision or "main", trust_remote_code=model.trust_remote_code
        )
    except (OSError, ValueError) as error:
        raise ValueError(
            f"model.path {model.path}: no tokenizer can be loaded from it ({_first_line(error)}). Set a folder in the "
            "pods with tokenizer.json and config.json, or the name of a model on the Hugging Face hub."
        ) from error
    if tokenizer.eos_token_id is None:
        raise ValueError(
            f"model.path {model.path}: its tokenizer has no end-of-text token, so responses cannot end. "
            "Set eos_token in its tokenizer_config.json."
        )
    if tokenizer.pad_token_id is None:
        _log.warning("tokenizer has no padding token, using the end-of-text token: model.path %s", model.path)
        tokenizer.pad_token = tokenizer.eos_token
    return tokenizer


def validate_tokenizer(tokenizer: PreTrainedTokenizerBase, vocabulary_size: int, *, path: str) -> None:
    """Raise ValueError if the tokenizer has tokens without an embedding in the model at `path`.

    `vocabulary_size` is the model's, which is often rounded up. For a larger token id, a GPU reads memory outside the
    embedding.
    """
    token, number = find_last_token(tokenizer)
    if number >= vocabulary_size:
        raise ValueError(
            f"model.path {path}: its tokenizer has {len(tokenizer.get_vocab())} tokens, the last being {token!r} with "
            f"number {number}, and the model has embeddings for {vocabulary_size}. The tokenizer belongs to another "
            "model: copy tokenizer.json and tokenizer_config.json of this model there, or resize its embeddings."
        )


def validate_critic_tokenizer(tokenizer: PreTrainedTokenizerBase, vocabulary_size: int, *, path: str) -> None:
    """Raise ValueError if the policy's tokenizer has tokens without an embedding in the critic at `path`."""
    token, number = find_last_token(tokenizer)
    if number >= vocabulary_size:
        raise ValueError(
            f"algorithm.critic.modelPath {path}: it has embeddings for {vocabulary_size} tokens, and the policy's "
            f"tokenizer has the token {token!r} with number {number}. The critic reads the policy's tokens: use a "
            "model with the same tokenizer, or remove modelPath."
        )


def warn_about_end_of_text(tokenizer: PreTrainedTokenizerBase, end_tokens: set[int], *, path: str) -> None:
    """Log a warning if the tokenizer's end-of-text token is not in `end_tokens`, from the model's configs."""
    if end_tokens and tokenizer.eos_token_id not in end_tokens:
        _log.warning(
            "end-of-text token of the tokenizer is %r (number %s), but the model's config and generation config have "
            "%s; if the tokenizer belongs to another model, responses rarely end: use the model's tokenizer or set "
            "eos_token: model.path %s",
            tokenizer.eos_token,
            tokenizer.eos_token_id,
            " and ".join(f"{token} ({tokenizer.convert_ids_to_tokens(token)!r})" for token in sorted(end_tokens)),
            path,
        )


def find_last_token(tokenizer: PreTrainedTokenizerBase) -> tuple[str, int]:
    """Return the token with the highest number, and the number."""
    ids = tokenizer.get_vocab()
    token = max(ids, key=ids.__getitem__)
    return token, ids[token]


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0]
