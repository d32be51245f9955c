"""The tables of docs/scale.md: `.venv/bin/python -m trainer_bench.scale` with PYTHONPATH=bench. Arithmetic alone.

The formulas are from the page. The job of the first table has colocated engines of one device, one epoch, no critic and
no context parallelism. The second table has the weight sync of two mixtures of experts.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from rlt_trainer.rollout.buckets import BUCKET_BYTES, pack_buckets
from rlt_trainer.rollout.expert_stacks import iterate_experts

PARAMETERS = 8.2e9
ROWS_PER_RANK = 32
PROMPT_TOKENS = 512
RESPONSE_TOKENS = 2000
LONGEST = 8192
RECEIVED_BYTES = 9
"""Of a response token from an engine: int32 token, float32 log-probability, whether it was sampled."""
TOKEN_BYTES = 4
"""Of a token in Sequences."""
MASK_BYTES = 1
"""Of a response token in Sequences: whether the policy is trained on it."""
VALUE_BYTES = 4
"""Of a float32 value of a response token."""
TRAIN_CALLS = 10
"""begin_step, log_probs, ref_log_probs, update_actor, probe_log_probs, release_memory, send_weights, release_memory,
end_step, finished_saves"""
ENGINE_CALLS = 6
"""pause, receive_weights, sum_weights, resume, log_probs, end_step; without submit and ended"""
DRIVER_S_PER_TOKEN = 0.18e-6
DRIVER_S_PER_RANK = 1.9e-3
"""CPU seconds of the driver per token and per rank, measured by the rows driver and ranks."""
EXPERTS = 128
VOCABULARY = 151_936
HEAD = 128
"""Width of a head."""
KEY_HEADS = 4
TENSOR_PARALLEL = 8
"""Devices of an engine that splits each weight."""
SUM_BYTES = 75
"""Of a weight's sums in the messages of a verified sync."""


@dataclass(frozen=True)
class Scale:
    """A job on some GPUs, 8 in each pod."""

    gpus: int

    @property
    def responses(self) -> int:
        """Responses of a step."""
        return ROWS_PER_RANK * self.gpus

    @property
    def processes(self) -> int:
        """Train workers, rollout workers and their vLLM processes, and the driver."""
        return 3 * self.gpus + 1

    @property
    def calls(self) -> int:
        """Calls of a step, without those that submit requests and collect responses."""
        return (TRAIN_CALLS + ENGINE_CALLS) * self.gpus

    @property
    def update_bytes(self) -> int:
        """Arguments of update_actor on all ranks, the largest in a step."""
        return self._sequence_bytes + 3 * VALUE_BYTES * self._response_tokens

    @property
    def driver_bytes(self) -> int:
        """Bytes that the driver receives and sends in a step."""
        values = 3 * VALUE_BYTES * self._response_tokens  # log-probabilities, entropy, the reference's
        received = RECEIVED_BYTES * self._response_tokens + values
        return received + 2 * self._sequence_bytes + self.update_bytes

    @property
    def padded_bytes(self) -> int:
        """One float32 tensor [B, T] in the driver."""
        return VALUE_BYTES * self.responses * LONGEST

    @property
    def driver_cpu_s(self) -> float:
        """CPU seconds of the driver in a step."""
        return DRIVER_S_PER_TOKEN * self._response_tokens + DRIVER_S_PER_RANK * self.gpus

    @property
    def state_bytes_per_rank(self) -> float:
        """Weights, gradients, moments and the reference of a rank."""
        return (16 + 2) * PARAMETERS / self.gpus

    @property
    def checkpoint_bytes_per_rank(self) -> float:
        """Weights and moments of a rank."""
        return 12 * PARAMETERS / self.gpus

    @property
    def _response_tokens(self) -> int:
        return self.responses * RESPONSE_TOKENS

    @property
    def _sequence_bytes(self) -> int:
        return TOKEN_BYTES * self.responses * PROMPT_TOKENS + (TOKEN_BYTES + MASK_BYTES) * self._response_tokens


@dataclass(frozen=True)
class Mixture:
    """A Qwen3-MoE with untied embeddings (config.json of its repository)."""

    name: str
    layers: int
    hidden: int
    intermediate: int
    """Of an expert."""
    heads: int

    def weights(self) -> Iterator[tuple[str, Tensor]]:
        """Yield the weights as a train worker sends them, in bfloat16, without memory."""
        queries = self.heads * HEAD
        values = KEY_HEADS * HEAD
        shapes = {
            "q_proj": (queries, self.hidden),
            "k_proj": (values, self.hidden),
            "v_proj": (values, self.hidden),
            "o_proj": (self.hidden, queries),
            "q_norm": (HEAD,),
            "k_norm": (HEAD,),
            "input_layernorm": (self.hidden,),
            "post_attention_layernorm": (self.hidden,),
            "mlp.gate": (EXPERTS, self.hidden),
            "mlp.experts.0.gate_proj": (EXPERTS, self.intermediate, self.hidden),
            "mlp.experts.0.up_proj": (EXPERTS, self.intermediate, self.hidden),
            "mlp.experts.0.down_proj": (EXPERTS, self.hidden, self.intermediate),
        }
        yield "embed_tokens.weight", _outline(VOCABULARY, self.hidden)
        yield "lm_head.weight", _outline(VOCABULARY, self.hidden)
        yield "norm.weight", _outline(self.hidden)
        for layer in range(self.layers):
            for name, shape in shapes.items():
                yield f"layers.{layer}.{name}.weight", _outline(*shape)


