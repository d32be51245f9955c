"""Packing and dynamic batches against padding, with the lengths of GSM8K's questions and solutions."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from pathlib import Path

import torch
from bench_report import ROOT, Row

from rlt_trainer.batches.sequences import Experience, MiniBatch, Sequences
from rlt_trainer.data.gsm8k import read_gsm8k_rows
from rlt_trainer.policy.micro_batches import MicroBatchSize, split_micro_batches
from rlt_trainer.workers.train_worker import TrainWorker
from trainer_bench.configs import LOOPBACK, build_config
from trainer_bench.interleaved import compare

WHAT = "tokens computed by padding, against packing and dynamic batches, GSM8K's lengths"
MIN_RATIO = 1.5
TARGET = f"at least {MIN_RATIO} x"
FOLDER = "RLT_GSM8K"
"""Environment variable: the folder with GSM8K's train.jsonl. Default: shared/data/gsm8k beside the repository."""
BYTES_PER_TOKEN = 4
"""About that of Qwen's tokenizers on English text."""
ROWS, MICRO_ROWS, MICRO_TOKENS = 128, 16, 4096
ROUNDS = 3


def measure() -> Row:
    """Count the tokens of the micro-batches, and compare the time of an update in both forms."""
    folder = Path(os.environ.get(FOLDER, ROOT.parent / "shared/data/gsm8k"))
    if not (folder / "train.jsonl").exists():
        return Row(WHAT, TARGET, f"GSM8K is not at {FOLDER}", None, {})
    torch.set_num_threads(1)
    batch = build_batch(read_gsm8k_rows(folder, "train"))
    sequences = batch.experience.sequences
    tokens = int(sequences.prompt_mask.sum() + sequences.response_attention.sum())
    padded = count_padded(sequences)
    with tempfile.TemporaryDirectory() as scratch:
        packing = build_worker(
            scratch, {"useRemovePadding": True}, {"useDynamicBsz": True, "ppoMaxTokenLenPerDevice": MICRO_TOKENS}
        )
        padding = build_worker(scratch, {}, {"ppoMicroBatchSizePerDevice": MICRO_ROWS}, connected=True)
        times = compare(lambda: padding.update_actor([batch]), lambda: packing.update_actor([batch]), rounds=ROUNDS)
        packing.close()
    return Row(
        WHAT,
        TARGET,
        f"{padded / tokens:.2f} x ({padded:,} and {tokens:,}); time of an update {times}",
        padded / tokens >= MIN_RATIO,
        {"padded": padded, "tokens": tokens, **vars(times)},
    )


def build_batch(rows: Sequence[dict[str, object]]) -> MiniBatch:
    """Build sequences with the lengths of the first rows."""
    lengths = [(len(str(row["prompt"])), len(str(row["extra_info"]["answer"]))) for row in rows[:ROWS]]  # type: ignore[index]
    sequences = Sequences.pad(
        [[1] * (prompt // BYTES_PER_TOKEN) for prompt, _ in lengths],
        [[2] * (answer // BYTES_PER_TOKEN) for _, answer in lengths],
        pad_token_id=0,
    )
    zeros = torch.zeros(sequences.responses.shape)
    experience = Experience(sequences, zeros, zeros + 1, ref_log_probs=zeros)
    return MiniBatch(experience, int(sequences.response_mask.sum()), ROWS)


def count_padded(sequences: Sequences) -> int:
    """Count the tokens of micro-batches of MICRO_ROWS rows, with padding."""
    parts = split_micro_batches(sequences, MicroBatchSize(MICRO_ROWS), torch.device("cpu"))
    return sum(part.prompts.numel() + part.responses.numel() for _, part in parts)


def build_worker(
    folder: str, model: dict[str, object], training: dict[str, object], *, connected: bool = False
) -> TrainWorker:
    """Build a train worker of this process."""
    worker = TrainWorker(build_config(folder, model=model, training=training), 0, 1, address=LOOPBACK)
    if not connected:
        worker.connect(worker.rendezvous())
    worker.load_models()
    worker.start_stage(1e-4)
    return worker


if __name__ == "__main__":
    print(measure())
