"""A train worker: one rank of the policy's process group, with its shards."""

from __future__ import annotations

import logging
import os
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import torch
import torch.distributed as dist
from torch import Tensor
from torch._C._distributed_c10d import Store, TCPStore
from torch.distributed.checkpoint.stateful import Stateful
from torch.distributed.device_mesh import DeviceMesh
from transformers.utils.logging import disable_progress_bar

from rlt_api.blocks.checkpoint import Checkpoint
from rlt_api.spec.training_config import PublicationResult, TrainingConfig
from rlt_trainer.batches.pairs import Pairs
from rlt_trainer.batches.routes import Routes
from rlt_trainer.batches.sequences import MiniBatch, Sequences, TokenValues
from rlt_trainer.batches.update_result import UpdateResult
from rlt_trainer.bucket.folders import upload_numbered
from rlt_trainer.bucket.s3 import S3Objects
from rlt_trainer.checkpoint.bucket_marks import download, remove_downloads
from rlt_trainer.checkpoint.driver_state import DriverState
from rlt_trainer.checkpoint.marker import checkpoint_directory
from rlt_trainer.checkpoint.parts import ModelState, OptimizerState, Parts
from rlt_trainer.checkpoint.resume import Resumed, describe_other_reference, load_reference, resume
from rlt_trainer.checkpoint.saver import SaveOutcome, Saver
from rlt_trainer.cluster.connections import watch_connections
from rlt_trainer.cluster.process_variables import set_variables
from rlt_trainer.cluster.rendezvous import Rendezvous, listen_for_ranks, node_address, use_interface_of
from rlt_trainer.cluster.stack_signal import write_stacks_on_signal
from rlt_trainer.cluster.successor import start_successor
from rlt_trainer.data.prompt import Prompt
from rlt_trainer.data.tokenizer import load_tokenizer
from rlt_trainer.policy.config import load_image_processor, resolve_critic_model, resolve_teacher_model
from rlt_trainer.policy.mesh import create_mesh, set_collective_timeout
from rlt_trainer.policy.model_files import DTYPES, prepare_model_files
from rlt_trainer.publishing.publish import publish_folder
from rlt_trainer.rollout.delta_channel import join_group
from rlt_trainer.rollout.shared_channel import SharedSender
from rlt_trainer.rollout.weight_channel import GroupAddress, SharedAddress, WeightSender, send_weights
from rlt_trainer.rollout.weight_sums import Summation, Sums, add_up_sums, sum_weights
from rlt_trainer.rollout.weight_sync import pad_probe
from rlt_trainer.telemetry.bucket_lease import BucketLease
from rlt_trainer.telemetry.lease import Lease
from rlt_trainer.telemetry.worker_telemetry import WorkerReport, WorkerTelemetry

if TYPE_CHECKING:
    from rlt_trainer.policy.critic import Critic
    from rlt_trainer.policy.teacher import Teacher

_log = logging.getLogger(__name__)

VISIBLE_DEVICES = ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES")
"""Environment variables that select the devices of a process. Ray sets the first on NVIDIA and the second on AMD GPUs
(ray/_private/accelerators, Ray 2.60)."""


