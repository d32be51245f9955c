"""What the loops of reinforcement learning and of preferences have in common."""

from __future__ import annotations

from rlt_trainer.cluster.worker_group import WorkerGroup
from rlt_trainer.driver.reporter import Reporter
from rlt_trainer.workers.train_worker import TrainWorker


def start_workers(workers: WorkerGroup[TrainWorker], reporter: Reporter) -> None:
    """Connect the train workers, and load the models."""
    workers.all(TrainWorker.connect, workers.first(TrainWorker.rendezvous))
    addresses = workers.all(TrainWorker.node_address)
    reporter.stage("preparing", f"loading the policy on {len(workers)} ranks at {', '.join(addresses)}")
    workers.all(TrainWorker.load_models)
    workers.all(TrainWorker.watch_connections, addresses)
