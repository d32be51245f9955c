"""Engines and a vision-language policy: weight syncs, and responses to prompts with images."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from in_process import Pair, build_pair_config
from vision_model import draw_square, write_vision_model

from rlt_trainer.batches.response import Response
from rlt_trainer.batches.sequences import Sequences
from rlt_trainer.data.prompt import Prompt

START = 262
END = 263
IMAGE = 264
"""Tokens of vision_model.py."""
PROMPTS = [
    [START, *[IMAGE] * 4, END, 63],
    [65, 66],
    [START, IMAGE, END, START, *[IMAGE] * 4, END],
    [START, *[IMAGE] * 4, END, 63],
]
IMAGES = [
    (draw_square("red"),),
    (),
    (draw_square("blue", size=8), draw_square("lime")),
    (draw_square("red"),),
]
PROBES = [Prompt(number, tuple(range(50, 58)), "", "", "", "") for number in range(4)]


@pytest.mark.parametrize("model_type", ["qwen2_5_vl", "qwen3_vl"])
@pytest.mark.parametrize("engine", ["transformers", pytest.param("vllm", marks=[pytest.mark.slow, pytest.mark.long])])
def test_responses_to_images_have_the_log_probs_of_the_policy(tmp_path: Path, engine: str, model_type: str) -> None:
    """Also after a step that changes the vision tower, whose features vLLM keeps for images that it has seen."""
    config = build_pair_config(
        tmp_path / "run",
        model={"path": str(write_vision_model(tmp_path / "model", model_type))},
        data={"files": ["x.parquet"], "imageKey": "images", "maxPromptLength": 64, "maxResponseLength": 5},
        training={"totalSteps": 1, "ppoMiniBatchSize": 4, "learningRate": 1e-2},
        rollout={"engine": engine, "maxNumSeqs": 8},
    )
    pair = Pair(config, PROBES)
    try:
        assert pair.sync() < 1e-4
        before = generate(pair)
        long = replace(pair.engines.sampling, max_tokens=50, stop_token_ids=())
        running = pair.start(PROMPTS * 8, list(range(32)), long, images=IMAGES * 8)  # vLLM runs 8 at the same time
        pair.rank.supervised_step(Sequences.pad(PROMPTS, [[70]] * 4, pad_token_id=0, images=IMAGES), 4)
        assert pair.sync() < 1e-4
        is_new = compare(pair, running.result(120), 8)
        if engine == "vllm":
            assert any(row.any() and not row.all() for row in is_new)  # responses in progress: from one token on
        for row in is_new:
            pairs = row[:-1] & row[1:]  # a token of the old weights can have the same log-probability, but hardly two
            assert not pairs.any() or row[int(pairs.int().argmax()) :].all(), row
        assert generate(pair)[0].log_probs != before[0].log_probs
    finally:
        pair.close()


def generate(pair: Pair) -> list[Response]:
    """Generate a response to each prompt, and compare its log-probabilities with the policy's."""
    responses = pair.generate(PROMPTS, [1, 2, 3, 4], images=IMAGES)
    assert all(row.all() for row in compare(pair, responses, 1))
    return responses


def compare(pair: Pair, responses: Sequence[Response], times: int) -> list[torch.Tensor]:
    """Return whether the policy has the log-probability of each token in responses to the prompts, `times` times."""
    tokens = [each.token_ids for each in responses]
    log_probs, _ = pair.rank.log_probs(Sequences.pad(PROMPTS * times, tokens, pad_token_id=0, images=IMAGES * times))
    expected = torch.split(torch.from_numpy(log_probs), [len(each) for each in tokens])
    return [
        (torch.tensor(response.log_probs) - row).abs() < 1e-4 for row, response in zip(expected, responses, strict=True)
    ]
