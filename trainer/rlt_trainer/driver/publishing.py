"""When a run publishes its exported model: after the export, if all gates have passed."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from rlt_api.spec.training_config import PublicationResult, TrainingConfig
from rlt_trainer.cluster.worker_group import WorkerGroup
from rlt_trainer.driver.reporter import Reporter
from rlt_trainer.evaluation.gate import Gate
from rlt_trainer.publishing.card import build_card
from rlt_trainer.telemetry.run_directory import RunDirectory
from rlt_trainer.telemetry.run_history import read_metrics
from rlt_trainer.workers.train_worker import TrainWorker


def publish_model(
    config: TrainingConfig,
    workers: WorkerGroup[TrainWorker],
    run: RunDirectory,
    reporter: Reporter,
    gates: Mapping[str, Gate] = MappingProxyType({}),
) -> None:
    """Publish the exported model from the pod that has written it. A failure is reported, and does not end the run."""
    if not config.publish or not has_passed(gates):
        return
    reporter.stage("exporting", f"publishing to {', '.join(each.place for each in config.publish)}")
    run.check_lease()
    card = build_card(config, read_metrics(run.path, config.training.total_steps), gates)
    results = workers.first(TrainWorker.publish, run.export, card)
    reporter.published([_add_advice(config, run, each) for each in results])


def has_passed(gates: Mapping[str, Gate]) -> bool:
    """Whether all suites pass. A job without gates publishes its model."""
    return all(gate.passed is True for gate in gates.values())


def _add_advice(config: TrainingConfig, run: RunDirectory, result: PublicationResult) -> PublicationResult:
    if result.error is None:
        return result
    again = "upload it with `hf upload`" if config.bucket else f"`rlt export {config.job} --publish`"
    error = f"{result.error.rstrip('.')}. The model in {run.locate(run.export)} is unchanged; then {again}."
    return result.model_copy(update={"error": error})
