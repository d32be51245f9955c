"""One rank of the training: a share of the models, perhaps a rollout engine, and the process group with the others."""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.checkpoint.stateful import Stateful
from transformers.utils.logging import disable_progress_bar

from rlt_api.blocks.checkpoint import Checkpoint
from rlt_api.training_config import TrainingConfig
from rlt_trainer.batches.sequences import MiniBatch, Sequences
from rlt_trainer.batches.update_result import UpdateResult
from rlt_trainer.checkpoint.driver_state import DriverState
from rlt_trainer.checkpoint.export import export
from rlt_trainer.checkpoint.parts import ModelState, OptimizerState, Parts
from rlt_trainer.checkpoint.resume import Resumed, load_reference, resume
from rlt_trainer.checkpoint.saver import SaveOutcome, Saver
from rlt_trainer.data.prompt import Prompt
from rlt_trainer.data.tokenizer import load_tokenizer
from rlt_trainer.environments.conversation import Episode
from rlt_trainer.policy.actor import Policy
from rlt_trainer.policy.config import critic_model
from rlt_trainer.policy.critic import Critic
from rlt_trainer.policy.mesh import training_mesh
from rlt_trainer.policy.model import DTYPES, model_files
from rlt_trainer.rewards.model import RewardModel
from rlt_trainer.rollout.engine import Response
from rlt_trainer.rollout.weight_channel import WeightChannel, send
from rlt_trainer.rollout.weight_sync import WeightSync, as_response, probe
from rlt_trainer.telemetry.worker_telemetry import WorkerReport, WorkerTelemetry
from rlt_trainer.workers.rendezvous import Rendezvous, free_port, use_interface_of
from rlt_trainer.workers.responder import Responder

_log = logging.getLogger(__name__)

PATIENCE = timedelta(minutes=10)
"""How long a rank waits for the others in a collective (verl's nccl_timeout)."""


