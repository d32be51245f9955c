"""The training loop with conversations: rewards of the environment alone, and tools in the prompts."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from in_process import train
from openenv_server import start_server

from rlt_api.spec.training_config import TrainingConfig
from rlt_trainer.driver.run import run

pytestmark = [pytest.mark.slow, pytest.mark.long]

MakeConfig = Callable[..., TrainingConfig]
ONE_STEP: dict[str, Any] = {
    "workers": 1,
    "training": {"totalSteps": 1, "trainBatchSize": 4, "ppoMiniBatchSize": 4},
    "algorithm": {"klLossCoef": 0},
}


def read_rollouts(config: TrainingConfig) -> list[dict[str, Any]]:
    lines = Path(config.run_directory, "rollouts", "step-1.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines]


def test_an_environment_gives_the_reward_alone(make_config: MakeConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    modules = [str(Path(__file__).parent), *filter(None, [os.environ.get("PYTHONPATH")])]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(modules))
    environment = {"environment": "scripted_environments:Opening", "maxTurns": 2}
    inline = [{"prompt": f"{number}:", "answer": ""} for number in range(4)]
    data = {"preset": None, "inline": inline, "maxResponseLength": 16}
    warmup = {"steps": 40, "batchSize": 4, "learningRate": 3e-3}  # the policy learns to end its turns
    training = {**ONE_STEP["training"], "warmup": warmup}
    config = make_config(
        **{**ONE_STEP, "training": training}, data=data, rewards=[], rollout={"multiTurn": environment}
    )
    (step,) = train(config)
    assert step["num_turns/max"] == 2
    assert step["critic/score/max"] == 1.0  # 0.5 for each turn that ended
    assert all(each["response"].startswith("go") for each in read_rollouts(config))


def test_an_agent_learns_from_all_its_sequences(make_config: MakeConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    """The trainer's log-probabilities of the recorded tokens are the engine's."""
    modules = [str(Path(__file__).parent), *filter(None, [os.environ.get("PYTHONPATH")])]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(modules))
    training = {**ONE_STEP["training"], "totalSteps": 10, "learningRate": 3e-2}
    config = make_config(
        **{**ONE_STEP, "training": training},
        data={"maxPromptLength": 32, "maxResponseLength": 8},
        rewards=[],
        rollout={"multiTurn": {"agent": {"name": "scripted_agents:write_letters"}}},
    )
    steps = train(config)
    assert max(step["training/rollout_probs_diff_max"] for step in steps) < 1e-4
    assert (steps[0]["num_turns/min"], steps[0]["num_turns/max"]) == (1, 2)
    assert steps[0]["critic/score/mean"] < 0.3
    assert steps[-1]["critic/score/mean"] > 0.8
    rollouts = read_rollouts(config)
    expected = [{"text": f"<|bos|><|user|>{each['prompt']}<|eos|><|assistant|>", "learned": False} for each in rollouts]
    assert [each["segments"][0] for each in rollouts] == expected
    assert {len(each["segments"]) for each in rollouts} == {2, 4}
    for each in rollouts:
        tokens = each["by_token"]
        learned = [part["text"] for part in each["segments"] if part["learned"]]
        texts = ("".join(tokens["texts"]), "".join(learned))  # tokens are bytes: other characters have several
        assert len({"".join(filter(str.isascii, text)) for text in texts}) == 1
        assert len(tokens["texts"]) == each["tokens"]
        assert max(map(abs, tokens["mismatches"])) < 1e-3
        assert {round(advantage - each["advantage"], 3) for advantage in tokens["advantages"]} == {0}


def test_an_environment_on_a_server_gives_the_reward_alone(make_config: MakeConfig) -> None:
    inline = [{"prompt": f"{number}:", "answer": ""} for number in range(4)]
    warmup = {"steps": 40, "batchSize": 4, "learningRate": 3e-3}  # the policy learns to end its turns
    with start_server() as (url, _):
        openenv = {"url": url, "actionField": "guess", "observationField": "text"}
        config = make_config(
            **{**ONE_STEP, "training": {**ONE_STEP["training"], "warmup": warmup}},
            data={"preset": None, "inline": inline, "maxResponseLength": 64},
            rewards=[],
            rollout={"multiTurn": {"openenv": openenv, "maxTurns": 2}},
        )
        (step,) = train(config)
    assert (step["num_turns/max"], step["reward/failed"]) == (2, 0)
    assert any("error: guess: Input should be a number" in each["response"] for each in read_rollouts(config))
    with pytest.raises(ValueError, match=r"^rollout.multiTurn.openenv: OpenEnv server .*Connect.*Correct url"):
        run(config, local=True)


def test_tools_are_described_in_the_prompts_of_a_run(make_config: MakeConfig) -> None:
    data = {"maxPromptLength": 512, "maxResponseLength": 8}
    config = make_config(**ONE_STEP, data=data, rollout={"multiTurn": {"tools": [{"name": "calculator"}]}})
    (step,) = train(config)
    assert step["reward/failed"] == 0
    assert all('"name": "calculator"' in each["prompt"] for each in read_rollouts(config))
