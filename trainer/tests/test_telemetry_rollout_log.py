"""The lines of a step's responses in the run directory."""

from __future__ import annotations

import json
from collections import Counter
from functools import partial
from itertools import pairwise
from math import nan
from pathlib import Path
from typing import Any

import torch

from rlt_trainer.batches.response import Response
from rlt_trainer.batches.sequences import Sequences
from rlt_trainer.batches.trajectories import Trajectories
from rlt_trainer.data.prompt import Prompt
from rlt_trainer.telemetry.rollout_log import (
    MAX_ROLLOUTS,
    NUM_EXTREMES,
    build_rollout_lines,
    select_rollouts,
    split_segments,
)
from rlt_trainer.telemetry.run_directory import RunDirectory, get_rollouts_file
from rlt_trainer.telemetry.token_values import MAX_TOKENS, add_token_values, decode_token, order_rows


def lines(count: int) -> list[dict[str, Any]]:
    return [{"index": row, "reward": nan if row % 10 == 9 else float(row * 7919 % 1009)} for row in range(count)]


def test_all_responses_of_a_small_step_are_kept() -> None:
    assert select_rollouts(lines(MAX_ROLLOUTS)) == lines(MAX_ROLLOUTS)


def test_the_best_the_worst_and_a_sample_of_a_large_step_are_kept() -> None:
    step = lines(2000)
    chosen = select_rollouts(step)
    assert Counter(line["kept"] for line in chosen) == {
        "best": NUM_EXTREMES,
        "worst": NUM_EXTREMES,
        "sample": MAX_ROLLOUTS - 2 * NUM_EXTREMES,
    }
    assert [line["index"] for line in chosen] == sorted({line["index"] for line in chosen})
    rewards = sorted(line["reward"] for line in step if line["reward"] == line["reward"])
    assert sorted(line["reward"] for line in chosen if line["kept"] == "best") == rewards[-NUM_EXTREMES:]
    assert sorted(line["reward"] for line in chosen if line["kept"] == "worst") == rewards[:NUM_EXTREMES]
    sample = [line["index"] for line in chosen if line["kept"] == "sample"]
    assert max(b - a for a, b in pairwise(sample)) < 2000 / len(sample) * 2


def test_responses_with_failed_rewards_are_only_in_the_sample() -> None:
    assert Counter(line["kept"] for line in select_rollouts([{"reward": nan}] * 1000)) == {"sample": MAX_ROLLOUTS}


def decode(tokens: list[int]) -> str:
    return bytes(tokens).decode()


def test_an_episode_has_the_segments_of_all_its_sequences() -> None:
    sequences = Sequences.pad([[49], [50], [51]], [[65], [66], [67]], pad_token_id=0)
    side = [(), (Response([68], [0.0], prompt=(52,)),)]
    first, second = split_segments(sequences, decode, Trajectories.of([2, 1]), side=side, has_prompts=True)
    assert [(part["text"], part["learned"]) for part in first] == [("1", False), ("A", True), ("2", False), ("B", True)]
    assert second[0] == {"text": "4D", "learned": False, "side": True}
    assert [part["text"] for part in second[1:]] == ["3", "C"]


def test_a_line_has_rewards_by_name_and_segments() -> None:
    sequences = Sequences.pad([[1], [1]], [[65, 66, 67], [68]], pad_token_id=0, chosen=[[True, False, True], [True]])
    segments = split_segments(sequences, decode, Trajectories.of([1, 1]), side=[(), ()], has_prompts=False)
    prompt = Prompt(index=7, data_source="arithmetic", text="1+1=", token_ids=(1,), ground_truth="2", solution="2")
    first, second = build_rollout_lines(
        [prompt, prompt],
        ["ABC", "D"],
        [1.5, 0.0],
        responses=[Response([65, 66, 67], [0.0] * 3), Response([68], [0.0])],
        advantages=[0.75, -0.75],
        by_reward={"exact": [1.0, 0.0], "length": [0.5, 0.0]},
        failures=[None, "environment: sandbox pod a was lost"],
        segments=segments,
    )
    assert "failure" not in first
    assert second["failure"] == "environment: sandbox pod a was lost"
    assert first["rewards"] == {"exact": 1.0, "length": 0.5}
    assert [(part["text"], part["learned"]) for part in first["segments"]] == [("A", True), ("B", False), ("C", True)]
    assert (second["index"], second["response"], second["reward"]) == (7, "D", 0.0)


