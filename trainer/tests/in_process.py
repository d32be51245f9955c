"""The real training loop with one train worker in this process, without the seconds that Ray needs to start."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import Future
from contextlib import nullcontext
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, TypeVar, cast

import torch
import torch.distributed as dist

from rlt_api.spec.training_config import TrainingConfig
from rlt_trainer.batches.response import Response
from rlt_trainer.batches.sequences import Sequences
from rlt_trainer.cluster.worker_group import WorkerGroup
from rlt_trainer.data.dataset import EvaluationSet, PromptDataset
from rlt_trainer.data.pairs import PairSet
from rlt_trainer.data.prompt import Prompt
from rlt_trainer.data.suites import load_suites
from rlt_trainer.data.tokenizer import load_tokenizer
from rlt_trainer.driver.engine_processes import EngineProcess
from rlt_trainer.driver.engines import Engines
from rlt_trainer.driver.evaluated_models import list_models
from rlt_trainer.driver.evaluator import Evaluator
from rlt_trainer.driver.loop import Trainer
from rlt_trainer.driver.preferences import PreferenceTrainer
from rlt_trainer.driver.reporter import Reporter
from rlt_trainer.driver.run import load_critic_config
from rlt_trainer.driver.termination import Termination
from rlt_trainer.environments.toolbox import describe_tools
from rlt_trainer.policy.config import load_config, load_image_processor
from rlt_trainer.rewards.scorer import Scorer
from rlt_trainer.rollout.engine import RolloutEngine, Sampling
from rlt_trainer.telemetry.engine_counters import EngineCounters
from rlt_trainer.telemetry.flops import find_shape
from rlt_trainer.telemetry.run_directory import RunDirectory
from rlt_trainer.telemetry.server import ProgressServer
from rlt_trainer.workers.rollout_worker import RolloutWorker
from rlt_trainer.workers.train_worker import TrainWorker

LOOPBACK = "127.0.0.1"

P = ParamSpec("P")
R = TypeVar("R")


def train(config: TrainingConfig) -> list[dict[str, Any]]:
    """Run the whole training. Return the metrics of each step."""
    workers = cast(WorkerGroup[TrainWorker], OneWorker(config))
    run = RunDirectory(config.run_directory)
    server = ProgressServer(0, run_directory=config.run_directory)
    tokenizer = load_tokenizer(config.model)
    critic = load_critic_config(config, tokenizer)
    folder = Path(config.run_directory)
    sources: dict[str, Any] = {
        "seed": config.training.seed,
        "run_directory": folder,
        "tools": describe_tools(config.rollout.multi_turn),
        "processor": load_image_processor(config),
    }
    try:
        with (
            Scorer(config.rewards) as scorer,
            Termination() as termination,
            Engines(config, workers, LocalProcesses(config), termination) as engines,
        ):
            Trainer(
                config,
                workers=workers,
                engines=engines,
                prompts=PromptDataset.load(config.data, tokenizer, **sources),
                suites=load_suites(config, lambda data: EvaluationSet.load(data, tokenizer, **sources)),
                tokenizer=tokenizer,
                scorer=scorer,
                reporter=Reporter(server, run, total_steps=config.training.total_steps),
                run=run,
                shape=find_shape(load_config(config.model)),
                critic_shape=find_shape(critic) if critic else None,
                termination=termination,
            ).run()
    finally:
        if dist.is_initialized():  # after an error
            dist.destroy_process_group()
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def train_on_pairs(config: TrainingConfig) -> list[dict[str, Any]]:
    """The same for algorithm.dpo. Return the metrics of each step."""
    tokenizer = load_tokenizer(config.model)
    run = RunDirectory(config.run_directory)
    server = ProgressServer(0, run_directory=config.run_directory)
    try:
        with Termination() as termination:
            PreferenceTrainer(
                config,
                workers=cast(WorkerGroup[TrainWorker], OneWorker(config)),
                training=PairSet.load(config.data, tokenizer),
                suites=load_suites(config, lambda data: PairSet.load(data, tokenizer)),
                tokenizer=tokenizer,
                reporter=Reporter(server, run, total_steps=config.training.total_steps),
                run=run,
                shape=find_shape(load_config(config.model)),
                termination=termination,
            ).run()
    finally:
        if dist.is_initialized():  # after an error
            dist.destroy_process_group()
    return [json.loads(line) for line in (run.path / "metrics.jsonl").read_text().splitlines()]


def evaluate(config: TrainingConfig) -> list[dict[str, Any]]:
    """The same for evaluateOnly, with one engine in this process. Return the metrics of each model."""
    tokenizer = load_tokenizer(config.model)
    run = RunDirectory(config.run_directory)
    server = ProgressServer(0, run_directory=config.run_directory)
    models = list_models(config)
    sources: dict[str, Any] = {"seed": config.training.seed, "run_directory": run.path}
    with Scorer(config.rewards) as scorer, Termination() as termination:
        Evaluator(
            config,
            models=models,
            open_processes=lambda loaded: nullcontext(LocalProcesses(loaded)),
            suites=load_suites(config, lambda data: EvaluationSet.load(data, tokenizer, **sources)),
            tokenizer=tokenizer,
            scorer=scorer,
            reporter=Reporter(server, run, total_steps=len(models)),
            run=run,
            server=server,
            termination=termination,
        ).run()
    return [json.loads(line) for line in (run.path / "metrics.jsonl").read_text().splitlines()]


class OneWorker:
    """A WorkerGroup of one train worker in this process."""

    def __init__(self, config: TrainingConfig) -> None:
        self.worker = TrainWorker(config, 0, 1, address=LOOPBACK)

    def __len__(self) -> int:
        return 1

    def all(self, method: Callable[Concatenate[TrainWorker, P], R], *arguments: P.args, **options: P.kwargs) -> list[R]:
        return [method(self.worker, *arguments, **options)]

    def each(self, method: Callable[Concatenate[TrainWorker, ...], R], *columns: Sequence[Any]) -> list[R]:
        return [method(self.worker, *(argument for (argument,) in columns))]

    def first(self, method: Callable[Concatenate[TrainWorker, P], R], *arguments: P.args, **options: P.kwargs) -> R:
        return method(self.worker, *arguments, **options)


class LocalProcesses:
    """The engines of a run as objects of this process, whose methods the driver's event loop calls."""

    def __init__(self, config: TrainingConfig) -> None:
        self._config = config
        self.workers: list[RolloutWorker] = []

    def __len__(self) -> int:
        return 1

    def start(self, number: int) -> EngineProcess:
        self.workers.append(RolloutWorker(self._config, number, address=LOOPBACK))
        return LocalProcess(self.workers[-1])

    def has_pods(self, number: int) -> bool:
        return True


