"""The rewards of jobs over the steps that a server has seen: the status of a job has the latest reward alone."""

from __future__ import annotations

from collections.abc import Iterable

from rlt_core.job import Manifest

MAX_STEPS = 400
"""Maximum number of steps of a job, the latest ones."""


class RewardHistory:
    """The reward of each step that was the latest one when the jobs were read."""

    def __init__(self) -> None:
        self._rewards: dict[str, dict[int, float]] = {}

    def record(self, jobs: Iterable[Manifest]) -> None:
        """Add the latest rewards. Jobs that do not exist any more are dropped.

        A job that resumes repeats steps: those after its step are dropped.
        """
        previous = self._rewards
        self._rewards = {}
        for job in jobs:
            progress = job.get("status", {}).get("progress") or {}
            step = progress.get("step", 0)
            reward = (progress.get("metrics") or {}).get("reward")
            known = {each: value for each, value in previous.get(_identify(job), {}).items() if each <= step}
            if reward is not None:
                known[step] = reward
            self._rewards[_identify(job)] = dict(list(known.items())[-MAX_STEPS:])

    def get(self, job: Manifest) -> list[float]:
        """The rewards of a job in the order of the steps."""
        return list(self._rewards.get(_identify(job), {}).values())


def _identify(job: Manifest) -> str:
    return str(job["metadata"].get("uid", job["metadata"]["name"]))
