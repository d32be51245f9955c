"""Repeats the updates of recorded steps, without Ray and without an engine: is another loss, or sharding, the same?

`torchrun --nproc-per-node N -m rlt_trainer replay RUN …` does it on N ranks; without torchrun there is one.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from rlt_api.blocks.checkpoint import Checkpoint
from rlt_api.blocks.operations import Observability
from rlt_api.training_config import TrainingConfig
from rlt_trainer.batches.recording import Recording
from rlt_trainer.policy.mesh import data_parallel_size
from rlt_trainer.telemetry.run_directory import RECORDINGS

if TYPE_CHECKING:
    from rlt_trainer.workers.train_worker import TrainWorker

LOOPBACK = "127.0.0.1"


@dataclass(frozen=True)
class Place:
    """Which rank this process is, and where all meet."""

    rank: int
    ranks: int
    local_rank: int
    address: str
    port: int


def main(arguments: Sequence[str] | None = None) -> int:
    """`rlt-trainer replay`. Raises ValueError for what cannot be replayed."""
    parser = argparse.ArgumentParser(prog="rlt-trainer replay", description=__doc__)
    parser.add_argument("run", type=Path, help="the run directory")  # torchrun has options that begin with --run
    parser.add_argument("--step", type=int, required=True, help="a step of observability.recordSteps")
    parser.add_argument("--to", type=int, help="go on to this step; all between are recorded")
    parser.add_argument("--config", type=Path, help="another TrainingConfig in JSON. Default: the recorded one")
    parser.add_argument("-o", choices=("table", "json"), default="table", dest="output", help="a line of JSON a step")
    options = parser.parse_args(arguments)
    recordings = options.run / RECORDINGS
    steps = [Recording.load(recordings, step) for step in range(options.step, (options.to or options.step) + 1)]
    config = TrainingConfig.model_validate_json(options.config.read_bytes()) if options.config else steps[0].config
    place = this_place()
    for recording in steps:
        check(recording, config, place.ranks)
    with TemporaryDirectory(prefix="rlt-replay-") as scratch:
        for recording, metrics in zip(steps, replay(steps, config, place, recordings, scratch), strict=True):
            if place.rank == 0:
                print(table(recording, metrics) if options.output == "table" else as_json(recording, metrics))
    return 0


def replay(
    steps: Sequence[Recording], config: TrainingConfig, place: Place, recordings: Path, scratch: str
) -> list[dict[str, float]]:
    """The metrics of the updates, by step. Collective."""
    import torch  # seconds to import, as is all that follows
    import torch.distributed as dist

    from rlt_trainer.driver.data_parallel import DataParallel
    from rlt_trainer.driver.metrics import update_metrics
    from rlt_trainer.workers.rendezvous import Rendezvous
    from rlt_trainer.workers.train_worker import TrainWorker

    on_gpu = torch.cuda.is_available()
    if on_gpu:
        torch.cuda.set_device(place.local_rank)
    before = recordings / "checkpoints" / f"step-{steps[0].step - 1}"
    here = config.model_copy(
        update={
            "run_directory": scratch,
            "devices_per_worker": int(on_gpu),
            "training": config.training.model_copy(update={"warmup": None}),  # it is in the checkpoint
            "observability": Observability(),
            "checkpoint": Checkpoint(resume="path", resume_from_path=str(before)),
        }
    )
    rank = TrainWorker(here, place.rank, place.ranks, node_address=place.address)
    rank.connect(Rendezvous(place.address, place.port))
    rank.load_models()
    rank.resume(Path(scratch))
    ranks = DataParallel(Processes(rank, place), context_parallel_size=config.training.context_parallel_size)
    rows, epochs = config.training.ppo_mini_batch_size * config.rollout.n, config.training.ppo_epochs
    critic, replayed = config.algorithm.critic, []
    for recording in steps:
        rank.begin_step(recording.step)
        metrics: dict[str, float] = {}
        if critic is not None:
            results = ranks.update("update_critic", recording.experience, rows=rows, epochs=epochs)
            metrics |= update_metrics(results, "critic")
        if critic is None or recording.step > critic.warmup_steps:
            metrics |= update_metrics(ranks.update("update", recording.experience, rows=rows, epochs=epochs))
        replayed.append(metrics)
    dist.destroy_process_group()
    return replayed


class Processes:
    """The ranks that torchrun has started, of which this process is one. All of them make the same calls."""

    def __init__(self, rank: TrainWorker, place: Place) -> None:
        self.ranks = place.ranks
        self._rank = rank
        self._number = place.rank

    def each(self, method: str, *shares: Sequence[Any]) -> list[Any]:
        """Do this rank's part. Returns everybody's results."""
        import torch.distributed as dist

        results: list[Any] = [None] * self.ranks
        dist.all_gather_object(results, getattr(self._rank, method)(*(share[self._number] for share in shares)))
        return results


def check(recording: Recording, config: TrainingConfig, ranks: int) -> None:
    """Raises ValueError where the recording lacks what `config` learns from, or cannot be shared by so many ranks."""
    experience, step = recording.experience, recording.step
    rows = config.training.ppo_mini_batch_size * config.rollout.n
    shares = data_parallel_size(config.training, ranks)
    if rows % shares or len(experience) % shares:
        raise ValueError(
            f"Step {step} has {len(experience)} responses, in mini-batches of {rows}, which {shares} ranks cannot "
            "share equally: take fewer, or change training.ppoMiniBatchSize."
        )
    if config.algorithm.kl_loss_coef > 0 and experience.ref_log_probs is None:
        raise ValueError(f"Step {step} was recorded without the reference's log-probabilities: set klLossCoef 0.")
    if config.algorithm.critic is not None and experience.values is None:
        raise ValueError(f"Step {step} was recorded without a critic's values: leave algorithm.critic out.")


def this_place() -> Place:
    """What torchrun says in the environment, else the only rank."""
    said = os.environ
    if "RANK" in said:
        rank, ranks, local_rank, port = (
            int(said[name]) for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_PORT")
        )
        return Place(rank, ranks, local_rank, said["MASTER_ADDR"], port)
    with socket.create_server((LOOPBACK, 0)) as server:
        return Place(0, 1, 0, LOOPBACK, server.getsockname()[1])


def table(recording: Recording, replayed: Mapping[str, float]) -> str:
    """Recorded and replayed metrics side by side."""
    lines = [f"step {recording.step:<29} {'recorded':>16} {'replayed':>16} {'difference':>12}"]
    for name, value in replayed.items():
        recorded = recording.metrics.get(name)
        beside = (
            f"{'-':>16} {value:>16.9g} {'':>12}"
            if recorded is None
            else (f"{recorded:>16.9g} {value:>16.9g} {value - recorded:>12.3g}")
        )
        lines.append(f"{name:<34} {beside}")
    return "\n".join(lines)


def as_json(recording: Recording, replayed: Mapping[str, float]) -> str:
    """The same for programs."""
    recorded = {name: recording.metrics[name] for name in replayed if name in recording.metrics}
    return json.dumps({"step": recording.step, "recorded": recorded, "replayed": dict(replayed)})
