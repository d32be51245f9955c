"""The loop of algorithm.dpo: reference, update, evaluate, save. The responses come from the data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from torch import Tensor
from transformers import PreTrainedTokenizerBase

from rlt_api.spec.training_config import TrainingConfig
from rlt_trainer.algorithms.masking import row_sums
from rlt_trainer.algorithms.preferences import dpo_loss
from rlt_trainer.batches.pairs import Pairs
from rlt_trainer.batches.sequences import Sequences
from rlt_trainer.batches.update_result import UpdateResult
from rlt_trainer.cluster.pods import count_devices
from rlt_trainer.cluster.worker_group import WorkerGroup
from rlt_trainer.data.pairs import Pair, PairDataset, PairSet
from rlt_trainer.data.suites import Suite, list_due
from rlt_trainer.driver.checkpointing import Checkpoints
from rlt_trainer.driver.data_parallel import DataParallel
from rlt_trainer.driver.metrics import compute_length_metrics, compute_update_metrics
from rlt_trainer.driver.publishing import publish_model
from rlt_trainer.driver.reporter import Reporter
from rlt_trainer.driver.start import start_workers
from rlt_trainer.driver.termination import Termination
from rlt_trainer.errors import NonFiniteGradientError, add_checkpoint
from rlt_trainer.telemetry.flops import Shape
from rlt_trainer.telemetry.run_directory import RunDirectory
from rlt_trainer.telemetry.speed import Work, compute_speed_metrics
from rlt_trainer.telemetry.stopwatch import Stopwatch
from rlt_trainer.workers.train_worker import TrainWorker


class PairReader:
    """The next pairs to train on: a BatchSource."""

    def __init__(self, pairs: PairDataset) -> None:
        self._pairs = pairs
        self.taken = 0

    def take(self, count: int) -> list[Pair]:
        """Return the next `count` pairs."""
        self.taken += count
        return self._pairs.take(self.taken - count, count)

    def restore(self, consumed: int, ahead: Mapping[str, Tensor]) -> None:
        """As in BatchSource."""
        self.taken = consumed

    def pack_ahead(self, step: int) -> dict[str, Tensor]:
        """As in BatchSource: nothing is prepared for later steps."""
        return {}


class PreferenceTrainer:
    """Trains on pairs, on the train workers. A step is one optimizer step on trainBatchSize pairs."""

    def __init__(
        self,
        config: TrainingConfig,
        *,
        workers: WorkerGroup[TrainWorker],
        training: PairSet,
        suites: Sequence[Suite[PairSet]],
        tokenizer: PreTrainedTokenizerBase,
        reporter: Reporter,
        run: RunDirectory,
        shape: Shape | None,
        termination: Termination,
    ) -> None:
        assert config.algorithm.dpo is not None
        self.config = config
        self.beta = config.algorithm.dpo.beta
        self.workers = workers
        self.training = training
        self.suites = suites
        self._references: dict[str, Tensor] = {}
        self.tokenizer = tokenizer
        self.reporter = reporter
        self.run_directory = run
        self.shape = shape
        self.termination = termination
        self.data_parallel = DataParallel.of(workers, config.training, shape)
        self.stopwatch = Stopwatch()
        self.pairs = PairDataset(list(training.pairs), seed=config.training.seed, shuffle=config.data.shuffle)
        self.reader = PairReader(self.pairs)
        self.checkpoints = Checkpoints(
            config,
            workers=workers,
            run=run,
            reporter=reporter,
            source=self.reader,
            termination=termination,
            data=self.pairs.fingerprint(),
        )

    def run(self) -> None:
        """Train from the start or the latest checkpoint, and export the model."""
        start_workers(self.workers, self.reporter)
        done = self.checkpoints.resume() or 0
        total = self.config.training.total_steps
        if done == 0 and (due := list_due(self.suites, 0, total)):
            self.reporter.evaluation(0, self.evaluate(due))
        self.reporter.stage("training", f"steps {done + 1} to {total}")
        self.termination.defer()
        for step in range(done + 1, total + 1):
            self.stopwatch.step = step
            self.workers.all(TrainWorker.begin_step, step)
            with self.stopwatch.measure("step"):
                sequences, metrics = self.step(step)
            self.report(step, sequences, metrics)
            self.checkpoints.stop_if_requested(step)
        self.finish()

    def step(self, step: int) -> tuple[Sequences, dict[str, float]]:
        """Update the policy on the next pairs, and evaluate and save if due. Return their responses and the metrics."""
        stopwatch = self.stopwatch
        sequences = self.pad(self.reader.take(self.config.training.train_batch_size))
        with stopwatch.measure("ref"):
            reference = self.sum_reference(sequences)
        with stopwatch.measure("update_actor"):
            results = self.update(Pairs.split(sequences, reference))
        metrics = {
            "training/global_step": float(step),
            "training/epoch": float(self.pairs.epoch(self.reader.taken)),
            "data/pairs": float(len(self.pairs)),
            "data/overlong_pairs": float(self.training.overlong),
            **compute_length_metrics(sequences),
            **compute_update_metrics([results]),
        }
        if due := list_due(self.suites, step, self.config.training.total_steps):
            with stopwatch.measure("testing"):
                metrics |= self.evaluate(due)
        self.checkpoints.complete_step(self.reader.taken)
        if self.checkpoints.is_due(step):
            with stopwatch.measure("save_checkpoint"):
                self.checkpoints.save(step, metrics)
        return sequences, metrics

    def update(self, pairs: Pairs) -> list[UpdateResult]:
        """Take one optimizer step. Return the results by rank.

        Raises NonFiniteGradientError with the latest checkpoint if the training diverges.
        """
        try:
            return self.data_parallel.optimizer_step(TrainWorker.preference_step, pairs, total=len(pairs))
        except NonFiniteGradientError as error:
            raise add_checkpoint(error, self.checkpoints.describe_latest()) from None

    def evaluate(self, suites: Sequence[Suite[PairSet]]) -> dict[str, float]:
        """Return the metrics of the suites: TRL's names below val/SUITE/."""
        metrics: dict[str, float] = {}
        for suite in suites:
            sequences = self.pad(suite.rows.pairs)
            if suite.name not in self._references:  # the reference model does not change
                self._references[suite.name] = self.sum_reference(sequences)
            log_probs, _ = self.data_parallel.compute(TrainWorker.log_probs, sequences)
            policy = row_sums(log_probs, sequences.response_mask)
            reference = self._references[suite.name]
            preferences = dpo_loss(*policy.chunk(2), *reference.chunk(2), beta=self.beta)
            for name, values in preferences.metrics().items():
                metrics[f"val/{suite.name}/{name}"] = float(values.mean())
            metrics[f"val/{suite.name}/overlong_pairs"] = float(suite.rows.overlong)
        return metrics

    def sum_reference(self, sequences: Sequences) -> Tensor:
        """Sums of the reference's log-probabilities over each response: [2B]."""
        (log_probs,) = self.data_parallel.compute(TrainWorker.ref_log_probs, sequences)
        return row_sums(log_probs, sequences.response_mask)

    def pad(self, pairs: Sequence[Pair]) -> Sequences:
        """Return all chosen and then all rejected responses: 2B rows."""
        responses = [*(pair.chosen for pair in pairs), *(pair.rejected for pair in pairs)]
        return Sequences.pad([pair.prompt for pair in pairs] * 2, responses, pad_token_id=self.tokenizer.pad_token_id)

    def report(self, step: int, sequences: Sequences, metrics: dict[str, float]) -> None:
        """Publish the step's metrics and spans."""
        reports = self.workers.all(TrainWorker.end_step)
        spans = self.stopwatch.take()
        work = Work.of(sequences, self.shape, lora=self.config.model.lora is not None)
        metrics |= compute_speed_metrics(spans, reports, work, devices=count_devices(self.config))
        self.reporter.spans(step, [*spans, *(span for report in reports for span in report.spans)])
        self.reporter.step(step, metrics)
        self.checkpoints.report_finished_saves()

    def finish(self) -> None:
        """Export the model, and stop the workers."""
        export = self.run_directory.export
        self.checkpoints.report_finished_saves(wait=True)
        self.reporter.stage("exporting", f"writing the model to {export}")
        self.run_directory.check_lease()
        self.workers.all(TrainWorker.export, export)
        self.reporter.exported(export)
        publish_model(self.config, self.workers, self.run_directory, self.reporter)
        self.workers.all(TrainWorker.close)
        self.reporter.stage("finished", f"{self.config.training.total_steps} steps done")
