"""A rollout engine with its sampling settings and the environment of conversations."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Self, TypeVar

import torch
from transformers import PreTrainedTokenizerBase

from rlt_api.training_config import TrainingConfig
from rlt_trainer.batches.response import Response
from rlt_trainer.data.prompt import Prompt
from rlt_trainer.environments.conversation import ConversationLimits, Episode, converse
from rlt_trainer.environments.processes import EnvironmentProcesses
from rlt_trainer.environments.tool import Tool
from rlt_trainer.environments.tool_session import ToolSession
from rlt_trainer.environments.toolbox import open_tools
from rlt_trainer.rollout.engine import RolloutEngine, Sampling
from rlt_trainer.rollout.interruption import InterruptibleEngine
from rlt_trainer.rollout.lock_step import LockStepSampler
from rlt_trainer.rollout.start_engine import build_sampling, load_stop_token_ids, start_engine

MAX_CONVERSATIONS = 256
"""Maximum number of conversations of one engine at the same time. Each has a process for its environment."""

T = TypeVar("T")


class Responder:
    """Generates responses and conversations with the engine of a train worker or rollout worker."""

    def __init__(
        self, config: TrainingConfig, engine: RolloutEngine, sampling: Sampling, tokenizer: PreTrainedTokenizerBase
    ) -> None:
        self.engine = engine
        self.sampling = sampling
        self._config = config
        self._tokenizer = tokenizer
        self._processes: EnvironmentProcesses | None = None

    @classmethod
    def start(
        cls,
        config: TrainingConfig,
        files: str,
        *,
        device: torch.device,
        tokenizer: PreTrainedTokenizerBase,
        interruptible: bool = False,
    ) -> Self:
        """Start the engine for the model in the folder `files`. `interruptible`: new weights may arrive at any time.

        Raises ValueError or EngineError.
        """
        stops = load_stop_token_ids(files, tokenizer.eos_token_id, trust_remote_code=config.model.trust_remote_code)
        sampling = build_sampling(config, stops)
        engine = start_engine(config, files=files, device=device, sampling=sampling)
        return cls(config, InterruptibleEngine(engine, sampling) if interruptible else engine, sampling, tokenizer)

    def generate(self, prompts: Sequence[Sequence[int]], seeds: Sequence[int]) -> list[Response]:
        """Sample one response to each prompt."""
        return self._join(self.engine.generate(prompts, seeds) if prompts else [])

    def generate_greedily(self, prompts: Sequence[Sequence[int]], seeds: Sequence[int]) -> list[Response]:
        """Generate the most probable response to each prompt."""
        return self._join(self.engine.generate(prompts, seeds, self.sampling.greedy()) if prompts else [])

    def converse(
        self, prompts: Sequence[Prompt], seeds: Sequence[int], sampling: Sampling | None = None
    ) -> list[Episode]:
        """Sample one conversation with the environment on each prompt."""
        return self._join(asyncio.run(self._converse(prompts, seeds, sampling or self.sampling)))

    async def _converse(self, prompts: Sequence[Prompt], seeds: Sequence[int], sampling: Sampling) -> list[Episode]:
        multi_turn, data = self._config.rollout.multi_turn, self._config.data
        assert multi_turn is not None
        limits = ConversationLimits(multi_turn.max_turns, data.max_response_length)
        sampler, slots = LockStepSampler(self.engine), asyncio.Semaphore(MAX_CONVERSATIONS)
        processes = self._processes = self._processes or EnvironmentProcesses(multi_turn)

        async def run(tools: Mapping[str, Tool], prompt: Prompt, seed: int) -> Episode:
            async with slots:
                with sampler.conversation():
                    return await converse(
                        sampler,
                        ToolSession(tools, multi_turn) if tools else processes.open_session(prompt),
                        prompt,
                        seed=seed,
                        sampling=sampling,
                        tokenizer=self._tokenizer,
                        limits=limits,
                        chat_template=data.chat_template,
                    )

        async with open_tools(multi_turn) as tools:
            pairs = zip(prompts, seeds, strict=True)
            return await asyncio.gather(*(run(tools, prompt, seed) for prompt, seed in pairs))

    def converse_greedily(self, prompts: Sequence[Prompt], seeds: Sequence[int]) -> list[Episode]:
        """Generate one conversation of the most probable tokens on each prompt."""
        return self.converse(prompts, seeds, self.sampling.greedy())

    def _join(self, results: list[T]) -> list[T]:
        """Return `results` when all ranks that share the engine (rollout.tensorParallelSize) have theirs."""
        self.engine.generate([], [])  # a shared engine takes part in the other ranks' calls; no effect on others
        return results
