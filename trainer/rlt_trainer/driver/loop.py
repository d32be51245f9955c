"""RL post-training from prompts to new weights. The numbers are made elsewhere; here is their order."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence

from safetensors import SafetensorError
from transformers import PreTrainedTokenizerBase

from rlt_api.training_config import TrainingConfig
from rlt_trainer.algorithms.kl_controller import KlController
from rlt_trainer.batches.recording import Recording
from rlt_trainer.batches.rollout_batch import RolloutBatch
from rlt_trainer.batches.sequences import Experience, Sequences
from rlt_trainer.batches.update_result import UpdateResult
from rlt_trainer.data.dataset import PromptDataset, ValidationSet
from rlt_trainer.data.prompt import Prompt
from rlt_trainer.driver.checkpointing import Checkpoints
from rlt_trainer.driver.data_parallel import DataParallel
from rlt_trainer.driver.engines import RolloutEngines
from rlt_trainer.driver.experience import TrainingBatch, build_experience
from rlt_trainer.driver.generation import RolloutGenerator
from rlt_trainer.driver.metrics import update_metrics, validation_metrics
from rlt_trainer.driver.reporter import Reporter
from rlt_trainer.driver.termination import Termination
from rlt_trainer.driver.worker_group import TrainWorkers
from rlt_trainer.errors import NonFiniteGradientError, Terminated, last_finite
from rlt_trainer.rewards.scorer import Scorer
from rlt_trainer.telemetry.flops import Shape
from rlt_trainer.telemetry.rollout_log import rollout_lines, segments_of
from rlt_trainer.telemetry.run_directory import RunDirectory
from rlt_trainer.telemetry.speed import Work, speed_metrics
from rlt_trainer.telemetry.stopwatch import Stopwatch

_log = logging.getLogger(__name__)

PROBES = 4
"""So many prompts are what the engines' weights are verified on."""