MIXTURES = (Mixture("30B-A3B", 48, 2048, 768, 32), Mixture("235B-A22B", 94, 4096, 1536, 64))


def render_syncs() -> str:
    """Render the table of weight syncs as Markdown. In separate mode, half of the GPUs belong to engines."""
    lines: dict[str, list[str]] = {}
    for mixture in MIXTURES:
        for gpus in (16, 128):
            values = {"| |": f"{mixture.name}, {gpus} GPUs"}
            values |= {f"| {name} |": value for name, value in describe_sync(mixture, gpus).items()}
            for name, value in values.items():
                lines.setdefault(name, []).append(value)
    header, *rows = (f"{name} {' | '.join(values)} |" for name, values in lines.items())
    return "\n".join([header, "|---|" + "---:|" * 4, *rows])


def describe_sync(mixture: Mixture, gpus: int) -> dict[str, str]:
    """Return the bytes and the messages of a sync by their names."""
    buckets = list(pack_buckets(mixture.weights(), _allocate, limit=BUCKET_BYTES))
    count = sum(1 for _ in iterate_experts(mixture.weights()))
    size = sum(tensor.nbytes for _, tensor in mixture.weights())
    half = gpus // 2
    part = count_part_bytes(mixture)
    return {
        "weights in the files": f"{count:,}",
        "tensors in the messages, with stacks of experts": f"{sum(len(each.layouts) for each in buckets):,}",
        "buckets": f"{len(buckets):,}",
        "weights, GB": f"{size / 1e9:.1f}",
        "colocated: a rank receives to gather them, GB": f"{size * (gpus - 1) / gpus / 1e9:.1f}",
        "colocated: messages of all ranks to their engines": f"{(len(buckets) + 1) * gpus:,}",
        f"colocated: what a device of {TENSOR_PARALLEL} in an engine keeps, GB": f"{part / 1e9:.1f}",
        "separate: a rank receives to gather them, GB": f"{size * (half - 1) / half / 1e9:.1f}",
        "separate: rank 0 sends, GB": f"{size / 1e9:.1f}",
        "separate: broadcasts of NCCL": f"{len(buckets):,}",
        "separate: broadcasts of gloo": f"{2 * (len(buckets) + 1):,}",
        "sums through the driver, engines of 8 devices, MB": f"{SUM_BYTES * count * (1 + gpus // 8) / 1e6:.1f}",
    }


def count_part_bytes(mixture: Mixture) -> float:
    """Return the bytes that one of TENSOR_PARALLEL devices keeps. Norms and routers are whole on each, and a device has
    at least one head of keys and values (vllm/model_executor/layers/linear.py: QKVParallelLinear)."""
    total = 0.0
    for name, tensor in mixture.weights():
        if "norm" in name or "mlp.gate" in name:
            devices = 1
        else:
            devices = min(TENSOR_PARALLEL, KEY_HEADS) if "k_proj" in name or "v_proj" in name else TENSOR_PARALLEL
        total += tensor.nbytes / devices
    return total


def _outline(*shape: int) -> Tensor:
    return torch.empty(shape, dtype=torch.bfloat16, device="meta")


def _allocate(size: int) -> Tensor:
    return torch.empty(size, dtype=torch.uint8, device="meta")


def render() -> str:
    """Render the table as Markdown."""
    scales = [Scale(gpus) for gpus in (8, 64, 256, 1024)]
    lines = {
        "pods": [f"{each.gpus // 8}" for each in scales],
        "processes": [f"{each.processes:,}" for each in scales],
        "responses of a step": [f"{each.responses:,}" for each in scales],
        "response tokens of a step, millions": [f"{each.responses * RESPONSE_TOKENS / 1e6:.1f}" for each in scales],
        "the driver's calls of a step, without requests": [f"{each.calls:,}" for each in scales],
        "`submit` and `ended` calls of a step, at most": [f"{2 * each.responses:,}" for each in scales],
        "through the driver in a step, GB": [f"{each.driver_bytes / 1e9:.2f}" for each in scales],
        "the largest of it at a time, `update_actor`, GB": [f"{each.update_bytes / 1e9:.2f}" for each in scales],
        "one float32 tensor [B, T] in the driver, GB": [f"{each.padded_bytes / 1e9:.2f}" for each in scales],
        "CPU of the driver in a step, s": [f"{each.driver_cpu_s:.1f}" for each in scales],
        "state of a rank, GB": [f"{each.state_bytes_per_rank / 1e9:.2f}" for each in scales],
        "checkpoint, a rank's part, GB": [f"{each.checkpoint_bytes_per_rank / 1e9:.2f}" for each in scales],
        "weights that a rank receives in a sync, GB": [
            f"{2 * PARAMETERS * (each.gpus - 1) / each.gpus / 1e9:.1f}" for each in scales
        ],
        "buckets of a sync": [f"{-(-2 * PARAMETERS // BUCKET_BYTES):.0f}" for _ in scales],
    }
    header = ["| | " + " | ".join(f"{each.gpus:,} GPUs" for each in scales) + " |", "|---|" + "---:|" * len(scales)]
    return "\n".join([*header, *(f"| {name} | {' | '.join(values)} |" for name, values in lines.items())])


if __name__ == "__main__":
    print(render(), render_syncs(), sep="\n\n")
