"""A reward model: a transformers sequence classifier with one output. Its logit is the score."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.fsdp import FSDPModule
from transformers import AutoTokenizer, PreTrainedModel, PreTrainedTokenizerBase

from rlt_api.blocks.model import Model
from rlt_trainer.data.encoding import chat_text
from rlt_trainer.data.prompt import Messages
from rlt_trainer.policy.model_files import prepare_model_files
from rlt_trainer.policy.sharded_model import ModelOptions, load_sharded_model

MAX_TOKENS = 16384
"""Maximum number of tokens in one forward pass, including padding."""


class RewardModel:
    """A model whose weights are sharded over all train workers. All methods are collective."""

    def __init__(self, path: str, options: ModelOptions) -> None:
        """Load the model at `path`, a folder or a name on the hub. `options` must be frozen.

        Raises ValueError unless it is a classifier with one output.
        """
        try:
            files = prepare_model_files(Model(path=path), Path())
            model = load_sharded_model("reward", files, options, compute_logits)
            tokenizer: PreTrainedTokenizerBase = AutoTokenizer.from_pretrained(
                files, trust_remote_code=options.trust_remote_code
            )
        except (OSError, ValueError) as error:
            reason = str(error.__cause__ or error).strip().partition("\n")[0]
            raise ValueError(
                f"rewards: model {path} is not a reward model ({reason}). Set a folder in the pods or a name on the "
                "Hugging Face hub that has a sequence classifier with one output and its tokenizer."
            ) from error
        self._tokenizer = tokenizer
        self._model = model
        self._device = torch.device(options.mesh.device_type)
        text_config = model.config.get_text_config()
        self._max_length: int | None = getattr(text_config, "max_position_embeddings", None)
        pad = tokenizer.pad_token_id
        # The classifier scores the last token that is not padding. If padding is missing or equals the end-of-text
        # token, it cannot find that token, and sequences are scored one at a time.
        self._pad = None if pad is None or pad == tokenizer.eos_token_id else pad
        if self._pad is not None:
            self._model.config.get_text_config().pad_token_id = self._pad

    @torch.no_grad()
    def score(self, prompts: Sequence[str | Messages], responses: Sequence[str]) -> Tensor:
        """Return the scores [B] of this rank's B responses, float32, on the CPU. B differs between ranks, and can be 0.

        NaN if prompt and response exceed the model's maximum length.

        A conversation is rendered by the reward model's chat template with the response as the last assistant message.
        The response is appended to a prompt that is plain text.
        """
        sequences = [self._tokens(prompt, response) for prompt, response in zip(prompts, responses, strict=True)]
        scores = torch.full((len(sequences),), torch.nan)
        batches = list(self._batches(sequences))
        fillers = self._count_most(len(batches)) - len(batches)
        for rows in batches:
            scores[rows] = self._forward([sequences[row] for row in rows])
        for _ in range(fillers):
            self._forward([[0]])  # every rank must gather the weights for every pass
        assert isinstance(self._model, FSDPModule)
        self._model.reshard()  # FSDP2 keeps the gathered root weights for a backward pass
        return scores

    def _forward(self, sequences: Sequence[Sequence[int]]) -> Tensor:
        width = max(map(len, sequences))
        padded = [[*tokens, *[self._pad or 0] * (width - len(tokens))] for tokens in sequences]
        mask = [[1] * len(tokens) + [0] * (width - len(tokens)) for tokens in sequences]
        logits = self._model(torch.tensor(padded, device=self._device), torch.tensor(mask, device=self._device))
        return logits[:, 0].float().cpu()  # type: ignore[no-any-return]

    def _count_most(self, passes: int) -> int:
        """Return the largest number of passes over all ranks."""
        largest = torch.tensor(passes, device=self._device)
        dist.all_reduce(largest, dist.ReduceOp.MAX)
        return int(largest)

    def _tokens(self, prompt: str | Messages, response: str) -> list[int]:
        if isinstance(prompt, str):
            plain: list[int] = self._tokenizer(prompt + response)["input_ids"]
            return plain
        whole = [*prompt, {"role": "assistant", "content": response}]
        text = chat_text(whole, self._tokenizer, add_generation_prompt=False)
        chat: list[int] = self._tokenizer(text, add_special_tokens=False)["input_ids"]
        return chat

    def _batches(self, sequences: Sequence[Sequence[int]]) -> Iterator[list[int]]:
        """Yield batches of similarly long rows. Rows that exceed the maximum length are left out."""
        batch: list[int] = []
        for row in sorted(range(len(sequences)), key=lambda row: len(sequences[row])):
            width = len(sequences[row])
            if width == 0 or (self._max_length is not None and width > self._max_length):
                continue
            if batch and (self._pad is None or (len(batch) + 1) * width > MAX_TOKENS):
                yield batch
                batch = []
            batch.append(row)
        if batch:
            yield batch


def compute_logits(model: PreTrainedModel, token_ids: Tensor, mask: Tensor) -> Tensor:
    """Compute the logits [B, 1] of padded sequences [B, L]."""
    logits: Tensor = type(model).forward(model, input_ids=token_ids, attention_mask=mask).logits
    return logits