class Trainer:
    """A run with everything it needs."""

    def __init__(
        self,
        config: TrainingConfig,
        *,
        workers: TrainWorkers,
        engines: RolloutEngines,
        prompts: PromptDataset,
        validation: ValidationSet,
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
        self.validation = validation
        self.tokenizer = tokenizer
        self.reporter = reporter
        self.run_directory = run
        self.shape = shape
        self.critic_shape = critic_shape
        self.termination = termination
        self.ranks = DataParallel(workers, context_parallel_size=config.training.context_parallel_size)
        self.watch = Stopwatch()
        self.generation = RolloutGenerator(
            config,
            engines=engines,
            workers=workers,
            prompts=prompts,
            tokenizer=tokenizer,
            scorer=scorer,
            watch=self.watch,
            termination=termination,
        )
        self.kl_controller: KlController | None = None
        if kl := config.algorithm.kl_in_reward:
            self.kl_controller = KlController(kl.type, kl.kl_coef, target=kl.target_kl, horizon=kl.horizon)
        self.checkpoints = Checkpoints(
            config,
            workers=workers,
            run=run,
            reporter=reporter,
            generation=self.generation,
            kl_controller=self.kl_controller,
            termination=termination,
            data=prompts.fingerprint(),
        )

    def run(self) -> None:
        """From the start or the latest checkpoint to the exported model."""
        nodes = self.workers.connect()
        self.reporter.stage("preparing", f"loading the policy on {self.workers.ranks} ranks at {', '.join(nodes)}")
        self.workers.all("load_models")
        self.reporter.stage("preparing", f"starting {self.config.rollout.engine}")
        self.engines.start(self.prompts.batch(0, PROBES))
        self.engines.sleep()  # until the first sync: a warm-up may need their memory

        done = self.checkpoints.resume()
        if done is None:
            self.warm_up()
            done = 0
        self.engines.sync_weights()
        validation = self.config.training.validation
        if done == 0 and validation is not None and validation.before_train:
            self.reporter.validation(self.validate())

        total = self.config.training.total_steps
        self.reporter.stage("training", f"steps {done + 1} to {total}")
        steps = range(done + 1, total + 1)
        batches = self.generation.batches(steps)
        self.termination.steps_begin()
        for step in steps:
            self.watch.step = step
            self.workers.all("begin_step", step)
            with self.watch.measure("step"):
                generated = self.generated(step, batches)
                self.checkpoints.end_if_asked(step - 1)
                learned, metrics = self.step(step, generated)
            self.report(step, generated, learned, metrics)
            self.checkpoints.end_if_asked(step)
        self.finish()

    def generated(self, step: int, batches: Iterator[tuple[int, RolloutBatch]]) -> RolloutBatch:
        """The step's responses. After SIGTERM no further ones are generated for it."""
        try:
            with self.watch.measure("gen"):
                return next(batches)[1]
        except Terminated:
            self.checkpoints.end_if_asked(step - 1)
            raise

    def step(self, step: int, generated: RolloutBatch) -> tuple[TrainingBatch, dict[str, float]]:
        """What is learned from a step's responses; then new weights for the engines, and a checkpoint if one is due."""
        config, watch = self.config, self.watch
        self.engines.sleep()
        learned = build_experience(
            config,
            generated,
            ranks=self.ranks,
            kl_controller=self.kl_controller,
            pad_token_id=self.tokenizer.pad_token_id,
            watch=watch,
        )
        self.checkpoints.end_if_asked(step - 1)
        metrics = {"training/global_step": float(step), "training/epoch": float(self.prompts.epoch(generated.consumed))}
        metrics |= self.prompts.metrics() | learned.metrics
        if step in config.observability.record_steps:
            with watch.measure("record"):
                self.workers.all("save_recorded", self.run_directory.recordings / "checkpoints", step - 1)

        critic = config.algorithm.critic
        if critic is not None:
            with watch.measure("update_critic"):
                metrics |= update_metrics(self.update("update_critic", learned.experience), "critic")
        if critic is None or step > critic.warmup_steps:
            with watch.measure("update_actor"):
                metrics |= update_metrics(self.update("update", learned.experience))
        with watch.measure("update_weights"):
            metrics["training/weight_sync_difference"] = self.engines.sync_weights()
        if self.is_validated(step):
            with watch.measure("testing"):
                metrics |= self.validate()
        self.checkpoints.completed(generated.consumed)
        if self.checkpoints.is_due(step):
            with watch.measure("save_checkpoint"):
                self.checkpoints.save(step, metrics.get("val/reward/mean"))
        return learned, metrics

    def update(self, method: str, experience: Experience) -> list[Sequence[UpdateResult]]:
        """ppoEpochs passes over the mini-batches. Raises TrainingError naming the last checkpoint when it diverges."""
        training = self.config.training
        rows = training.ppo_mini_batch_size * self.config.rollout.n
        try:
            return self.ranks.update(method, experience, rows=rows, epochs=training.ppo_epochs)
        except NonFiniteGradientError as error:
            raise last_finite(error, self.checkpoints.latest) from None

    def report(self, step: int, generated: RolloutBatch, learned: TrainingBatch, metrics: dict[str, float]) -> None:
        """Tell everybody of a step."""
        training, sequences = self.config.training, learned.experience.sequences
        reports, spans = self.workers.all("end_step"), self.watch.take()
        engines = self.engines.end_step(step)
        work = Work.of(
            sequences,
            self.shape,
            self.critic_shape,
            epochs=training.ppo_epochs,
            lora=self.config.model.lora is not None,
        )
        metrics |= speed_metrics(spans, reports, work, engines=engines)
        self.run_directory.append_spans([*spans, *(span for report in [*reports, *engines] for span in report.spans)])
        multi_turn = self.config.rollout.multi_turn is not None
        lines = rollout_lines(
            generated.prompts,
            generated.texts,
            learned.rewards.tolist(),
            by_reward={name: scores.tolist() for name, scores in generated.scores.by_reward.items()},
            segments=segments_of(sequences, self.decode) if multi_turn else None,
        )
        self.reporter.step(step, metrics, lines)
        if step in self.config.observability.record_steps:
            self.record(step, generated, learned, metrics)
        self.checkpoints.tell_finished()

    def record(self, step: int, generated: RolloutBatch, learned: TrainingBatch, metrics: dict[str, float]) -> None:
        """Keep all that the step learned from, for `rlt-trainer replay`."""
        rollouts = {"rewards": learned.rewards, "rollout_log_probs": learned.rollout_log_probs}
        rollouts |= {f"rewards.{name}": scores for name, scores in generated.scores.by_reward.items()}
        try:
            Recording(step, learned.experience, rollouts, metrics, self.config).save(self.run_directory.recordings)
        except (OSError, SafetensorError) as error:
            _log.warning("step %s could not be recorded: %s", step, error)

    def validate(self) -> dict[str, float]:
        """Scores of greedy responses to the validation set."""
        return validation_metrics(self.generation.validate(self.validation.prompts)) | self.validation.metrics()

    def is_validated(self, step: int) -> bool:
        """Whether the validation set is due after `step`."""
        validation = self.config.training.validation
        every = validation.test_freq if validation else -1
        return every > 0 and (step % every == 0 or step == self.config.training.total_steps)

    def warm_up(self) -> None:
        """Supervised steps on the data's own answers, if asked for; then the stage of reinforcement begins."""
        training = self.config.training
        if training.warmup is not None:
            warmup = training.warmup
            self.reporter.stage("warmup", f"{warmup.steps} supervised steps")
            self.workers.all("start_stage", warmup.learning_rate)
            for step in range(1, warmup.steps + 1):
                results = self.ranks.supervised_step(self.solutions(self.prompts.batch(step - 1, warmup.batch_size)))
                self.reporter.warmup_step(step, warmup.steps, sum(result.shares["warmup/loss"] for result in results))
        self.workers.all("start_stage", training.learning_rate)
        if training.warmup is not None and self.config.checkpoint.save_freq > 0:
            self.checkpoints.save(0)  # where the reinforcement starts from, and what the reference is

    def finish(self) -> None:
        """Export the model, and end everything."""
        total, export = self.config.training.total_steps, self.run_directory.export
        self.generation.close()
        self.checkpoints.tell_finished(wait=True)
        self.reporter.stage("exporting", f"writing the model to {export}")
        self.workers.all("export", export)
        self.reporter.exported(export)
        self.engines.close()
        self.workers.all("close")
        self.reporter.stage("finished", f"{total} steps done")

    def decode(self, token_ids: list[int]) -> str:
        """Tokens as text, special ones included."""
        return str(self.tokenizer.decode(token_ids))

    def solutions(self, prompts: Sequence[Prompt]) -> Sequences:
        """Prompts and their right answers, end-of-text token included."""
        encoded = self.tokenizer([prompt.solution for prompt in prompts], add_special_tokens=False)["input_ids"]
        return Sequences.pad(
            [prompt.token_ids for prompt in prompts],
            [[*tokens, self.tokenizer.eos_token_id] for tokens in encoded],
            pad_token_id=self.tokenizer.pad_token_id,
        )
