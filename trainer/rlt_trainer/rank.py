"""One rank of the training: a share of the policy, a rollout engine, and the process group with the other ranks."""

from __future__ import annotations

import os
import socket
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import psutil  # type: ignore[import-untyped]
import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.device_mesh import init_device_mesh
from transformers.utils.logging import disable_progress_bar

from rlt_api.training_config import TrainingConfig
from rlt_trainer.checkpoint import state
from rlt_trainer.checkpoint.export import export
from rlt_trainer.checkpoint.marker import latest_complete
from rlt_trainer.data.prompt import Prompt
from rlt_trainer.data.seeded_model import load_tokenizer
from rlt_trainer.policy.actor import Policy
from rlt_trainer.policy.model import DTYPES, model_files
from rlt_trainer.policy.update_result import UpdateResult
from rlt_trainer.rollout.engine import Response, RolloutEngine, Sampling
from rlt_trainer.rollout.transformers_sampler import TransformersSampler
from rlt_trainer.rollout.verification import as_response, probe, verify_weights
from rlt_trainer.sequences import MiniBatch, Sequences

PATIENCE = timedelta(minutes=10)
"""How long a rank waits for the others in a collective (verl's nccl_timeout)."""


@dataclass(frozen=True)
class Rendezvous:
    """Where the ranks meet."""

    address: str
    port: int


