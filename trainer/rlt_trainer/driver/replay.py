"""Repeats the updates of recorded steps, for example with another loss or sharding. Needs no Ray and no rollout engine.

`torchrun --nproc-per-node N -m rlt_trainer replay RUN …` runs on N ranks. Without torchrun there is one rank.
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Concatenate, TypeVar

from rlt_api.blocks.checkpoint import Checkpoint
from rlt_api.blocks.operations import Observability
from rlt_api.spec.training_config import TrainingConfig
from rlt_trainer.batches.recording import Recording
from rlt_trainer.policy.mesh import data_parallel_size
from rlt_trainer.telemetry.run_directory import RECORDINGS

if TYPE_CHECKING:
    from torch._C._distributed_c10d import Store

    from rlt_trainer.workers.train_worker import TrainWorker

LOOPBACK = "127.0.0.1"
R = TypeVar("R")


@dataclass(frozen=True)
class TorchrunEnvironment:
    """The rank of this process, and the address of rank 0."""

    rank: int
    world_size: int
    local_rank: int
    address: str
    store: Store
    """The store at which the ranks meet."""


def main(arguments: Sequence[str] | None = None) -> int:
    """`rlt-trainer replay`. Raises ValueError if a step cannot be replayed."""
    parser = argparse.ArgumentParser(prog="rlt-trainer replay", description=__doc__)
    parser.add_argument("run", type=Path, help="the run directory")  # torchrun has options that begin with --run
    parser.add_argument("--step", type=int, required=True, help="a step of observability.recordSteps")
    parser.add_argument("--to", type=int, help="replay up to this step; all steps between must be recorded")
    parser.add_argument("--config", type=Path, help="TrainingConfig in JSON. Default: the recorded one")
    parser.add_argument("-o", choices=("table", "json"), default="table", dest="output", help="json: one line per step")
    options = parser.parse_args(arguments)
    recordings = options.run / RECORDINGS
    steps = [Recording.load(recordings, step) for step in range(options.step, (options.to or options.step) + 1)]
    config = TrainingConfig.model_validate_json(options.config.read_bytes()) if options.config else steps[0].config
    environment = read_torchrun_environment()
    for recording in steps:
        validate(recording, config, environment.world_size)
    with TemporaryDirectory(prefix="rlt-replay-") as scratch:
        for recording, metrics in zip(steps, replay(steps, config, environment, recordings, scratch), strict=True):
            if environment.rank == 0:
                format_step = format_table if options.output == "table" else format_json
                print(format_step(recording, metrics))
    return 0


def replay(
    steps: Sequence[Recording], config: TrainingConfig, environment: TorchrunEnvironment, recordings: Path, scratch: str
) -> list[dict[str, float]]:
    """Run the updates. Return their metrics by step. Collective."""
    import torch  # this import and the following ones take seconds
    import torch.distributed as dist

    from rlt_trainer.driver.data_parallel import DataParallel
    from rlt_trainer.driver.metrics import compute_update_metrics
    from rlt_trainer.workers.train_worker import TrainWorker

    on_gpu = torch.cuda.is_available()
    if on_gpu:
        torch.cuda.set_device(environment.local_rank)
    start = recordings / "checkpoints" / f"step-{steps[0].step - 1}"
    config = config.model_copy(
        update={
            "run_directory": scratch,
            "devices_per_worker": int(on_gpu),
            "training": config.training.model_copy(update={"warmup": None}),  # part of the checkpoint
            "observability": Observability(),
            "checkpoint": Checkpoint(resume="path", resume_from_path=str(start)),
        }
    )
    worker = TrainWorker(config, environment.rank, environment.world_size, address=environment.address)
    worker.join(environment.store)
    worker.load_models()
    worker.resume(Path(scratch))
    workers = TorchrunWorkers(worker, environment)
    data_parallel = DataParallel.of(workers, config.training, None)
    rows = config.training.ppo_mini_batch_size * config.rollout.responses_per_prompt
    epochs = config.training.ppo_epochs
    critic = config.algorithm.critic
    replayed = []
    for recording in steps:
        worker.begin_step(recording.step)
        metrics: dict[str, float] = {}
        if critic is not None:
            results = data_parallel.update(TrainWorker.update_critic, recording.experience, rows=rows, epochs=epochs)
            metrics |= compute_update_metrics(results, "critic")
        if critic is None or recording.step > critic.warmup_steps:
            results = data_parallel.update(TrainWorker.update_actor, recording.experience, rows=rows, epochs=epochs)
            metrics |= compute_update_metrics(results)
        replayed.append(metrics)
    dist.destroy_process_group()
    return replayed


class TorchrunWorkers:
    """The train workers of torchrun: one in this process, the others in processes that make the same calls."""

    def __init__(self, worker: TrainWorker, environment: TorchrunEnvironment) -> None:
        self._worker = worker
        self._environment = environment

    def __len__(self) -> int:
        return self._environment.world_size

    def each(self, method: Callable[Concatenate[TrainWorker, ...], R], *columns: Sequence[Any]) -> list[R]:
        """Run this rank's call. Return the results of all ranks."""
        import torch.distributed as dist

        results: list[Any] = [None] * len(self)
        dist.all_gather_object(results, method(self._worker, *(column[self._environment.rank] for column in columns)))
        return results