class LocalProcess:
    """An EngineProcess in this process."""

    def __init__(self, worker: RolloutWorker) -> None:
        self._worker = worker

    async def call(
        self, method: Callable[Concatenate[RolloutWorker, P], Awaitable[R]], *arguments: P.args, **options: P.kwargs
    ) -> R:
        return await method(self._worker, *arguments, **options)


def build_pair_config(run: Path, **blocks: Any) -> TrainingConfig:
    """Build the config of a Pair with one train worker without an accelerator. `blocks` are model, data and others."""
    return TrainingConfig.model_validate(
        {
            "job": "tiny",
            "namespace": "default",
            "runDirectory": str(run),
            "workers": 1,
            "devicesPerWorker": 0,
            "cpusPerWorker": 1,
            "rewards": [{"name": "exact"}],
            "algorithm": {"klLossCoef": 0},
            "checkpoint": {},
            **blocks,
        }
    )


def build_vllm_config(run: Path, *, max_response_length: int = 5, **rollout: Any) -> TrainingConfig:
    """Build the config of a Pair with vLLM and a tiny model. `rollout` has more of its fields."""
    tiny = {"seed": 1, "hiddenSize": 64, "intermediateSize": 128, "numHiddenLayers": 2, "numAttentionHeads": 2}
    return build_pair_config(
        run,
        model={"fromSeed": tiny},
        data={"preset": "arithmetic", "maxPromptLength": 64, "maxResponseLength": max_response_length},
        training={"totalSteps": 1, "ppoMiniBatchSize": 128, "learningRate": 1e-3},
        rollout={"engine": "vllm", "maxNumSeqs": 8, **rollout},
    )


class Pair:
    """A train worker and its engines, before the first weight sync."""

    def __init__(self, config: TrainingConfig, probes: Sequence[Prompt]) -> None:
        workers = OneWorker(config)
        self.rank = workers.worker
        self.rank.connect(self.rank.rendezvous())
        self.rank.load_models()
        self.processes = LocalProcesses(config)
        self.version = 0
        self.engines = Engines(config, cast(WorkerGroup[TrainWorker], workers), self.processes)
        self.engines.start(probes)

    @property
    def engine(self) -> RolloutEngine:
        """The first engine."""
        return self.processes.workers[0].engine

    def sync(self) -> float:
        """Sync the weights as the next version. Return the difference of log-probabilities."""
        self.version += 1
        difference = self.engines.sync_weights(self.version)
        assert difference is not None
        return difference

    def policy_log_probs(self, prompts: Sequence[Sequence[int]], responses: Sequence[Response]) -> list[torch.Tensor]:
        """Return the log-probabilities of each response under the policy."""
        sequences = Sequences.pad(prompts, [each.token_ids for each in responses], pad_token_id=0)
        log_probs, _ = self.rank.log_probs(sequences)
        return list(torch.split(torch.from_numpy(log_probs), sequences.response_lengths()))

    def take(self, counters: EngineCounters) -> dict[str, float]:
        """Return what was added to the engine's counters since the last call with `counters`."""
        (families,) = self.engines.read_metrics().values()
        return counters.take(families)

    def generate(
        self,
        prompts: Sequence[Sequence[int]],
        seeds: Sequence[int],
        sampling: Sampling | None = None,
        *,
        images: Sequence[tuple[bytes, ...]] | None = None,
    ) -> list[Response]:
        """Generate a response to each prompt."""
        return self.start(prompts, seeds, sampling, images=images).result(120)

    def start(
        self,
        prompts: Sequence[Sequence[int]],
        seeds: Sequence[int],
        sampling: Sampling | None = None,
        *,
        images: Sequence[tuple[bytes, ...]] | None = None,
    ) -> Future[list[Response]]:
        """Start to generate a response to each prompt."""
        given = images or [()] * len(prompts)
        return self.engines.loop.submit(self._generate(prompts, seeds, sampling or self.engines.sampling, given))

    async def _generate(
        self,
        prompts: Sequence[Sequence[int]],
        seeds: Sequence[int],
        sampling: Sampling,
        images: Sequence[tuple[bytes, ...]],
    ) -> list[Response]:
        sample = self.engines.router.sample
        rows = zip(prompts, seeds, images, strict=True)
        return list(await asyncio.gather(*(sample(p, seed=s, sampling=sampling, images=each) for p, s, each in rows)))

    def close(self) -> None:
        """Stop both."""
        self.engines.close()
        self.rank.close()