def test_a_recorded_line_has_advantage_tokens_and_finish_reason(tmp_path: Path) -> None:
    prompt = Prompt(index=7, data_source="arithmetic", text="1+1=", token_ids=(1,), ground_truth="2", solution="2")
    earlier = Response([65, 66], [0.0] * 2)
    agent = Response([67], [0.0], finish_reason="length", earlier=(earlier,))
    failed = Response([], [], finish_reason="abort")
    lines = build_rollout_lines(
        [prompt] * 3,
        ["2", "C", ""],
        [1.0, 0.0, nan],
        responses=[Response([50], [0.0]), agent, failed],
        advantages=[0.5, -0.5, nan],
    )
    run = RunDirectory(tmp_path)
    run.write_rollouts(1, select_rollouts(lines))
    written = [json.loads(line) for line in get_rollouts_file(tmp_path, 1).read_text().splitlines()]
    assert [(line["advantage"], line["tokens"], line["finish_reason"]) for line in written] == [
        (0.5, 1, "stop"),
        (-0.5, 3, "length"),
        (None, 0, "abort"),
    ]


def test_a_line_has_the_advantage_and_the_mismatch_of_each_token() -> None:
    agent = Response([67], [-2.0], earlier=(Response([65, 66], [-1.0, 0.0], chosen=[True, False]),))
    responses = [agent, Response([68], [-1.0]), Response([69], [-1.0])]
    advantages = torch.tensor([[0.5, 0.5], [0.25, 0.0], [-0.5, 0.0], [nan, 0.0]])
    mask = torch.tensor([[True, False], [True, False], [False, False], [False, False]])
    add = partial(
        add_token_values,
        [{"reward": 1.0}, {"reward": 0.0}, {"reward": nan}],
        responses,
        Trajectories.of([2, 1, 1]),
        advantages=advantages,
        mask=mask,
        decode=chr,
    )
    best, rejected, failed = add(log_probs=torch.tensor([[-0.5, -9.0], [-2.0, 0.0], [-1.5, 0.0], [-1.0, 0.0]]))
    assert best["by_token"] == {
        "texts": ["A", "B", "C"],
        "advantages": [0.5, None, 0.25],
        "mismatches": [0.5, None, 0.0],
    }
    assert rejected["by_token"] == {"texts": ["D"], "advantages": [None], "mismatches": [-0.5]}
    assert "by_token" not in failed
    assert "mismatches" not in add(log_probs=None)[0]["by_token"]


def test_token_values_have_a_maximum_and_belong_to_kept_responses() -> None:
    rewards = [float(row) for row in range(2000)]
    rows = order_rows(rewards)
    assert rows[:4] == [1999, 0, 1998, 1]
    assert sorted(order_rows(rewards[:MAX_ROLLOUTS])) == list(range(MAX_ROLLOUTS))  # all are kept
    kept = {
        line["reward"]
        for line in select_rollouts([{"reward": reward} for reward in rewards])
        if line["kept"] != "sample"
    }
    assert {rewards[row] for row in rows} == kept
    size = MAX_TOKENS // 2 + 1
    values = torch.zeros(3, size)
    long = [Response([65] * size, [0.0] * size)] * 3
    lines = add_token_values(
        [{"reward": float(row)} for row in range(3)],
        long,
        Trajectories.of([1] * 3),
        advantages=values,
        mask=values.bool(),
        log_probs=values,
        decode=chr,
    )
    assert [len(line["by_token"]["texts"]) if "by_token" in line else 0 for line in lines] == [size - 2, 0, size]


def test_a_token_is_decoded_with_the_space_that_its_decoder_drops_at_the_start() -> None:
    assert decode_token(7, lambda tokens: " ".join("the" for _ in tokens)) == " the"
    assert decode_token(66, decode) == "B"