def validate(recording: Recording, config: TrainingConfig, ranks: int) -> None:
    """Raises ValueError if the recording lacks an input of the updates, or cannot be split equally between ranks."""
    experience = recording.experience
    step = recording.step
    rows = config.training.ppo_mini_batch_size * config.rollout.responses_per_prompt
    shares = data_parallel_size(config.training, ranks)
    responses = experience.num_trajectories
    if rows % shares or responses % shares:
        raise ValueError(
            f"Step {step} has {responses} responses in mini-batches of {rows}, which are not divisible by "
            f"{shares} ranks: use fewer ranks, or change training.ppoMiniBatchSize."
        )
    if config.algorithm.kl_loss_coef > 0 and experience.ref_log_probs is None:
        raise ValueError(f"Step {step} was recorded without the reference's log-probabilities: set klLossCoef to 0.")
    distillation = config.algorithm.distillation
    if distillation is not None and experience.teacher_log_probs is None:
        raise ValueError(f"Step {step} was recorded without a teacher: remove algorithm.distillation.")
    recorded_mode = "k1" if experience.teacher_ids is None else "forward_kl_topk"
    if distillation is not None and distillation.loss_mode != recorded_mode:
        raise ValueError(
            f"Step {step} was recorded with algorithm.distillation.lossMode {recorded_mode}: use it instead of "
            f"{distillation.loss_mode}, which needs other log-probabilities of the teacher."
        )
    if config.algorithm.policy_loss in ("clip_cov", "kl_cov") and experience.selected is None:
        raise ValueError(
            f"Step {step} was recorded without the tokens that {config.algorithm.policy_loss} selects: use another "
            "algorithm.policyLoss."
        )
    if config.algorithm.router_replay == "R3" and experience.sequences.routes is None:
        raise ValueError(f"Step {step} was recorded without the engine's experts: remove algorithm.routerReplay.")
    if config.algorithm.critic is not None and experience.values is None:
        raise ValueError(f"Step {step} was recorded without a critic's values: remove algorithm.critic.")


def read_torchrun_environment() -> TorchrunEnvironment:
    """Connect to the store of torchrun. Without torchrun, this process is the only rank."""
    from torch._C._distributed_c10d import HashStore  # the import of torch takes seconds
    from torch.distributed.rendezvous import rendezvous

    if "RANK" not in os.environ:
        return TorchrunEnvironment(0, 1, 0, LOOPBACK, HashStore())
    store, rank, world_size = next(rendezvous("env://"))
    return TorchrunEnvironment(rank, world_size, int(os.environ["LOCAL_RANK"]), os.environ["MASTER_ADDR"], store)


def format_table(recording: Recording, replayed: Mapping[str, float]) -> str:
    """Format recorded and replayed metrics as a table."""
    lines = [f"step {recording.step:<29} {'recorded':>16} {'replayed':>16} {'difference':>12}"]
    for name, value in replayed.items():
        recorded = recording.metrics.get(name)
        columns = (
            f"{'-':>16} {value:>16.9g} {'':>12}"
            if recorded is None
            else (f"{recorded:>16.9g} {value:>16.9g} {value - recorded:>12.3g}")
        )
        lines.append(f"{name:<34} {columns}")
    return "\n".join(lines)


def format_json(recording: Recording, replayed: Mapping[str, float]) -> str:
    """Format recorded and replayed metrics as JSON."""
    recorded = {name: recording.metrics[name] for name in replayed if name in recording.metrics}
    return json.dumps({"step": recording.step, "recorded": recorded, "replayed": dict(replayed)})
