"""The real training loop with one train worker in this process, without the seconds that Ray needs to start."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, TypeVar, cast

import torch
import torch.distributed as dist

from rlt_api.training_config import TrainingConfig
from rlt_trainer.cluster.worker_group import WorkerGroup
from rlt_trainer.data.dataset import PromptDataset, ValidationSet
from rlt_trainer.data.prompt import Prompt
from rlt_trainer.data.tokenizer import load_tokenizer
from rlt_trainer.driver.engines import ColocatedEngines, RolloutEngines
from rlt_trainer.driver.loop import Trainer
from rlt_trainer.driver.reporter import Reporter
from rlt_trainer.driver.run import load_critic_config
from rlt_trainer.driver.termination import Termination
from rlt_trainer.environments.toolbox import describe_tools
from rlt_trainer.policy.config import load_config
from rlt_trainer.policy.model import prepare_model_files
from rlt_trainer.rewards.scorer import Scorer
from rlt_trainer.rollout.weight_sync import WeightSync
from rlt_trainer.telemetry.flops import find_shape
from rlt_trainer.telemetry.run_directory import RunDirectory
from rlt_trainer.telemetry.server import ProgressServer
from rlt_trainer.telemetry.worker_telemetry import WorkerReport
from rlt_trainer.workers.engine_worker import EngineWorker
from rlt_trainer.workers.responder import Responder
from rlt_trainer.workers.train_worker import TrainWorker

LOOPBACK = "127.0.0.1"

P = ParamSpec("P")
R = TypeVar("R")


def train(config: TrainingConfig) -> list[dict[str, Any]]:
    """Run the whole training. Return the metrics of each step."""
    workers = cast(WorkerGroup[TrainWorker], OneWorker(config))
    asynchronous = config.rollout.staleness is not None
    run, server = RunDirectory(config.run_directory), ProgressServer(0, run_directory=config.run_directory)
    tokenizer = load_tokenizer(config.model)
    critic = load_critic_config(config, tokenizer)
    folder, seed, tools = Path(config.run_directory), config.training.seed, describe_tools(config.rollout.multi_turn)
    try:
        with Scorer(config.rewards) as scorer, Termination() as termination:
            Trainer(
                config,
                workers=workers,
                engines=cast(RolloutEngines, ThreadEngine(config, workers))
                if asynchronous
                else ColocatedEngines(config, workers),
                prompts=PromptDataset.load(config.data, tokenizer, seed=seed, run_directory=folder, tools=tools),
                validation=ValidationSet.load(config.data, tokenizer, seed=seed, run_directory=folder, tools=tools),
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


class ThreadEngine:
    """An engine that generates in its own thread during training, like the rollout workers of rollout.mode separate."""

    def __init__(self, config: TrainingConfig, workers: WorkerGroup[TrainWorker]) -> None:
        self._config = config
        self._workers = workers
        self._thread = ThreadPoolExecutor(1)

    def start(self, probes: Sequence[Prompt]) -> None:
        self._workers.all(TrainWorker.set_probes, probes)
        scratch = Path(self._config.run_directory) / "engine"
        scratch.mkdir(exist_ok=True)  # of a resumed run
        self._responder = Responder.start(
            self._config,
            prepare_model_files(self._config.model, scratch),
            device=torch.device("cpu"),
            tokenizer=load_tokenizer(self._config.model),
            interruptible=True,
        )
        self._weight_sync = WeightSync(self._responder.engine, probes, self._config.model.dtype)

    def map(
        self, method: Callable[Concatenate[EngineWorker, ...], list[R]], *columns: Sequence[Any]
    ) -> Future[list[R]]:
        return self._thread.submit(getattr(self._responder, method.__name__), *columns)

    def sync_weights(self) -> float:
        worker = cast(OneWorker, self._workers).worker
        return self._weight_sync.sync(worker._actor.gather_weights(), worker.probe_log_probs)

    def sleep(self) -> None: ...

    def end_step(self, step: int) -> list[WorkerReport]:
        return []

    def close(self) -> None:
        self._thread.shutdown()
