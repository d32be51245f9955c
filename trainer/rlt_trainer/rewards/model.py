"""A reward model: a transformers sequence classifier with one output. Its logit is the score."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor
from transformers import AutoConfig, AutoModelForSequenceClassification, AutoTokenizer, PreTrainedTokenizerBase

from rlt_trainer.data.encoding import chat_text
from rlt_trainer.data.prompt import Messages

MAX_TOKENS = 16384
"""Maximum number of tokens in one forward pass, including padding."""


class RewardModel:
    """A complete copy of the model on one device."""

    def __init__(self, path: str, *, device: torch.device, dtype: torch.dtype, trust_remote_code: bool = False) -> None:
        """Load the model at `path`, a folder or a name on the hub. Raises ValueError unless it is a classifier with one
        output."""
        try:
            config = AutoConfig.from_pretrained(path, trust_remote_code=trust_remote_code)
            if config.num_labels != 1:
                raise ValueError(f"it has {config.num_labels} outputs, not one")
            model, report = AutoModelForSequenceClassification.from_pretrained(
                path, dtype=dtype, trust_remote_code=trust_remote_code, output_loading_info=True
            )
            if report["missing_keys"]:  # for example a language model: transformers would initialize the head at random
                raise ValueError(f"it has no weights for {', '.join(sorted(report['missing_keys']))}")
            tokenizer: PreTrainedTokenizerBase = AutoTokenizer.from_pretrained(
                path, trust_remote_code=trust_remote_code
            )
        except (OSError, ValueError) as error:
            reason = str(error).strip().partition("\n")[0]
            raise ValueError(
                f"rewards: model {path} is not a reward model ({reason}). Set a folder in the pods or a name on the "
                "Hugging Face hub that has a sequence classifier with one output and its tokenizer."
            ) from error
        self._tokenizer = tokenizer
        self._model = model.to(device).eval().requires_grad_(False)
        self._device = device
        text_config = config.get_text_config()
        self._max_length: int | None = getattr(text_config, "max_position_embeddings", None)
        pad = tokenizer.pad_token_id
        # The classifier scores the last token that is not padding. If padding is missing or equals the end-of-text
        # token, it cannot find that token, and sequences are scored one at a time.
        self._pad = None if pad is None or pad == tokenizer.eos_token_id else pad
        if self._pad is not None:
            self._model.config.get_text_config().pad_token_id = self._pad

    @torch.no_grad()
    def score(self, prompts: Sequence[str | Messages], responses: Sequence[str]) -> Tensor:
        """Return the scores [B] of B responses, float32, on the CPU. NaN if prompt and response exceed the model's
        maximum length.

        A conversation is rendered by the reward model's chat template with the response as the last assistant message.
        The response is appended to a prompt that is plain text.
        """
        sequences = [self._tokens(prompt, response) for prompt, response in zip(prompts, responses, strict=True)]
        scores = torch.full((len(sequences),), torch.nan)
        for rows in self._batches(sequences):
            width = max(len(sequences[row]) for row in rows)
            padded = [[*sequences[row], *[self._pad or 0] * (width - len(sequences[row]))] for row in rows]
            mask = [[1] * len(sequences[row]) + [0] * (width - len(sequences[row])) for row in rows]
            logits = self._model(
                input_ids=torch.tensor(padded, device=self._device),
                attention_mask=torch.tensor(mask, device=self._device),
            ).logits
            scores[rows] = logits[:, 0].float().cpu()
        return scores

    def _tokens(self, prompt: str | Messages, response: str) -> list[int]:
        if isinstance(prompt, str):
            plain: list[int] = self._tokenizer(prompt + response)["input_ids"]
            return plain
        whole = [*prompt, {"role": "assistant", "content": response}]
        text = chat_text(whole, self._tokenizer, add_generation_prompt=False)
        chat: list[int] = self._tokenizer(text, add_special_tokens=False)["input_ids"]
        return chat

    def _batches(self, sequences: Sequence[Sequence[int]]) -> Iterator[list[int]]:
        """Yield batches of rows of similar length. Rows that exceed the maximum length are left out."""
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
