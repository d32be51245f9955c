"""Environments for the tests of conversations. Their processes import this module."""

from __future__ import annotations

import os
import subprocess
import time

from rlt_trainer.data.prompt import Prompt


class Echo:
    """Repeats each turn with a reward of 0.5. Some turns have an effect: see `step`."""

    opening: str | None = None

    def reset(self, prompt: Prompt) -> str | None:
        self.prompt = prompt
        return self.opening

    def step(self, response: str) -> tuple[object, object, bool]:
        match response:
            case "raise":
                raise RuntimeError("no such luck")
            case "hang":
                time.sleep(3600)
            case "exit":
                os._exit(3)
            case "number":
                return 7, 0.5, False
            case "text":
                return "", "good", False
            case "spawn":
                return str(subprocess.Popen(["sleep", "3600"], stdout=subprocess.DEVNULL).pid), 0.5, False
            case "where":
                return f"{os.getpid()}", 0.5, False
            case "prompt":
                return f"{self.prompt.ground_truth}{self.prompt.extra_info['bonus']}", 0.5, False
        return f"[{response}]", float("inf") if response == "inf" else 0.5, response == "end"


class Opening(Echo):
    """Has an observation before the first turn."""

    opening = "go"


class Slow:
    """Replies after 0.1 s, without a reward."""

    def reset(self, prompt: Prompt) -> None:
        return None

    def step(self, response: str) -> tuple[str, None, bool]:
        time.sleep(0.1)
        return "ok", None, False
