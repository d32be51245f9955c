"""The real loop with one rank in this process: no Ray, and so no seconds to start it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, cast

import torch
import torch.distributed as dist

from rlt_api.training_config import TrainingConfig
from rlt_trainer.data.dataset import PromptDataset, ValidationSet
from rlt_trainer.data.prompt import Prompt
from rlt_trainer.data.tokenizer import load_tokenizer
from rlt_trainer.driver.engines import ColocatedEngines, RolloutEngines
from rlt_trainer.driver.loop import Trainer
from rlt_trainer.driver.reporter import Reporter
from rlt_trainer.driver.run import load_critic_config
from rlt_trainer.driver.termination import Termination
from rlt_trainer.driver.worker_group import TrainWorkers
from rlt_trainer.policy.config import load_config
from rlt_trainer.policy.model import model_files
from rlt_trainer.rewards.scorer import Scorer
from rlt_trainer.rollout.weight_sync import WeightSync
from rlt_trainer.telemetry.flops import shape_of
from rlt_trainer.telemetry.run_directory import RunDirectory
from rlt_trainer.telemetry.server import ProgressServer
from rlt_trainer.telemetry.worker_telemetry import WorkerReport
from rlt_trainer.workers.responder import Responder
from rlt_trainer.workers.train_worker import TrainWorker

LOOPBACK = "127.0.0.1"


def train(config: TrainingConfig) -> list[dict[str, Any]]:
    """Train to the end. Returns the metrics of each step."""
    workers = cast(TrainWorkers, OneRank(config))
    asynchronous = config.rollout.staleness is not None
    run, server = RunDirectory(config.run_directory), ProgressServer(0, run_directory=config.run_directory)
    tokenizer = load_tokenizer(config.model)
    critic = load_critic_config(config, tokenizer)
    folder = Path(config.run_directory)
    try:
        with Scorer(config.rewards) as scorer, Termination() as termination:
            Trainer(
                config,
                workers=workers,
                engines=cast(RolloutEngines, OwnEngine(config, workers))
                if asynchronous
                else ColocatedEngines(config, workers),
                prompts=PromptDataset.load(config.data, tokenizer, seed=config.training.seed, run_directory=folder),
                validation=ValidationSet.load(config.data, tokenizer, seed=config.training.seed, run_directory=folder),
                tokenizer=tokenizer,
                scorer=scorer,
                reporter=Reporter(server, run, total_steps=config.training.total_steps),
                run=run,
                shape=shape_of(load_config(config.model)),
                critic_shape=shape_of(critic) if critic else None,
                termination=termination,
            ).run()
    finally:
        if dist.is_initialized():  # an error came before the end
            dist.destroy_process_group()
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


class OneRank:
    """What the loop wants of rlt_trainer.driver.worker_group.Workers."""

    ranks = 1

    def __init__(self, config: TrainingConfig) -> None:
        self.rank = TrainWorker(config, 0, 1, node_address=LOOPBACK)

    def connect(self) -> list[str]:
        self.rank.connect(self.rank.rendezvous())
        return [LOOPBACK]

    def all(self, method: str, *arguments: Any) -> list[Any]:
        return [getattr(self.rank, method)(*arguments)]

    def each(self, method: str, *shares: Sequence[Any]) -> list[Any]:
        return self.all(method, *(share for (share,) in shares))

    def first(self, method: str, *arguments: Any) -> Any:
        return self.all(method, *arguments)[0]


class OwnEngine:
    """An engine that generates in a thread of its own while the rank learns, as those of rollout.mode separate do."""

    engines = 1

    def __init__(self, config: TrainingConfig, workers: TrainWorkers) -> None:
        self._config = config
        self._workers = workers
        self._thread = ThreadPoolExecutor(1)

    def start(self, probes: Sequence[Prompt]) -> None:
        self._workers.all("keep_probe", probes)
        scratch = Path(self._config.run_directory) / "engine"
        scratch.mkdir(exist_ok=True)  # a run that goes on
        self._responder = Responder.start(
            self._config,
            model_files(self._config.model, scratch),
            device=torch.device("cpu"),
            tokenizer=load_tokenizer(self._config.model),
            interruptible=True,
        )
        self._sync = WeightSync(self._responder.engine, probes, self._config.model.dtype)

    def map(self, method: str, *columns: Sequence[Any]) -> Future[list[Any]]:
        return self._thread.submit(getattr(self._responder, method), *columns)

    def sync_weights(self) -> float:
        rank = cast(OneRank, self._workers).rank
        return self._sync.bring(rank._policy.full_weights(), rank.probe_log_probs)

    def sleep(self) -> None: ...

    def end_step(self, step: int) -> list[WorkerReport]:
        return []

    def close(self) -> None:
        self._thread.shutdown()