class Rank:
    """Everything that happens on one device. All methods are collective, but those that only tell something."""

    def __init__(self, config: TrainingConfig, rank: int, ranks: int, *, node_address: str) -> None:
        self._config = config
        self._node_address = node_address
        self._rank = rank
        self._ranks = ranks
        self._scratch = tempfile.TemporaryDirectory(prefix="rlt-model-")

    def node_address(self) -> str:
        """The address of this rank's node."""
        return self._node_address

    def rendezvous(self) -> Rendezvous:
        """A free port at this rank's node, for rank 0."""
        address = self._node_address
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        with socket.create_server((address, 0), family=family) as server:
            return Rendezvous(address, int(server.getsockname()[1]))

    def connect(self, meeting: Rendezvous) -> None:
        """Join the process group: gloo on CPUs, NCCL on GPUs."""
        on_gpu = self._config.devices_per_worker > 0
        if not on_gpu:
            use_interface_of(self._node_address)
            torch.set_num_threads(self._config.cpus_per_worker)
        host = f"[{meeting.address}]" if ":" in meeting.address else meeting.address
        dist.init_process_group(
            "nccl" if on_gpu else "gloo",
            init_method=f"tcp://{host}:{meeting.port}",
            rank=self._rank,
            world_size=self._ranks,
            timeout=PATIENCE,
        )
        torch.manual_seed(self._config.training.seed)

    def load_policy(self) -> None:
        """Load the model and shard it."""
        config = self._config
        disable_progress_bar()  # type: ignore[no-untyped-call] # a log is no terminal
        mesh = init_device_mesh("cuda" if config.devices_per_worker > 0 else "cpu", (self._ranks,))
        self._device = torch.device(mesh.device_type)
        self._dtype = DTYPES[config.model.dtype]
        self._files = model_files(config.model, Path(self._scratch.name))
        self._tokenizer = load_tokenizer(config.model)
        self._policy = Policy(
            self._files,
            dtype=self._dtype,
            mesh=mesh,
            algorithm=config.algorithm,
            training=config.training,
            temperature=config.rollout.temperature,
        )

    def start_engine(self, probes: Sequence[Prompt]) -> None:
        """Start the rollout engine. `probes` are what its weights are verified on after each sync."""
        config = self._config
        self._probe = probe(probes)
        sampling = Sampling(
            temperature=config.rollout.temperature,
            top_p=config.rollout.top_p,
            max_tokens=config.data.max_response_length,
            stop_token_ids=stop_tokens(self._policy.model.generation_config, self._tokenizer.eos_token_id),
        )
        self._engine: RolloutEngine
        if config.rollout.engine == "transformers":
            self._engine = TransformersSampler(self._files, dtype=self._dtype, device=self._device, sampling=sampling)
            return
        from rlt_trainer.rollout.vllm_engine import VllmEngine

        self._engine = VllmEngine(
            self._files,
            dtype=config.model.dtype,
            rollout=config.rollout,
            sampling=sampling,
            max_model_len=config.data.max_prompt_length + config.data.max_response_length,
            seed=config.training.seed,
        )

    def start_stage(self, learning_rate: float) -> None:
        """Begin a stage with a fresh optimizer and with the policy as it is now as its reference."""
        self._policy.start_stage(learning_rate)

    def supervised_step(self, sequences: Sequences, total_tokens: int) -> UpdateResult:
        """One step of the warm-up."""
        return self._policy.supervised_step(sequences, total_tokens)

    def generate(self, prompts: Sequence[Sequence[int]], seeds: Sequence[int]) -> list[Response]:
        """One response to each prompt."""
        return self._engine.generate(prompts, seeds)

    def log_probs(self, sequences: Sequences) -> tuple[Tensor, Tensor]:
        """Log-probabilities and entropies under the policy: [B, T]."""
        return self._policy.log_probs(sequences)

    def ref_log_probs(self, sequences: Sequences) -> Tensor:
        """Log-probabilities under the reference: [B, T]."""
        return self._policy.ref_log_probs(sequences)

    def update(self, batches: Sequence[MiniBatch]) -> list[UpdateResult]:
        """One optimizer step for each mini-batch."""
        return [self._policy.update(batch) for batch in batches]

    def sync_weights(self) -> float:
        """Give the engine the policy's weights, and verify that it has them: the mean difference of log-probabilities.

        Raises StaleWeightsError.
        """
        self._engine.update_weights(self._policy.full_weights())
        expected = self._policy.probe_log_probs(as_response(self._probe))
        return verify_weights(self._engine, self._probe, expected, self._config.model.dtype)

    def latest_checkpoint(self, checkpoints: Path) -> int | None:
        """The step of the latest whole checkpoint."""
        return latest_complete(checkpoints)

    def save(self, checkpoints: Path, step: int) -> None:
        """Save weights and optimizer."""
        state.save(checkpoints, step, self._policy.model, self._policy.optimizer)

    def resume(self, checkpoints: Path, step: int) -> None:
        """Load weights and optimizer of `step`; the reference, where a warm-up made it, from step 0."""
        state.load(checkpoints, step, self._policy.model, self._policy.optimizer)
        if self._policy.reference is not None and self._config.training.warmup is not None:
            state.load_model(checkpoints, 0, self._policy.reference)

    def export(self, directory: Path) -> None:
        """Write the model in Hugging Face's format."""
        export(self._policy.model, self._tokenizer, directory, self._dtype)

    def close(self) -> None:
        """Free everything."""
        self._engine.close()
        if dist.is_initialized():  # vLLM ends the group, which it has joined
            dist.destroy_process_group()
        self._scratch.cleanup()


def stop_tokens(generation_config: object, eos_token_id: int) -> tuple[int, ...]:
    """The tokens that end a response: the tokenizer's and those of the model's generation config (chat models)."""
    configured = getattr(generation_config, "eos_token_id", None)
    more = configured if isinstance(configured, list) else [] if configured is None else [configured]
    return tuple(sorted({eos_token_id, *more}))


def use_interface_of(address: str) -> None:
    """Let gloo listen at the node's own `address`: it resolves the host's name, which may give loopback.

    GLOO_SOCKET_IFNAME, where the user has set it, is left alone.
    """
    try:
        resolved = socket.getaddrinfo(socket.gethostname(), None)
    except socket.gaierror:
        resolved = []
    if any(entry[4][0] == address for entry in resolved):
        return
    for name, addresses in psutil.net_if_addrs().items():
        if any(each.address == address for each in addresses):
            os.environ.setdefault("GLOO_SOCKET_IFNAME", name)
