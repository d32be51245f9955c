"""GRPO (arXiv 2402.03300), from prompts to new weights. The numbers are made elsewhere; here is their order."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import Any

import numpy as np
import torch
from transformers import PreTrainedTokenizerBase

from rlt_api.training_config import TrainingConfig
from rlt_trainer.algorithms.advantages import grpo_advantages
from rlt_trainer.data.dataset import Prompt, PromptDataset
from rlt_trainer.metrics import policy_metrics, rollout_metrics, speed_metrics, update_metrics
from rlt_trainer.policy.update_result import UpdateResult
from rlt_trainer.reporter import Reporter
from rlt_trainer.rewards import Scorer
from rlt_trainer.rollout.engine import Response
from rlt_trainer.sequences import Experience, Sequences, mini_batches, shares
from rlt_trainer.stopwatch import Stopwatch
from rlt_trainer.telemetry.run_directory import RunDirectory
from rlt_trainer.workers import Workers

PROBES = 4
"""So many prompts are what the engine's weights are verified on."""


class Trainer:
    """A run with everything it needs."""

    def __init__(
        self,
        config: TrainingConfig,
        *,
        workers: Workers,
        prompts: PromptDataset,
        tokenizer: PreTrainedTokenizerBase,
        scorer: Scorer,
        reporter: Reporter,
        run: RunDirectory,
    ) -> None:
        self.config = config
        self.workers = workers
        self.prompts = prompts
        self.tokenizer = tokenizer
        self.scorer = scorer
        self.reporter = reporter
        self.run_directory = run

    def run(self) -> None:
        """From the start or the latest checkpoint to the exported model."""
        nodes = self.workers.connect()
        self.reporter.stage("preparing", f"loading the policy on {self.workers.ranks} ranks at {', '.join(nodes)}")
        self.workers.all("load_policy")
        self.reporter.stage("preparing", f"starting {self.config.rollout.engine}")
        self.workers.all("start_engine", self.prompts.batch(0, PROBES))

        done = self.resume()
        if done is None:
            self.warm_up()
            done = 0
        self.workers.all("sync_weights")

        total = self.config.training.total_steps
        self.reporter.stage("training", f"steps {done + 1} to {total}")
        for step in range(done + 1, total + 1):
            self.step(step)

        self.reporter.stage("exporting", f"writing the model to {self.run_directory.export}")
        self.workers.all("export", self.run_directory.export)
        self.reporter.exported(self.run_directory.export)
        self.workers.all("close")
        self.reporter.stage("finished", f"{total} steps done")

    def step(self, step: int) -> None:
        """One step of GRPO, `step` counted from 1."""
        config, workers = self.config, self.workers
        watch = Stopwatch()
        with watch.measure("step"):
            prompts = self.prompts.batch(step - 1, config.training.train_batch_size)
            grouped = [prompt for prompt in prompts for _ in range(config.rollout.n)]
            parts = shares(len(grouped), workers.ranks)

            with watch.measure("gen"):
                seeds = sampling_seeds(config.training.seed, step, len(grouped))
                token_ids = [prompt.token_ids for prompt in grouped]
                generated = workers.each("generate", [token_ids[p] for p in parts], [seeds[p] for p in parts])
                responses: list[Response] = list(chain.from_iterable(generated))
                sequences, rollout_log_probs = self.pad(grouped, responses)

            with watch.measure("reward"):
                texts = self.tokenizer.batch_decode([list(r.token_ids) for r in responses], skip_special_tokens=True)
                scored = zip(texts, grouped, strict=True)
                rewards = torch.tensor([self.scorer(text, prompt.ground_truth) for text, prompt in scored])

            with watch.measure("adv"):
                advantages = grpo_advantages(
                    rewards,
                    sequences.response_mask,
                    group_size=config.rollout.n,
                    norm_by_std=config.algorithm.norm_adv_by_std_in_grpo,
                )

            with watch.measure("old_log_prob"):
                results = workers.each("log_probs", [sequences.rows(p) for p in parts])
                old_log_probs, entropy = (torch.cat(part) for part in zip(*results, strict=True))

            ref_log_probs = None
            if config.algorithm.kl_loss_coef > 0:
                with watch.measure("ref"):
                    ref_log_probs = torch.cat(workers.each("ref_log_probs", [sequences.rows(p) for p in parts]))

            with watch.measure("update_actor"):
                updates = self.update(Experience(sequences, old_log_probs, advantages, ref_log_probs=ref_log_probs))

            with watch.measure("update_weights"):
                workers.all("sync_weights")

            if self.is_saved(step):
                with watch.measure("save_checkpoint"):
                    self.save(step)

        metrics = {
            "training/global_step": float(step),
            **rollout_metrics(sequences, rewards, advantages, config.data.max_response_length),
            **policy_metrics(
                sequences.response_mask,
                log_probs=old_log_probs,
                rollout_log_probs=rollout_log_probs,
                entropy=entropy,
            ),
            **update_metrics(updates, config.training.learning_rate),
            **speed_metrics(watch.seconds, sequences, workers.ranks),
        }
        self.reporter.step(step, metrics, rollout_lines(grouped, texts, rewards.tolist()))

    def update(self, experience: Experience) -> list[Sequence[UpdateResult]]:
        """ppoEpochs passes over the mini-batches. Returns the results by optimizer step, each by rank."""
        training = self.config.training
        rows = training.ppo_mini_batch_size * self.config.rollout.n
        steps = list(mini_batches(experience, rows=rows, ranks=self.workers.ranks)) * training.ppo_epochs
        by_rank = self.workers.each("update", list(zip(*steps, strict=True)))
        return list(zip(*by_rank, strict=True))

    def warm_up(self) -> None:
        """Supervised steps on the data's own answers, if asked for; then the stage of reinforcement begins."""
        training = self.config.training
        if training.warmup is not None:
            warmup = training.warmup
            self.reporter.stage("warmup", f"{warmup.steps} supervised steps")
            self.workers.all("start_stage", warmup.learning_rate)
            for step in range(1, warmup.steps + 1):
                examples = self.prompts.batch(step - 1, warmup.batch_size)
                targets = self.solutions(examples)
                tokens = int(targets.response_mask.sum())
                parts = [targets.rows(part) for part in shares(len(targets), self.workers.ranks)]
                results = self.workers.each("supervised_step", parts, [tokens] * self.workers.ranks)
                loss = sum(result.shares["warmup/loss"] for result in results)
                self.reporter.warmup_step(step, warmup.steps, loss)
        self.workers.all("start_stage", training.learning_rate)
        if training.warmup is not None and self.config.checkpoint.save_freq > 0:
            self.save(0)  # where the reinforcement starts from, and what the reference is

    def resume(self) -> int | None:
        """Load the latest whole checkpoint, if there is one and it is wanted. Returns its step."""
        if self.config.checkpoint.resume == "never":
            return None
        checkpoints = self.run_directory.checkpoints
        step: int | None = self.workers.first("latest_checkpoint", checkpoints)
        if step is not None:
            self.reporter.stage("preparing", f"resuming from {checkpoints}/step-{step}")
            self.workers.all("resume", checkpoints, step)
            self.reporter.resumed(step)
        return step

    def is_saved(self, step: int) -> bool:
        """Whether a checkpoint is due after `step`."""
        every = self.config.checkpoint.save_freq
        return every > 0 and (step % every == 0 or step == self.config.training.total_steps)

    def save(self, step: int) -> None:
        """Save a checkpoint."""
        self.workers.all("save", self.run_directory.checkpoints, step)
        self.reporter.checkpoint(step)

    def pad(self, prompts: Sequence[Prompt], responses: Sequence[Response]) -> tuple[Sequences, torch.Tensor]:
        """Prompts and responses in tensors, and the rollout's log-probabilities [B, T], 0 at padding."""
        sequences = Sequences.pad(
            [prompt.token_ids for prompt in prompts],
            [response.token_ids for response in responses],
            pad_token_id=self.tokenizer.pad_token_id,
        )
        log_probs = torch.zeros(sequences.responses.shape)
        log_probs[sequences.response_mask] = torch.tensor([v for response in responses for v in response.log_probs])
        return sequences, log_probs

    def solutions(self, prompts: Sequence[Prompt]) -> Sequences:
        """Prompts and their right answers, end-of-text token included."""
        encoded = self.tokenizer([prompt.solution for prompt in prompts], add_special_tokens=False)["input_ids"]
        return Sequences.pad(
            [prompt.token_ids for prompt in prompts],
            [[*tokens, self.tokenizer.eos_token_id] for tokens in encoded],
            pad_token_id=self.tokenizer.pad_token_id,
        )


def sampling_seeds(seed: int, step: int, count: int) -> list[int]:
    """A seed for each response: of the run's seed, the step and the place alone, whatever the number of ranks."""
    return [int(value) for value in np.random.SeedSequence([seed, step]).generate_state(count)]


def rollout_lines(prompts: Sequence[Prompt], texts: Sequence[str], rewards: Sequence[float]) -> list[dict[str, Any]]:
    """The step's responses for the run directory."""
    return [
        {
            "index": prompt.index,
            "data_source": prompt.data_source,
            "prompt": prompt.text,
            "response": text,
            "ground_truth": prompt.ground_truth,
            "reward": reward,
        }
        for prompt, text, reward in zip(prompts, texts, rewards, strict=True)
    ]