class TrainWorker:
    """Everything that happens on one device. All methods are collective, but those that only tell something."""

    def __init__(self, config: TrainingConfig, rank: int, ranks: int, *, node_address: str) -> None:
        self._config = config
        self._node_address = node_address
        self._rank = rank
        self._ranks = ranks
        self._scratch = tempfile.TemporaryDirectory(prefix="rlt-model-")
        self._on_gpu = config.devices_per_worker > 0
        self._device = torch.device("cuda" if self._on_gpu else "cpu")
        self._dtype = DTYPES[config.model.dtype]
        self._responder: Responder | None = None
        self._channel: WeightChannel | None = None
        self._reward_models: dict[str, RewardModel] = {}

    def node_address(self) -> str:
        """The address of this rank's node."""
        return self._node_address

    def rendezvous(self) -> Rendezvous:
        """A free port at this rank's node, for rank 0."""
        return Rendezvous(self._node_address, free_port(self._node_address))

    def connect(self, meeting: Rendezvous) -> None:
        """Join the process group: gloo on CPUs, NCCL on GPUs."""
        if not self._on_gpu:
            use_interface_of(self._node_address)
            torch.set_num_threads(self._config.cpus_per_worker)
        dist.init_process_group(
            "nccl" if self._on_gpu else "gloo",
            init_method=f"tcp://{meeting.host}:{meeting.port}",
            rank=self._rank,
            world_size=self._ranks,
            timeout=PATIENCE,
        )
        torch.manual_seed(self._config.training.seed)  # for a loss of the user's own: nothing here draws from it

    def load_models(self) -> None:
        """Load the policy, and the critic if there is one, each rank its shards."""
        config = self._config
        disable_progress_bar()  # type: ignore[no-untyped-call] # a log is no terminal
        mesh = training_mesh(self._device.type, config.training, self._ranks)
        scratch = Path(self._scratch.name)
        self._files = model_files(config.model, scratch)
        self._tokenizer = load_tokenizer(config.model)
        self._policy = Policy(
            self._files,
            model=config.model,
            dtype=self._dtype,
            mesh=mesh,
            algorithm=config.algorithm,
            training=config.training,
            temperature=config.rollout.temperature,
            max_response_length=config.data.max_response_length,
        )
        self._critic: Critic | None = None
        if config.algorithm.critic is not None:
            start = critic_model(config)
            self._critic = Critic(
                self._files if start == config.model else model_files(start, scratch),
                model=config.model,
                dtype=self._dtype,
                mesh=mesh,
                algorithm=config.algorithm,
                training=config.training,
                max_response_length=config.data.max_response_length,
            )
        self._saver = Saver(Path(config.run_directory) / "checkpoints", config.checkpoint)
        self.telemetry = WorkerTelemetry(
            self._rank,
            device=self._device,
            dtype=self._dtype,
            profiles=Path(config.run_directory) / "profiles",
            profiler=config.observability.profiler,
        )

    def begin_step(self, step: int) -> None:
        """A step begins: what is measured from now on belongs to it, and so does the learning rate."""
        self.telemetry.begin(step)
        self._policy.set_step(step)

    def end_step(self) -> WorkerReport:
        """What the step was like."""
        return self.telemetry.end()

    # The rollout engine

    def keep_probe(self, probes: Sequence[Prompt]) -> None:
        """Remember what the engines' weights are verified on after each sync."""
        self._probe = probe(probes)

    def start_engine(self, probes: Sequence[Prompt]) -> None:
        """Start the rollout engine of this rank."""
        self.keep_probe(probes)
        self._responder = Responder.start(self._config, self._files, device=self._device, tokenizer=self._tokenizer)
        self._sync = WeightSync(self._responder.engine, probes, self._config.model.dtype)

    def generate(self, prompts: Sequence[Sequence[int]], seeds: Sequence[int]) -> list[Response]:
        """One response to each prompt."""
        with self.telemetry.measure("gen"):
            return self._own_responder.generate(prompts, seeds)

    def generate_greedily(self, prompts: Sequence[Sequence[int]], seeds: Sequence[int]) -> list[Response]:
        """The most probable response to each prompt."""
        return self._own_responder.generate_greedily(prompts, seeds)

    def converse(self, prompts: Sequence[Prompt], seeds: Sequence[int]) -> list[Episode]:
        """One conversation with the environment on each prompt."""
        with self.telemetry.measure("gen"):
            return self._own_responder.converse(prompts, seeds)

    def converse_greedily(self, prompts: Sequence[Prompt], seeds: Sequence[int]) -> list[Episode]:
        """The same, of the most probable tokens."""
        return self._own_responder.converse_greedily(prompts, seeds)

    def sleep_engine(self) -> None:
        """Let the engine give its memory back until the next sync."""
        self._own_responder.engine.sleep()

    def sync_weights(self) -> float:
        """Give this rank's engine the policy's weights, and verify that it has them: the mean difference of
        log-probabilities. Raises StaleWeightsError."""
        with self.telemetry.measure("update_weights"):
            return self._sync.bring(self._policy.full_weights(), self.probe_log_probs)

    def open_channel(self, meeting: Rendezvous, size: int) -> None:
        """Let rank 0 join the group of engines that are elsewhere, as its member 0 of `size`."""
        if self._rank == 0:
            self._channel = WeightChannel(meeting.address, meeting.port, rank=0, size=size, device=self._device)

    def send_weights(self) -> None:
        """Send the policy's weights to engines that are elsewhere."""
        with self.telemetry.measure("update_weights"):
            send(self._policy.full_weights(), self._channel)

    def probe_log_probs(self) -> Tensor:
        """The policy's log-probabilities of the probe: [B, T]."""
        return self._policy.probe_log_probs(as_response(self._probe))

    # What is learned from

    def log_probs(self, sequences: Sequences) -> tuple[Tensor, Tensor]:
        """Log-probabilities and entropies under the policy: [B, T]."""
        with self.telemetry.measure("old_log_prob"):
            return self._policy.log_probs(sequences)

    def ref_log_probs(self, sequences: Sequences) -> Tensor:
        """Log-probabilities under the reference: [B, T]."""
        with self.telemetry.measure("ref"):
            return self._policy.ref_log_probs(sequences)

    def values(self, sequences: Sequences) -> Tensor:
        """The critic's values: [B, T]."""
        assert self._critic is not None
        with self.telemetry.measure("values"):
            return self._critic.values(sequences)

    def model_rewards(self, path: str, prompts: Sequence[Prompt], texts: Sequence[str]) -> Tensor:
        """What the reward model at `path` says of responses: [B]. It stays loaded."""
        if path not in self._reward_models:
            self._reward_models[path] = RewardModel(
                path, device=self._device, dtype=self._dtype, trust_remote_code=self._config.model.trust_remote_code
            )
        return self._reward_models[path].score([prompt.messages or prompt.text for prompt in prompts], texts)

    # Learning

    def start_stage(self, learning_rate: float) -> None:
        """Begin a stage with a fresh optimizer and with the policy as it is now as its reference."""
        self._policy.start_stage(learning_rate)

    def supervised_step(self, sequences: Sequences, total_tokens: int) -> UpdateResult:
        """One step of the warm-up."""
        return self._policy.supervised_step(sequences, total_tokens)

    def update(self, batches: Sequence[MiniBatch]) -> list[UpdateResult]:
        """One optimizer step of the policy for each mini-batch."""
        with self.telemetry.measure("update_actor"):
            return [self._policy.update(batch) for batch in batches]

    def update_critic(self, batches: Sequence[MiniBatch]) -> list[UpdateResult]:
        """One optimizer step of the critic for each mini-batch."""
        assert self._critic is not None
        with self.telemetry.measure("update_critic"):
            return self._critic.update(batches)

    # Checkpoints

    def save(self, step: int, driver: DriverState, score: float | None) -> list[SaveOutcome]:
        """Save everything, or begin to. Returns the saves that have ended since the last call."""
        with self.telemetry.measure("save_checkpoint"):
            return self._saver.save(step, self._parts(), driver, score=score)

    def finished_saves(self, wait: bool) -> list[SaveOutcome]:
        """The save in the background, if it has ended; `wait` for that."""
        return self._saver.finished(wait=wait)

    def save_recorded(self, recordings: Path, step: int) -> None:
        """Save what a recorded step begins with, out of reach of maxToKeep."""
        (outcome,) = Saver(recordings, Checkpoint()).save(step, self._parts(), DriverState())
        if outcome.problem:
            _log.warning("%s", outcome.problem)

    def resume(self, checkpoints: Path) -> Resumed | None:
        """Load the checkpoint to go on from; the reference, where a warm-up made it, from step 0."""
        resumed = resume(checkpoints, self._config.checkpoint, self._parts())
        if resumed and self._policy.reference is not None and self._config.training.warmup is not None:
            load_reference(resumed.directory, self._policy.reference)
        return resumed

    def export(self, directory: Path) -> None:
        """Write the model in Hugging Face's format."""
        export(self._policy.model, self._tokenizer, directory, self._dtype)

    def close(self) -> None:
        """Free everything."""
        if self._responder is not None:
            self._responder.engine.close()
        if dist.is_initialized():  # vLLM ends the group, which it has joined
            dist.destroy_process_group()
        self._scratch.cleanup()

    @property
    def _own_responder(self) -> Responder:
        assert self._responder is not None, "this rank's engines are elsewhere"
        return self._responder

    def _parts(self) -> Parts:
        policy, critic = self._policy, self._critic
        parts: dict[str, Stateful] = {
            "model": ModelState(policy.model),
            "optimizer": OptimizerState(policy.model, policy.optimizer),
        }
        if critic is not None:
            parts |= {
                "critic": ModelState(critic.model),
                "critic_optimizer": OptimizerState(critic.model, critic.optimizer),
            }
        return parts
