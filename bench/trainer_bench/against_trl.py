"""Tokens per second against TRL's GRPOTrainer: the same tiny model, prompts, batch and lengths, on the same cores.

TRL generates with transformers, its default. Its step has no weight sync.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from bench_report import ROOT, Row
from make_fixtures import create_environment

from rlt_api.blocks.model import Model
from rlt_trainer.policy.model_files import prepare_model_files
from trainer_bench.configs import MODEL, build_config
from trainer_bench.local_run import run_local

PROMPTS = 16
N = 8
STEPS = 8
"""Steps of a run."""
FIRST = 2
"""The first step that counts."""
LEARNING_RATE = 1e-6
TEXTS = [f"{chr(97 + number)} is a letter:" for number in range(PROMPTS)]
CORES = len(os.sched_getaffinity(0))


def measure() -> Row:
    """Compare with long responses, most of which end early."""
    return compare(512, 2.4, packed=True)


def measure_short() -> Row:
    """Compare with short responses, whose lengths differ less: padding is faster on CPUs."""
    return compare(128, 0.8, packed=False)


def compare(response_tokens: int, min_ratio: float, *, packed: bool) -> Row:
    """Compare the medians of the steps with responses of at most `response_tokens`."""
    what = f"tokens/s against TRL's GRPOTrainer (trl 1.16.0), responses of at most {response_tokens} tokens"
    target = f"at least {min_ratio} x"
    try:
        python = create_environment("trl", ROOT / "out/oracles")
    except subprocess.CalledProcessError as error:
        return Row(what, target, f"trl could not be installed: {error}", None, {})
    ours = measure_ours(response_tokens, packed=packed)
    theirs = measure_trl(python, response_tokens)
    ratio = ours / theirs
    return Row(
        what,
        target,
        f"{ratio:.2f} x ({ours:,.0f} and {theirs:,.0f} tokens/s; {PROMPTS * N} responses, {CORES} cores)",
        ratio >= min_ratio,
        {"ours": ours, "trl": theirs},
    )


def measure_ours(response_tokens: int, *, packed: bool) -> float:
    """Run the trainer with vLLM. Return tokens per second."""
    with tempfile.TemporaryDirectory() as folder:
        config = build_config(
            folder,
            cpusPerWorker=CORES,
            model={"useRemovePadding": packed},
            data={
                "preset": None,
                "inline": [{"prompt": text, "answer": ""} for text in TEXTS],
                "maxPromptLength": 32,
                "maxResponseLength": response_tokens,
            },
            rewards=[{"name": "regex", "options": {"pattern": "[a-z]{2}"}}],
            algorithm={"klLossCoef": 0},
            training={
                "totalSteps": STEPS,
                "trainBatchSize": PROMPTS,
                "ppoMiniBatchSize": PROMPTS,
                "ppoMicroBatchSizePerDevice": PROMPTS * N,
                "learningRate": LEARNING_RATE,
            },
            rollout={"engine": "vllm", "responsesPerPrompt": N},
        )
        steps = run_local(config)[FIRST:]
    return statistics.median(step["perf/total_num_tokens"] / step["perf/time_per_step"] for step in steps)


def measure_trl(python: Path, response_tokens: int) -> float:
    """Run TRL. Return tokens per second."""
    with tempfile.TemporaryDirectory() as folder:
        settings: dict[str, Any] = {
            "model": prepare_model_files(Model.model_validate({"fromSeed": MODEL}), Path(folder, "model")),
            "folder": folder,
            "texts": TEXTS,
            "prompts": PROMPTS,
            "n": N,
            "response_tokens": response_tokens,
            "steps": STEPS,
            "learning_rate": LEARNING_RATE,
            "threads": CORES,
        }
        command: list[str | Path] = [python, "-W", "ignore", ROOT / "bench/trl_steps.py", json.dumps(settings)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"TRL failed: {done.stderr[-2000:]}")
    found = json.loads(done.stdout.splitlines()[-1])
    pairs: list[tuple[int, float]] = list(zip(found["tokens"], found["seconds"], strict=True))[FIRST:]
    return statistics.median(tokens / seconds for tokens, seconds in pairs)


if __name__ == "__main__":
    print(measure().measured, measure_short().measured, sep="\n")
