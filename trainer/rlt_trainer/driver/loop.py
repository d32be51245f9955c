"""The training loop: generate, build experience, update, sync weights, evaluate, save."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cache

from safetensors import SafetensorError
from transformers import PreTrainedTokenizerBase

from rlt_api.spec.training_config import TrainingConfig
from rlt_trainer.algorithms.kl_controller import KlController
from rlt_trainer.algorithms.rollout_correction import is_bypassed
from rlt_trainer.batches.recording import Recording
from rlt_trainer.batches.rollout_batch import RolloutBatch
from rlt_trainer.batches.sequences import Experience, MiniBatch, Sequences
from rlt_trainer.batches.update_result import UpdateResult
from rlt_trainer.cluster.pods import count_train_workers, rollout_pods
from rlt_trainer.cluster.worker_group import WorkerGroup
from rlt_trainer.data.dataset import EvaluationSet, PromptDataset
from rlt_trainer.data.prompt import Prompt
from rlt_trainer.data.suites import Suite
from rlt_trainer.driver.checkpointing import Checkpoints
from rlt_trainer.driver.data_parallel import DataParallel
from rlt_trainer.driver.engines import Engines
from rlt_trainer.driver.evaluations import Evaluations
from rlt_trainer.driver.experience import TrainingBatch, build_experience
from rlt_trainer.driver.gates import judge_suites
from rlt_trainer.driver.generation import RolloutGenerator
from rlt_trainer.driver.metrics import compute_update_metrics
from rlt_trainer.driver.publishing import publish_model
from rlt_trainer.driver.reporter import Reporter
from rlt_trainer.driver.start import start_workers
from rlt_trainer.driver.termination import Termination
from rlt_trainer.errors import NonFiniteGradientError, Terminated, add_checkpoint
from rlt_trainer.rewards.scorer import Scorer
from rlt_trainer.telemetry.flops import Shape
from rlt_trainer.telemetry.rollout_log import build_rollout_lines, collect_images, split_segments
from rlt_trainer.telemetry.run_directory import RunDirectory
from rlt_trainer.telemetry.speed import Work, compute_speed_metrics
from rlt_trainer.telemetry.stopwatch import Stopwatch
from rlt_trainer.telemetry.token_values import add_token_values, decode_token
from rlt_trainer.workers.train_worker import TrainWorker

_log = logging.getLogger(__name__)

NUM_PROBES = 64
"""Number of prompts whose first tokens verify each weight sync (build_probe)."""


class Trainer:
    """Runs the training on the train workers and the rollout engines."""

    def __init__(
        self,
        config: TrainingConfig,
        *,
        workers: WorkerGroup[TrainWorker],
        engines: Engines,
        prompts: PromptDataset,
        suites: Sequence[Suite[EvaluationSet]],
        tokenizer: PreTrainedTokenizerBase,
        scorer: Scorer,
        reporter: Reporter,
        run: RunDirectory,
        shape: Shape | None,
        critic_shape: Shape | None,
        termination: Termination,
    ) -> None:
        self.config = config
        self.workers = workers
        self.engines = engines
        self.prompts = prompts
        self.tokenizer = tokenizer
        self.reporter = reporter
        self.run_directory = run
        self.shape = shape
        self.critic_shape = critic_shape
        self.termination = termination
        self.data_parallel = DataParallel.of(workers, config.training, shape)
        self.stopwatch = Stopwatch()
        self.generator = RolloutGenerator(
            config,
            engines=engines,
            workers=workers,
            prompts=prompts,
            tokenizer=tokenizer,
            scorer=scorer,
            stopwatch=self.stopwatch,
            termination=termination,
        )
        self.evaluations = Evaluations(
            config, suites, self.generator, engines, reporter=reporter, run=run, stopwatch=self.stopwatch
        )
        self.decode_token = cache(lambda token: decode_token(token, self.decode))
        self.kl_controller: KlController | None = None
        if kl := config.algorithm.kl_in_reward:
            self.kl_controller = KlController(kl.type, kl.kl_coef, target=kl.target_kl, horizon=kl.horizon)
        self.checkpoints = Checkpoints(
            config,
            workers=workers,
            run=run,
            reporter=reporter,
            source=self.generator,
            kl_controller=self.kl_controller,
            termination=termination,
            data=prompts.fingerprint(),
        )

    def run(self) -> None:
        """Train from the start or the latest checkpoint, and export the model."""
        start_workers(self.workers, self.reporter)
        self.reporter.stage("preparing", f"starting {self.config.rollout.engine}")
        self.engines.start(self.prompts.batch(0, NUM_PROBES))
        self.engines.pause()  # until the first weight sync: the warmup may need their memory

        done = self.checkpoints.resume()
        if done is None:
            self.warm_up()
            done = 0
        self.engines.sync_weights(done)
        total = self.config.training.total_steps
        self.evaluations.resume(done)

        self.reporter.stage("training", f"steps {done + 1} to {total}")
        self.termination.defer()
        for step in range(done + 1, total + 1):
            self.stopwatch.step = step
            self.workers.all(TrainWorker.begin_step, step)
            with self.stopwatch.measure("step"):
                rollout_batch = self.generate(step)
                self.checkpoints.stop_if_requested(step - 1)
                self.evaluations.start()
                training_batch, metrics = self.step(step, rollout_batch)
            self.report(step, rollout_batch, training_batch, metrics)
            self.checkpoints.stop_if_requested(step)
        self.finish()

    def generate(self, step: int) -> RolloutBatch:
        """Generate and score the responses of a step. After SIGTERM, save a checkpoint and raise Terminated."""
        try:
            with self.stopwatch.measure("gen"):
                return self.generator.generate_batch(step)
        except Terminated:
            self.checkpoints.stop_if_requested(step - 1)
            raise

    def step(self, step: int, rollout_batch: RolloutBatch) -> tuple[TrainingBatch, dict[str, float]]:
        """Update the models, sync the engines' weights, and evaluate and save if due. Return batch and metrics."""
        config = self.config
        stopwatch = self.stopwatch
        self.engines.pause()
        training_batch = build_experience(
            config,
            rollout_batch,
            data_parallel=self.data_parallel,
            kl_controller=self.kl_controller,
            pad_token_id=self.tokenizer.pad_token_id,
            stopwatch=stopwatch,
        )
        self.checkpoints.stop_if_requested(step - 1)
        epoch = self.prompts.epoch(rollout_batch.consumed)
        metrics = {"training/global_step": float(step), "training/epoch": float(epoch)}
        metrics |= self.prompts.metrics(rollout_batch.consumed) | training_batch.metrics
        metrics |= self.generator.take_metrics()
        if step in config.observability.record_steps:
            with stopwatch.measure("record"):
                self.workers.all(TrainWorker.save_recorded, self.run_directory.recordings / "checkpoints", step - 1)

        critic = config.algorithm.critic
        if critic is not None:
            with stopwatch.measure("update_critic"):
                results = self.update(TrainWorker.update_critic, training_batch.experience)
            metrics |= compute_update_metrics(results, "critic")
        if critic is None or step > critic.warmup_steps:
            with stopwatch.measure("update_actor"):
                results = self.update(TrainWorker.update_actor, training_batch.experience)
            metrics |= compute_update_metrics(results)
            training_batch = training_batch.complete(config, results)
            metrics |= training_batch.metrics
        difference = None
        with suppress(Terminated):  # no engine is left: the step is complete
            self.evaluations.finish()
            with stopwatch.measure("update_weights"):
                difference = self.engines.sync_weights(step)
        if difference is not None:
            metrics["training/weight_sync_difference"] = difference
        is_saved = self.checkpoints.is_due(step)
        metrics |= self.evaluations.evaluate(step, is_saved=is_saved)
        self.checkpoints.complete_step(rollout_batch.consumed)
        if is_saved:
            with stopwatch.measure("save_checkpoint"):
                self.checkpoints.save(step, metrics)
        return training_batch, metrics

    def update(
        self, method: Callable[[TrainWorker, Sequence[MiniBatch]], list[UpdateResult]], experience: Experience
    ) -> list[Sequence[UpdateResult]]:
        """Run ppoEpochs passes over the mini-batches. Return the results by optimizer step and rank.

        Raises NonFiniteGradientError with the latest checkpoint if the training diverges.
        """
        training = self.config.training
        rows = training.ppo_mini_batch_size * self.config.rollout.responses_per_prompt
        try:
            return self.data_parallel.update(method, experience, rows=rows, epochs=training.ppo_epochs)
        except NonFiniteGradientError as error:
            raise add_checkpoint(error, self.checkpoints.describe_latest()) from None

    def report(
        self, step: int, rollout_batch: RolloutBatch, training_batch: TrainingBatch, metrics: dict[str, float]
    ) -> None:
        """Publish the step's metrics, spans and rollouts."""
        training = self.config.training
        sequences = training_batch.experience.sequences
        reports = self.workers.all(TrainWorker.end_step)
        spans = self.stopwatch.take()
        engine_reports = self.engines.end_step(step)
        work = Work.of(
            sequences,
            self.shape,
            self.critic_shape,
            epochs=training.ppo_epochs,
            lora=self.config.model.lora is not None,
            own_rows=training_batch.own_rows,
        )
        generating = self.engines.count_devices()
        devices = count_train_workers(self.config) + generating
        metrics |= compute_speed_metrics(spans, reports, work, engines=engine_reports, devices=devices)
        self.reporter.set_rollout_devices(generating)
        if generating:
            metrics["perf/rollout_pods"] = generating / rollout_pods(self.config).processes
        worker_spans = [span for report in [*reports, *engine_reports] for span in report.spans]
        self.reporter.spans(step, [*spans, *worker_spans])
        multi_turn = self.config.rollout.multi_turn
        segments = None
        if multi_turn is not None:
            segments = split_segments(
                sequences,
                self.decode,
                rollout_batch.trajectories,
                side=[response.side for response in rollout_batch.responses],
                has_prompts=multi_turn.agent is not None,
            )
        lines = build_rollout_lines(
            rollout_batch.prompts,
            rollout_batch.texts,
            training_batch.rewards.tolist(),
            responses=rollout_batch.responses,
            advantages=training_batch.advantages.tolist(),
            by_reward={name: scores.tolist() for name, scores in rollout_batch.scores.by_reward.items()},
            failures=rollout_batch.scores.failures,
            segments=segments,
            sandboxes=rollout_batch.sandboxes,
        )
        experience = training_batch.experience
        lines = add_token_values(
            lines,
            rollout_batch.responses,
            rollout_batch.trajectories,
            advantages=experience.advantages,
            mask=sequences.response_mask,
            log_probs=None if is_bypassed(self.config.algorithm) else experience.old_log_probs,
            decode=self.decode_token,
        )
        self.reporter.step(step, metrics, lines, collect_images(rollout_batch.prompts))
        if step in self.config.observability.record_steps:
            self.record(step, rollout_batch, training_batch, metrics)
        self.checkpoints.report_finished_saves()

    def record(
        self, step: int, rollout_batch: RolloutBatch, training_batch: TrainingBatch, metrics: dict[str, float]
    ) -> None:
        """Record the step's rollouts and experience for `rlt-trainer replay`. Log a warning if that fails."""
        rollouts = {"rewards": training_batch.rewards, "rollout_log_probs": training_batch.engine.values}
        rollouts |= {f"rewards.{name}": scores for name, scores in rollout_batch.scores.by_reward.items()}
        try:
            Recording(step, training_batch.experience, rollouts, metrics, self.config).save(
                self.run_directory.recordings
            )
        except (OSError, SafetensorError) as error:
            _log.warning("could not record step %s: %s", step, error)

    def warm_up(self) -> None:
        """Run supervised steps on the solutions in the data, if configured. Then start the RL stage."""
        training = self.config.training
        if training.warmup is not None:
            warmup = training.warmup
            self.reporter.stage("warmup", f"{warmup.steps} supervised steps")
            self.workers.all(TrainWorker.start_stage, warmup.learning_rate)
            for step in range(1, warmup.steps + 1):
                targets = self.encode_solutions(self.prompts.batch(step - 1, warmup.batch_size))
                tokens = int(targets.response_mask.sum())
                results = self.data_parallel.optimizer_step(TrainWorker.supervised_step, targets, total=tokens)
                self.reporter.warmup_step(step, warmup.steps, sum(result.shares["warmup/loss"] for result in results))
        self.workers.all(TrainWorker.start_stage, training.learning_rate)
        if training.warmup is not None and self.config.checkpoint.save_freq > 0:
            self.checkpoints.save(0)  # the start of the RL stage, and the reference of a resumed run

    def finish(self) -> None:
        """Export the model, and stop engines and workers."""
        total = self.config.training.total_steps
        export = self.run_directory.export
        self.generator.close()
        self.checkpoints.report_finished_saves(wait=True)
        self.reporter.stage("exporting", f"writing the model to {export}")
        self.run_directory.check_lease()
        self.workers.all(TrainWorker.export, export)
        self.reporter.exported(export)
        gates = judge_suites(self.run_directory.path, self.config.evaluation, total)
        self.reporter.gates(total, gates)
        publish_model(self.config, self.workers, self.run_directory, self.reporter, gates)
        self.engines.close()
        self.workers.all(TrainWorker.close)
        self.reporter.stage("finished", f"{total} steps done")

    def decode(self, token_ids: list[int]) -> str:
        """Decode tokens with special tokens."""
        return str(self.tokenizer.decode(token_ids))

    def encode_solutions(self, prompts: Sequence[Prompt]) -> Sequences:
        """Return prompts and their solutions with an end-of-text token."""
        encoded = self.tokenizer([prompt.solution for prompt in prompts], add_special_tokens=False)["input_ids"]
        return Sequences.pad(
            [prompt.token_ids for prompt in prompts],
            [[*tokens, self.tokenizer.eos_token_id] for tokens in encoded],
            pad_token_id=self.tokenizer.pad_token_id,
            images=None if self.config.data.image_key is None else [prompt.images for prompt in prompts],
        )
