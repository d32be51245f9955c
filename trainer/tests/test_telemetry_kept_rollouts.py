"""What people read of a step's responses."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from math import nan
from typing import Any

from rlt_trainer.batches.sequences import Sequences
from rlt_trainer.data.prompt import Prompt
from rlt_trainer.telemetry.rollout_log import ALL, EXTREMES, kept, rollout_lines, segments_of


def lines(count: int) -> list[dict[str, Any]]:
    return [{"index": row, "reward": nan if row % 10 == 9 else float(row * 7919 % 1009)} for row in range(count)]


def test_a_small_step_is_kept_whole() -> None:
    assert kept(lines(ALL)) == lines(ALL)


def test_of_a_large_step_best_worst_and_a_sample_are_kept() -> None:
    step = lines(2000)
    chosen = kept(step)
    assert Counter(line["kept"] for line in chosen) == {
        "best": EXTREMES,
        "worst": EXTREMES,
        "sample": ALL - 2 * EXTREMES,
    }
    assert [line["index"] for line in chosen] == sorted({line["index"] for line in chosen})
    rewards = sorted(line["reward"] for line in step if line["reward"] == line["reward"])
    assert sorted(line["reward"] for line in chosen if line["kept"] == "best") == rewards[-EXTREMES:]
    assert sorted(line["reward"] for line in chosen if line["kept"] == "worst") == rewards[:EXTREMES]
    sample = [line["index"] for line in chosen if line["kept"] == "sample"]
    assert max(b - a for a, b in pairwise(sample)) < 2000 / len(sample) * 2


def test_failed_rewards_alone_make_a_sample() -> None:
    assert Counter(line["kept"] for line in kept([{"reward": nan}] * 1000)) == {"sample": ALL}


def test_a_line_says_rewards_by_name_and_who_wrote_what() -> None:
    sequences = Sequences.pad([[1], [1]], [[65, 66, 67], [68]], pad_token_id=0, chosen=[[True, False, True], [True]])
    segments = segments_of(sequences, lambda tokens: bytes(tokens).decode())
    prompt = Prompt(index=7, data_source="arithmetic", text="1+1=", token_ids=(1,), ground_truth="2", solution="2")
    first, second = rollout_lines(
        [prompt, prompt],
        ["ABC", "D"],
        [1.5, 0.0],
        by_reward={"exact": [1.0, 0.0], "length": [0.5, 0.0]},
        segments=segments,
    )
    assert first["rewards"] == {"exact": 1.0, "length": 0.5}
    assert [(part["text"], part["learned"]) for part in first["segments"]] == [("A", True), ("B", False), ("C", True)]
    assert (second["index"], second["response"], second["reward"]) == (7, "D", 0.0)
