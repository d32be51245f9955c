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
RESPONSE_TOKENS = 512
STEPS = 8
"""Steps of a run."""
FIRST = 2
"""The first step that counts."""
LEARNING_RATE = 1e-6
MIN_RATIO = 1.5
WHAT = "tokens/s against TRL's GRPOTrainer (trl 1.16.0)"
TARGET = f"at least {MIN_RATIO} x"
TEXTS = [f"{chr(97 + number)} is a letter:" for number in range(PROMPTS)]
CORES = len(os.sched_getaffinity(0))


def measure() -> Row:
    """Compare the medians of the steps."""
    try:
        python = create_environment("trl", ROOT / "out/oracles")
    except subprocess.CalledProcessError as error:
        return Row(WHAT, TARGET, f"trl could not be installed: {error}", None, {})
    ours = measure_ours()
    theirs = measure_trl(python)
    ratio = ours / theirs
    return Row(
        WHAT,
        TARGET,
        f"{ratio:.2f} x ({ours:,.0f} and {theirs:,.0f} tokens/s; {PROMPTS * N} responses of at most "
        f"{RESPONSE_TOKENS} tokens, {CORES} cores)",
        ratio >= MIN_RATIO,
        {"ours": ours, "trl": theirs},
    )


def measure_ours() -> float:
    """Run the trainer with vLLM. Return tokens per second."""
    with tempfile.TemporaryDirectory() as folder:
        config = build_config(
            folder,
            cpusPerWorker=CORES,
            model={"useRemovePadding": True},
            data={
                "preset": None,
                "inline": [{"prompt": text, "answer": ""} for text in TEXTS],
                "maxPromptLength": 32,
                "maxResponseLength": RESPONSE_TOKENS,
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


def measure_trl(python: Path) -> float:
    """Run TRL. Return tokens per second."""
    with tempfile.TemporaryDirectory() as folder:
        settings: dict[str, Any] = {
            "model": prepare_model_files(Model.model_validate({"fromSeed": MODEL}), Path(folder, "model")),
            "folder": folder,
            "texts": TEXTS,
            "prompts": PROMPTS,
            "n": N,
            "response_tokens": RESPONSE_TOKENS,
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
    print(measure().measured)