class TrainWorker:
    """One rank of the training, on one device. All methods are collective, except those that only return state."""

    def __init__(
        self,
        config: TrainingConfig,
        rank: int,
        world_size: int,
        *,
        address: str | None = None,
        variables: Mapping[str, str] | None = None,
    ) -> None:
        """`address`: of this node. Default: its address in the Ray cluster. `variables`: as in start_actor."""
        set_variables(variables or {})
        write_stacks_on_signal()
        self._config = config
        self._address = address or node_address()
        self._rank = rank
        self._world_size = world_size
        self._scratch = tempfile.TemporaryDirectory(prefix="rlt-model-")
        self._on_gpu = config.devices_per_worker > 0
        self._device = torch.device("cuda" if self._on_gpu else "cpu")
        self._dtype = DTYPES[config.model.dtype]
        self._timeout = timedelta(seconds=config.training.collective_timeout_seconds)
        self._store: TCPStore | None = None
        self._weight_store: TCPStore | None = None
        self._channel: WeightSender | None = None
        self._frozen_sums: Sums | None = None

    def rendezvous(self) -> Rendezvous:
        """Start the store of the train workers' process group. Return where the other ranks connect."""
        self._store = listen_for_ranks(self._address)
        return Rendezvous(self._address, self._store.port)

    def weight_rendezvous(self) -> Rendezvous:
        """Return where the members of the weights' process groups connect: one store of rank 0 for all of them."""
        if self._weight_store is None:
            self._weight_store = listen_for_ranks(self._address)
        return Rendezvous(self._address, self._weight_store.port)

    def connect(self, rendezvous: Rendezvous) -> None:
        """Join the process group of the train workers at the store of rank 0."""
        self.join(self._store or rendezvous.connect(self._timeout))

    def join(self, store: Store) -> None:
        """Join the process group of the train workers: gloo on CPUs, NCCL on GPUs."""
        use_interface_of(self._address)
        if not self._on_gpu:
            torch.set_num_threads(self._config.cpus_per_worker)
        store.set_timeout(self._timeout)
        dist.init_process_group(
            "nccl" if self._on_gpu else "gloo",
            store=store,
            rank=self._rank,
            world_size=self._world_size,
            timeout=self._timeout,
        )
        torch.manual_seed(self._config.training.seed)  # for a user-defined loss: rlt itself draws nothing from it

    def load_models(self) -> None:
        """Load this rank's shards of the policy, the critic and the reward models."""
        # Slow imports that the driver does not need.
        from rlt_trainer.policy.actor import Actor
        from rlt_trainer.policy.reward_model import RewardModel
        from rlt_trainer.policy.sharded_model import ModelOptions

        config = self._config
        disable_progress_bar()  # type: ignore[no-untyped-call] # a log is not a terminal
        mesh = create_mesh(self._device.type, config.training, self._world_size)
        self._files = prepare_model_files(config.model, Path(self._scratch.name))
        self._tokenizer = load_tokenizer(config.model)
        self._actor = Actor(
            self._files,
            model=config.model,
            dtype=self._dtype,
            mesh=mesh,
            algorithm=config.algorithm,
            training=config.training,
            temperature=config.rollout.temperature,
            max_response_length=config.data.max_response_length,
            processor=load_image_processor(config),
        )
        self._critic = self._load_critic(mesh)
        self._teacher = self._load_teacher(mesh)
        frozen = ModelOptions(
            mesh=mesh, dtype=self._dtype, frozen=True, trust_remote_code=config.model.trust_remote_code
        )
        self._reward_models = {
            reward.model: RewardModel(reward.model, frozen) for reward in config.rewards if reward.model is not None
        }
        set_collective_timeout(config.training.collective_timeout_seconds)  # the groups of the mesh exist now
        self._objects = S3Objects(config.bucket) if config.bucket else None
        self._saver = Saver(Path(config.run_directory) / "checkpoints", config.checkpoint, self._objects)
        self.telemetry = WorkerTelemetry(
            self._rank,
            device=self._device,
            dtype=self._dtype,
            profiles=Path(config.run_directory) / "profiles",
            profiler=config.observability.profiler,
        )

    def _load_critic(self, mesh: DeviceMesh) -> Critic | None:
        from rlt_trainer.policy.critic import Critic  # as in load_models

        config = self._config
        if config.algorithm.critic is None:
            return None
        start = resolve_critic_model(config)
        return Critic(
            self._files if start == config.model else prepare_model_files(start, Path(self._scratch.name)),
            model=config.model,
            dtype=self._dtype,
            mesh=mesh,
            algorithm=config.algorithm,
            training=config.training,
            max_response_length=config.data.max_response_length,
        )

    def _load_teacher(self, mesh: DeviceMesh) -> Teacher | None:
        from rlt_trainer.policy.teacher import Teacher  # as in load_models

        config = self._config
        distillation = config.algorithm.distillation
        if distillation is None:
            return None
        return Teacher(
            prepare_model_files(resolve_teacher_model(config, distillation), Path(self._scratch.name)),
            distillation=distillation,
            model=config.model,
            dtype=self._dtype,
            mesh=mesh,
            training=config.training,
            temperature=config.rollout.temperature,
            vocabulary=self._actor.model.config.get_text_config().vocab_size,
        )

    def begin_step(self, step: int) -> None:
        """Begin a step: set its learning rate, and assign later measurements to it."""
        self.telemetry.begin(step)
        self._actor.set_step(step)

    def end_step(self) -> WorkerReport:
        """Return the report of the step."""
        start_successor()  # beside a step, not beside the start of this program
        return self.telemetry.end()

    # Rollout engines

    def visible_devices(self) -> dict[str, str]:
        """Return the environment variables that select this worker's device."""
        return {name: os.environ[name] for name in VISIBLE_DEVICES if name in os.environ}

    def node_address(self) -> str:
        """Return the address of this worker's node."""
        return self._address

    def watch_connections(self, addresses: Sequence[str]) -> None:
        """End connections to other workers at `addresses` that do not answer. All process groups must exist."""
        watch_connections(set(addresses) - {self._address})

    def open_shared_channel(self) -> SharedAddress:
        """Open the channel of weights to the engine on this worker's device, in place of an earlier one."""
        if self._channel is not None:
            self._channel.close()
        sender = SharedSender(self._device)
        self._channel = sender
        return sender.address

    def open_group_channel(self, address: GroupAddress) -> None:
        """Open the channel of weights to engines in other pods, in place of an earlier one: rank 0 sends."""
        if self._rank == 0:
            if self._channel is not None:
                self._channel.close()
            self._channel = join_group(address, self._device, self._weight_store)

    def send_weights(self, version: int, *, add_up: bool) -> Sums:
        """Send the policy's weights to the engines. With `add_up`, return the sums over this rank's share of them.

        version: of the weights, as in Received.
        """
        if self._channel is not None:
            self._channel.version = version
        summation = Summation()
        frozen = Sums()
        with self.telemetry.measure("update_weights"):
            lora = self._config.model.lora
            if lora is not None and lora.sync_adapters:
                weights = self._actor.gather_adapters()
                frozen = self._sum_frozen_weights() if add_up else frozen
            else:
                weights = self._actor.gather_weights()
                if self._config.rollout.engine == "vllm":
                    from rlt_trainer.policy.weight_files import to_file_format  # as in load_models

                    weights = to_file_format(self._actor.model, weights)
            if add_up:
                weights = summation.follow(weights, share=self._rank, shares=self._world_size)
            send_weights(weights, self._channel)
            return add_up_sums([frozen if self._rank == 0 else Sums(), summation.read()])

    def release_memory(self, before: str) -> None:
        """Release the unused memory of the device `before` an engine uses it: start, weights or kv_cache."""
        self.telemetry.release_memory(before)

    def _sum_frozen_weights(self) -> Sums:
        """Return the sums over the weights below the adapters, which do not change. The first call is collective.

        An engine does not receive these weights, so only the sums of parts include them.
        """
        if self._frozen_sums is None:
            from rlt_trainer.policy.weight_files import to_file_format  # as in load_models

            weights = to_file_format(self._actor.model, self._actor.gather_weights(merged=False))
            self._frozen_sums = Sums(sum_weights(weights).parts)
        return self._frozen_sums

    def probe_log_probs(self, sequences: Sequence[Sequence[int]]) -> list[float]:
        """Compute the policy's log-probabilities of all tokens but the first of each probe sequence."""
        probe = pad_probe(sequences)
        log_probs: list[float] = self._actor.probe_log_probs(probe)[probe.response_mask].tolist()
        return log_probs

    # Experience

    def log_probs(self, sequences: Sequences) -> tuple[TokenValues, TokenValues]:
        """Compute log-probabilities and entropies under the policy."""
        with self.telemetry.measure("old_log_prob"):
            log_probs, entropy = self._actor.log_probs(sequences)
            return sequences.flatten(log_probs), sequences.flatten(entropy)

    def record_log_probs(self, sequences: Sequences) -> tuple[TokenValues, TokenValues, Routes]:
        """As log_probs, and the routes of all tokens, prompts included."""
        with self.telemetry.measure("old_log_prob"):
            log_probs, entropy, routes = self._actor.record_log_probs(sequences)
            return sequences.flatten(log_probs), sequences.flatten(entropy), sequences.flatten_routes(routes)

    def ref_log_probs(self, sequences: Sequences) -> tuple[TokenValues]:
        """Compute log-probabilities under the reference."""
        with self.telemetry.measure("ref"):
            return (sequences.flatten(self._actor.ref_log_probs(sequences)),)

    def teacher_log_probs(self, sequences: Sequences) -> tuple[TokenValues, ...]:
        """Compute log-probabilities under the teacher of the distillation, and for forward_kl_topk their tokens."""
        assert self._teacher is not None
        with self.telemetry.measure("teacher"):
            return tuple(sequences.flatten(each) for each in self._teacher.log_probs(sequences))

    def values(self, sequences: Sequences) -> tuple[TokenValues]:
        """Compute the critic's values."""
        assert self._critic is not None
        with self.telemetry.measure("values"):
            return (sequences.flatten(self._critic.values(sequences)),)

    def model_rewards(self, path: str, prompts: Sequence[Prompt], texts: Sequence[str]) -> Tensor:
        """Score this rank's responses with the reward model at `path`: [B]."""
        return self._reward_models[path].score([prompt.messages or prompt.text for prompt in prompts], texts)

    # Updates

    def start_stage(self, learning_rate: float) -> None:
        """Begin a stage: reset the optimizer, and make the current policy the reference."""
        self._actor.start_stage(learning_rate)

    def supervised_step(self, sequences: Sequences, total_tokens: int) -> UpdateResult:
        """Run one optimizer step of the supervised warmup."""
        return self._actor.supervised_step(sequences, total_tokens)

    def preference_step(self, pairs: Pairs, total_pairs: int) -> UpdateResult:
        """Run one optimizer step of the policy on this rank's pairs."""
        with self.telemetry.measure("update_actor"):
            return self._actor.preference_step(pairs, total_pairs)

    def update_actor(self, batches: Sequence[MiniBatch]) -> list[UpdateResult]:
        """Run one optimizer step of the policy for each mini-batch."""
        with self.telemetry.measure("update_actor"), self._actor.on_device():
            return [self._actor.update(batch) for batch in batches]

    def update_critic(self, batches: Sequence[MiniBatch]) -> list[UpdateResult]:
        """Run one optimizer step of the critic for each mini-batch."""
        assert self._critic is not None
        with self.telemetry.measure("update_critic"), self._critic.on_device():
            return [self._critic.update(batch) for batch in batches]

    # Checkpoints

    def save(
        self, step: int, driver: DriverState, score: float | None, lease: Lease | BucketLease | None = None
    ) -> list[SaveOutcome]:
        """Save a checkpoint, or start a save in the background. Rank 0 writes the state of the `driver`, unless the
        `lease` is lost.

        Returns the saves that ended since the last call.
        """
        with self.telemetry.measure("save_checkpoint"):
            return self._saver.save(step, self._parts(), driver, score=score, lease=lease)

    def finished_saves(self, *, wait: bool) -> list[SaveOutcome]:
        """Return the save in the background if it has ended. `wait` until it ends."""
        return self._saver.collect_outcomes(wait=wait)

    def save_recorded(self, recordings: Path, step: int) -> None:
        """Save the checkpoint from which a recorded step starts. maxToKeep does not apply to it."""
        (outcome,) = Saver(recordings, Checkpoint()).save(step, self._parts(), DriverState())
        if outcome.error:
            _log.warning("%s", outcome.error)

    def resume(self, checkpoints: Path) -> Resumed | None:
        """Load the checkpoint to resume from. If the run has a warmup, load the reference from step 0."""
        try:
            return self._resume(checkpoints)
        finally:
            if self._objects:
                remove_downloads(checkpoints)

    def _resume(self, checkpoints: Path) -> Resumed | None:
        resumed = resume(checkpoints, self._config.checkpoint, self._parts(), self._objects)
        if resumed is None or self._actor.reference is None:
            return resumed
        if self._config.training.warmup is not None:
            if self._objects:
                download(self._objects, checkpoint_directory(checkpoints, 0), rank=self._rank)
            load_reference(resumed.directory, self._actor.reference)
        elif warning := describe_other_reference(resumed.directory):
            return replace(resumed, warnings=(*resumed.warnings, warning))
        return resumed

    def export(self, directory: Path) -> None:
        """Write the model in Hugging Face format, and upload it if the run has a bucket."""
        from rlt_trainer.checkpoint.export import export  # as in load_models

        with self._actor.weights_on_device():
            export(self._actor.model, self._tokenizer, directory, self._dtype)
        if self._objects and self._rank == 0:
            upload_numbered(self._objects, directory)
            if not self._config.publish:
                shutil.rmtree(directory)

    def publish(self, directory: Path, card: str) -> list[PublicationResult]:
        """Publish the exported model, on rank 0, which has written it."""
        return publish_folder(self._config, directory, card)

    def close(self) -> None:
        """Release all resources."""
        if self._channel is not None:
            self._channel.close()
        dist.destroy_process_group()
        self._scratch.cleanup()

    def _parts(self) -> Parts:
        actor = self._actor
        critic = self._critic
        parts: dict[str, Stateful] = {
            "model": ModelState(actor.model),
            "optimizer": OptimizerState(actor.model, actor.optimizers),
        }
        if critic is not None:
            parts |= {
                "critic": ModelState(critic.model),
                "critic_optimizer": OptimizerState(critic.model, critic.optimizers),
            }
        return parts
