"""Steps of TRL's GRPOTrainer. Run in an environment with trl 1.16.0: `python trl_steps.py SETTINGS`.

SETTINGS is JSON with the fields below. Prints the seconds and the tokens of each step, prompts included, as JSON.
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any

import torch
from datasets import Dataset
from transformers import AutoModelForCausalLM, AutoTokenizer, TrainerCallback
from trl import GRPOConfig, GRPOTrainer

SETTINGS = json.loads(sys.argv[1])
ROWS = SETTINGS["prompts"] * SETTINGS["n"]


class Clock(TrainerCallback):
    """Measures the steps."""

    def __init__(self) -> None:
        self.seconds: list[float] = []

    def on_step_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self.start = time.perf_counter()

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self.seconds.append(time.perf_counter() - self.start)


def main() -> None:
    """Train and print."""
    torch.set_num_threads(SETTINGS["threads"])
    tokens: list[int] = []

    def reward(completion_ids: list[list[int]], prompts: list[str], **_: Any) -> list[float]:
        tokens.append(sum(map(len, completion_ids)) + sum(map(len, prompts)))
        return [float(len(set(each))) for each in completion_ids]

    clock = Clock()
    trainer = GRPOTrainer(
        model=AutoModelForCausalLM.from_pretrained(SETTINGS["model"], dtype=torch.float32),
        reward_funcs=reward,
        args=GRPOConfig(
            output_dir=SETTINGS["folder"],
            per_device_train_batch_size=ROWS,
            num_generations=SETTINGS["n"],
            max_completion_length=SETTINGS["response_tokens"],
            max_steps=SETTINGS["steps"],
            learning_rate=SETTINGS["learning_rate"],
            beta=0.0,
            use_cpu=True,
            bf16=False,
            gradient_checkpointing=False,
            report_to="none",
            save_strategy="no",
            disable_tqdm=True,
        ),
        train_dataset=Dataset.from_dict({"prompt": SETTINGS["texts"]}),
        processing_class=AutoTokenizer.from_pretrained(SETTINGS["model"]),
        callbacks=[clock],
    )
    trainer.train()
    print(json.dumps({"seconds": clock.seconds, "tokens": tokens}))


if __name__ == "__main__":
    main()
