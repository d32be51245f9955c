"""The tokenizer of a model, and whether it belongs to that model."""

from __future__ import annotations

import logging
from pathlib import Path

from transformers import AutoTokenizer, PreTrainedTokenizerBase

from rlt_api.blocks.model import Model
from rlt_trainer.data.byte_tokenizer import byte_tokenizer

_log = logging.getLogger(__name__)


def load_tokenizer(model: Model) -> PreTrainedTokenizerBase:
    """The tokenizer of `model`; padding falls back to the end-of-text token where the model names no other.

    (What is padding is known from masks, so that the token's number does not matter. verl does the same.)

    Raises ValueError when there is none at model.path, or when it has no end-of-text token.
    """
    if model.path is None:
        return byte_tokenizer()
    if model.path.startswith(("/", ".")) and not Path(model.path).is_dir():
        raise ValueError(
            f"model.path {model.path}: no such folder in the pod. Put a Hugging Face model there "
            "(spec.storage mounts a volume in all pods), or name a model on the Hugging Face hub."
        )
    try:
        tokenizer: PreTrainedTokenizerBase = AutoTokenizer.from_pretrained(
            model.path, revision=model.revision or "main", trust_remote_code=model.trust_remote_code
        )
    except (OSError, ValueError) as error:
        raise ValueError(
            f"model.path {model.path}: no tokenizer can be loaded from it ({_first_line(error)}). It must be a folder "
            "in the pods with tokenizer.json and config.json, or the name of a model on the Hugging Face hub."
        ) from error
    if tokenizer.eos_token_id is None:
        raise ValueError(
            f"model.path {model.path}: its tokenizer has no end-of-text token, so that no response would end. "
            "Set eos_token in its tokenizer_config.json."
        )
    if tokenizer.pad_token_id is None:
        _log.warning("model.path %s: its tokenizer has no padding token, the end-of-text token is used", model.path)
        tokenizer.pad_token = tokenizer.eos_token
    return tokenizer


def check_tokenizer(tokenizer: PreTrainedTokenizerBase, vocabulary_size: int, *, path: str) -> None:
    """Raises ValueError when the tokenizer has tokens that the model at `path` has no embedding for.

    `vocabulary_size` is the model's, which is often rounded up. A token beyond it is one that a GPU reads from
    memory that is not the embedding's.
    """
    token, number = last_token(tokenizer)
    if number >= vocabulary_size:
        raise ValueError(
            f"model.path {path}: its tokenizer has {len(tokenizer.get_vocab())} tokens, the last being {token!r} with "
            f"number {number}, and the model has embeddings for {vocabulary_size}. The tokenizer is another model's: "
            "copy tokenizer.json and tokenizer_config.json of this model there, or resize its embeddings."
        )


def check_end_of_text(tokenizer: PreTrainedTokenizerBase, ends: set[int], *, path: str) -> None:
    """Warn where the tokenizer's end-of-text token is none of those that the configs of the model at `path` name."""
    if ends and tokenizer.eos_token_id not in ends:
        _log.warning(
            "model.path %s: its tokenizer ends a text with %r, number %s; its config and generation config name %s. "
            "If the tokenizer is another model's, responses will hardly end: take the model's own, or set eos_token.",
            path,
            tokenizer.eos_token,
            tokenizer.eos_token_id,
            " and ".join(f"{token} ({tokenizer.convert_ids_to_tokens(token)!r})" for token in sorted(ends)),
        )


def check_critic(tokenizer: PreTrainedTokenizerBase, vocabulary_size: int, *, path: str) -> None:
    """Raises ValueError when the policy's tokenizer has tokens that the critic at `path` has no embedding for."""
    token, number = last_token(tokenizer)
    if number >= vocabulary_size:
        raise ValueError(
            f"algorithm.critic.modelPath {path}: it has embeddings for {vocabulary_size} tokens, and the policy's "
            f"tokenizer goes up to {token!r} with number {number}. The critic reads what the policy writes: take a "
            "model with the same tokenizer, or leave modelPath out."
        )


def last_token(tokenizer: PreTrainedTokenizerBase) -> tuple[str, int]:
    """The token with the highest number."""
    ids = tokenizer.get_vocab()
    token = max(ids, key=ids.__getitem__)
    return token, ids[token]


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0]
