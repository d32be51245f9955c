"""`python -m rlt_trainer.rewards NAME < lines.jsonl`: score lines of {"response", "ground_truth"}.

NAME is a rule, or module:function. For each line a line {"score": ...} is printed, or {"failed": ..., "message": ...}
where the reward failed. data_source and extra_info, which functions get, may stand in the lines, too.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from pydantic import ValidationError

from rlt_api.blocks.rewards import Reward
from rlt_trainer.data.prompt import Prompt
from rlt_trainer.rewards.outcome import Failure, Outcome
from rlt_trainer.rewards.sources import source

BATCH = 256
"""Lines that are scored together."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit code 0, or 1 with the reason on standard error."""
    parser = argparse.ArgumentParser(prog="python -m rlt_trainer.rewards", description=__doc__)
    parser.add_argument("name", help="a rule such as gsm8k, or module:function")
    parser.add_argument("--options", default="{}", help="parameters of the rule in JSON, as rewards[].options")
    parser.add_argument("--timeout-seconds", type=float, default=10.0, help="time for one response (functions)")
    options = parser.parse_args(arguments)
    try:
        score(reward(options.name, options.options, options.timeout_seconds))
    except ValueError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


def reward(name: str, options: str, seconds: float) -> Reward:
    """The reward that is asked for. Raises ValueError."""
    try:
        if ":" in name:
            return Reward.model_validate({"function": {"name": name, "timeoutSeconds": seconds}})
        return Reward.model_validate({"name": name, "options": json.loads(options)})
    except ValidationError as error:
        raise ValueError(f"{name}: {error.errors()[0]['msg']}") from error
    except json.JSONDecodeError as error:
        raise ValueError(f"--options is not JSON: {error}") from error


def score(asked: Reward) -> None:
    """From standard input to standard output. Raises ValueError naming the line that is broken."""
    scores = source(asked)
    try:
        for batch in batches(read(sys.stdin.buffer)):
            texts, prompts = zip(*batch, strict=True)
            for result in scores.outcomes(texts, prompts):
                print(json.dumps(answer(result)), flush=True)
    finally:
        scores.close()


def batches(lines: Iterator[tuple[str, Prompt]]) -> Iterator[list[tuple[str, Prompt]]]:
    """Up to BATCH lines each; what comes before a broken line is still scored."""
    batch: list[tuple[str, Prompt]] = []
    try:
        for line in lines:
            batch.append(line)
            if len(batch) == BATCH:
                yield batch
                batch = []
    except ValueError:
        if batch:
            yield batch
        raise
    if batch:
        yield batch


def answer(result: Outcome) -> dict[str, Any]:
    """What is printed of one response."""
    if isinstance(result, Failure):
        return {"failed": result.reason, "message": result.message}
    return {"score": result}


def read(lines: Iterable[bytes]) -> Iterator[tuple[str, Prompt]]:
    """Response and prompt of each line. Raises ValueError naming the line that is broken."""
    for number, line in enumerate(lines, start=1):
        try:
            row = json.loads(line)
        except ValueError as error:  # JSON or UTF-8
            raise ValueError(f"line {number} is not JSON: {error}") from error
        for key in ("response", "ground_truth"):
            if not isinstance(row, dict) or not isinstance(row.get(key), str):
                raise ValueError(f'line {number} has no text "{key}"')
        truth, extra = row["ground_truth"], row.get("extra_info") or {}
        prompt = Prompt(number - 1, (), "", truth, truth, str(row.get("data_source") or ""), extra_info=extra)
        yield row["response"], prompt


if __name__ == "__main__":
    sys.exit(main())
