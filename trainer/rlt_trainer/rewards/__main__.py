"""`python -m rlt_trainer.rewards NAME < lines.jsonl`: score lines of {"response", "ground_truth"}.

NAME is a rule or module:function. Each line produces one line of output: {"score": ...}, or
{"failed": ..., "message": ...} if the reward failed. A line may also contain data_source and extra_info: functions
receive them.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from pydantic import ValidationError

from rlt_api.blocks.rewards import Reward
from rlt_trainer.data.prompt import Prompt
from rlt_trainer.rewards.outcome import Failure, Outcome
from rlt_trainer.rewards.sources import BatchCalls, LimitedSource

BATCH_SIZE = 256
"""Number of lines that are scored together."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Return the exit code: 0, or 1 with the reason on standard error."""
    parser = argparse.ArgumentParser(prog="python -m rlt_trainer.rewards", description=__doc__)
    parser.add_argument("name", help="a rule such as gsm8k, or module:function")
    parser.add_argument("--options", default="{}", help="options in JSON, as in rewards[].options")
    parser.add_argument("--timeout-seconds", type=float, default=10.0, help="time limit for one response (functions)")
    options = parser.parse_args(arguments)
    try:
        asyncio.run(score_lines(build_reward(options.name, options.options, options.timeout_seconds)))
    except ValueError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


def build_reward(name: str, options: str, timeout_seconds: float) -> Reward:
    """Build the reward from the command's arguments. Raises ValueError."""
    try:
        if ":" in name:
            function = {"name": name, "timeoutSeconds": timeout_seconds}
            return Reward.model_validate({"function": function, "options": json.loads(options)})
        return Reward.model_validate({"name": name, "options": json.loads(options)})
    except ValidationError as error:
        raise ValueError(f"{name}: {error.errors()[0]['msg']}") from error
    except json.JSONDecodeError as error:
        raise ValueError(f"--options is not JSON: {error}") from error


async def score_lines(reward: Reward) -> None:
    """Score standard input to standard output. Raises ValueError for an invalid line, with its number."""
    limited = LimitedSource.build(reward, 0)
    calls = BatchCalls()
    try:
        if limited.source.takes_sandbox:
            raise ValueError("the function has the parameter sandbox: it needs a job with rollout.multiTurn.sandbox")
        for batch in batch_lines(read_lines(sys.stdin.buffer)):
            for outcome in await asyncio.gather(*(limited.score_one(text, prompt, calls) for text, prompt in batch)):
                print(json.dumps(format_outcome(outcome)), flush=True)
    finally:
        await limited.source.close()


def batch_lines(lines: Iterator[tuple[str, Prompt]]) -> Iterator[list[tuple[str, Prompt]]]:
    """Yield batches of up to BATCH_SIZE lines. The lines before an invalid line are still yielded."""
    batch: list[tuple[str, Prompt]] = []
    try:
        for line in lines:
            batch.append(line)
            if len(batch) == BATCH_SIZE:
                yield batch
                batch = []
    except ValueError:
        if batch:
            yield batch
        raise
    if batch:
        yield batch


def format_outcome(outcome: Outcome) -> dict[str, Any]:
    """Return the output line of one response."""
    if isinstance(outcome, Failure):
        return {"failed": outcome.reason, "message": outcome.message}
    return {"score": outcome}


def read_lines(lines: Iterable[bytes]) -> Iterator[tuple[str, Prompt]]:
    """Yield the response and the prompt of each line. Raises ValueError with the number of an invalid line."""
    for number, line in enumerate(lines, start=1):
        try:
            row = json.loads(line)
        except ValueError as error:  # JSON or UTF-8
            raise ValueError(f"line {number} is not JSON: {error}") from error
        for key in ("response", "ground_truth"):
            if not isinstance(row, dict) or not isinstance(row.get(key), str):
                raise ValueError(f'line {number} has no text "{key}"')
        truth = row["ground_truth"]
        extra = row.get("extra_info") or {}
        prompt = Prompt(number - 1, (), "", truth, truth, str(row.get("data_source") or ""), extra_info=extra)
        yield row["response"], prompt


if __name__ == "__main__":
    sys.exit(main())
