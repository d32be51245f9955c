"""Passes over a step's tokens, counted by hooks on the linear layers of all models on a train worker.

A forward pass of a layer counts 1 for each token, its recomputation as well, and a backward pass 2: it has two products
where a forward pass has one. The unit is 2 FLOPs for each weight and token.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from typing import Any

import torch
from bench_report import Row
from torch import Tensor, nn
from torch.distributed import HashStore  # type: ignore[attr-defined]

from rlt_api.spec.training_config import TrainingConfig
from rlt_trainer.batches.response import Response
from rlt_trainer.batches.rollout_batch import RolloutBatch
from rlt_trainer.batches.scores import Scores
from rlt_trainer.data.prompt import Prompt
from rlt_trainer.driver.data_parallel import DataParallel
from rlt_trainer.driver.experience import build_experience
from rlt_trainer.telemetry.stopwatch import Stopwatch
from rlt_trainer.workers.train_worker import TrainWorker
from trainer_bench.configs import LOOPBACK, build_config

PROMPTS = 4
N = 4
PROMPT_TOKENS = 8
RESPONSE_TOKENS = 24
MAX_PASSES = 4.0
LAYER = "model.layers.1.self_attn.o_proj"
"""The layer that is counted: every token passes it once in a forward pass."""


class OneWorker:
    """The train workers: one, in this process."""

    def __init__(self, config: TrainingConfig) -> None:
        self.worker = TrainWorker(config, 0, 1, address=LOOPBACK)
        self.worker.join(HashStore())
        self.worker.load_models()

    def __len__(self) -> int:
        return 1

    def each(self, method: Callable[..., Any], *columns: Sequence[Any]) -> list[Any]:
        """Call the worker."""
        return [method(self.worker, *(argument for (argument,) in columns))]


class TokenCounter:
    """Counts the tokens that pass a layer, forward and backward."""

    def __init__(self) -> None:
        self.tokens = 0

    def watch(self, layer: nn.Module) -> None:
        """Count the tokens of this layer, too."""
        layer.register_forward_hook(self._count_forward)
        layer.register_full_backward_hook(self._count_backward)

    def _count_forward(self, layer: nn.Module, inputs: Any, output: Tensor) -> None:
        self.tokens += output.shape[:-1].numel()

    def _count_backward(self, layer: nn.Module, inputs: Any, outputs: tuple[Tensor, ...]) -> None:
        self.tokens += 2 * outputs[0].shape[:-1].numel()


def measure() -> Row:
    """Count the passes of GRPO's defaults on GPUs, with one mini-batch, without and with a KL term."""
    default = count_passes({})
    with_term = count_passes({"klLossCoef": 0.001})
    return Row(
        "passes over a step's tokens, in forward passes: one mini-batch, with recomputation",
        f"at most {MAX_PASSES:.0f}",
        f"{default:.2f}: forward, recomputation, backward of two; {with_term:.2f} with a KL term",
        default <= MAX_PASSES,
        {"default": default, "with a KL term": with_term},
    )


def count_passes(algorithm: dict[str, Any]) -> float:
    """Run one step of a packed model with checkpointing. Return the passes over its tokens."""
    with tempfile.TemporaryDirectory() as folder:
        config = build_config(
            folder,
            model={"useRemovePadding": True, "enableGradientCheckpointing": True},
            algorithm=algorithm,
            training={"trainBatchSize": PROMPTS, "ppoMiniBatchSize": PROMPTS},
            rollout={"responsesPerPrompt": N},
        )
        workers = OneWorker(config)
        actor = workers.worker._actor
        counter = TokenCounter()
        for model in filter(None, (actor.model, actor.reference)):
            counter.watch(model.get_submodule(LAYER))
        batch = draw_batch()
        run_step(config, DataParallel(workers, context_parallel_size=1), batch)
        workers.worker.close()
    return counter.tokens / (len(batch.responses) * (PROMPT_TOKENS + RESPONSE_TOKENS))


def draw_batch() -> RolloutBatch:
    """Draw responses of equal lengths, with random scores."""
    generator = torch.Generator().manual_seed(0)
    count = PROMPTS * N
    tokens = torch.randint(50, 90, (count, RESPONSE_TOKENS), generator=generator).tolist()
    score = torch.rand(count, generator=generator)
    return RolloutBatch(
        [Prompt(0, tuple(range(50, 50 + PROMPT_TOKENS)), "", "", "", "")] * count,
        [Response(each, (-2.0,) * RESPONSE_TOKENS) for each in tokens],
        [""] * count,
        Scores(score, {"exact": score}, score.isnan(), {}),
        torch.zeros(count),
    )


def run_step(config: TrainingConfig, data_parallel: DataParallel, batch: RolloutBatch) -> None:
    """Build the experience, and update the policy."""
    training_batch = build_experience(
        config, batch, data_parallel=data_parallel, kl_controller=None, pad_token_id=0, stopwatch=Stopwatch()
    )
    rows = config.training.ppo_mini_batch_size * config.rollout.responses_per_prompt
    data_parallel.update(TrainWorker.update_actor, training_batch.experience, rows=rows, epochs=1)


if __name__ == "__main__":
    print(measure().measured)
