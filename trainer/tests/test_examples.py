"""Examples that run on CPUs, with the trainer's own loop."""

from __future__ import annotations

import json
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from in_process import train, train_on_pairs

from rlt import Job
from rlt_api.spec.training_config import CONFIG_FILE, TrainingConfig
from rlt_trainer.rewards import sources

EXAMPLES = Path(__file__).parents[2] / "examples"
WARMUP_WARNING = "training.warmup is not set"


def shorten(name: str, folder: Path, *, warmup_steps: int = 0, **training: int) -> TrainingConfig:
    """The trainer's config of an example, with fewer steps and without vLLM. Its run directory is `folder`.

    Without `warmup_steps`, its warm-up is left out.
    """
    (config,) = (each["data"] for each in Job.from_file(EXAMPLES / name).render() if each["kind"] == "ConfigMap")
    parsed: dict[str, Any] = json.loads(config[CONFIG_FILE])
    parsed |= {"runDirectory": str(folder), "cpusPerWorker": 1, "workers": 1}
    parsed["training"] |= {"trainBatchSize": 4, "ppoMiniBatchSize": 4, **training}
    warmup = parsed["training"].get("warmup")
    parsed["training"]["warmup"] = {**warmup, "steps": warmup_steps} if warmup and warmup_steps else None
    parsed["rollout"] |= {"engine": "transformers", "responsesPerPrompt": 2}
    return TrainingConfig.model_validate(parsed)


@pytest.mark.slow
@pytest.mark.long
def test_the_critic_learns_the_values_of_ppo(tmp_path: Path) -> None:
    before, first, second = train(shorten("04-ppo-critic.yaml", tmp_path, totalSteps=2))
    assert "val/held-out/reward/mean" in before
    for step in (first, second):
        assert step["critic/vf_loss"] > 0
        assert step["critic/grad_norm"] > 0
    assert second["critic/values/mean"] != first["critic/values/mean"]


@pytest.mark.slow
@pytest.mark.long
def test_the_second_stage_continues_after_the_last_step_of_the_first(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Its reference is also the first's. Without the warm-up in its config, it warns."""
    first = shorten("01-arithmetic-grpo.yaml", tmp_path / "first", totalSteps=2, warmup_steps=5)
    assert [step["step"] for step in train(first)] == [1, 2]
    second = shorten("26-resume-from-another-job.yaml", tmp_path / "second", totalSteps=3, warmup_steps=5)
    assert second.training.learning_rate != first.training.learning_rate
    # The operator puts the last checkpoint of the first job in the place of the rendered one.
    path = {"resume_from_path": str(tmp_path / "first/checkpoints/step-2")}
    resumed = second.model_copy(update={"checkpoint": second.checkpoint.model_copy(update=path)})
    (step,) = train(resumed)
    assert (step["step"], step["actor/kl_loss"] < 1e-3) == (3, True)
    assert WARMUP_WARNING not in caplog.text

    without = resumed.training.model_copy(update={"warmup": None})
    (step,) = train(resumed.model_copy(update={"run_directory": str(tmp_path / "other"), "training": without}))
    assert (step["step"], step["actor/kl_loss"] > 0.1) == (3, True)
    assert f"{WARMUP_WARNING}: the reference of the KL term is the model before the warm-up" in caplog.text


@pytest.mark.slow
@pytest.mark.long
def test_the_example_of_dpo_prefers_the_chosen_responses(tmp_path: Path) -> None:
    """A shorter word is preferred. The accuracy on other words increases from 0 to 1."""
    words = ["".join(letters) for letters in product("abcdefgh", repeat=2)]
    rows = [{"prompt": f"{word}: ", "chosen": word[0], "rejected": word * 2} for word in words]
    (config,) = (
        each["data"] for each in Job.from_file(EXAMPLES / "31-dpo.yaml").render() if each["kind"] == "ConfigMap"
    )
    parsed: dict[str, Any] = json.loads(config[CONFIG_FILE])
    parsed |= {"runDirectory": str(tmp_path / "run"), "cpusPerWorker": 1, "workers": 1}
    for data, part in ((parsed["data"], rows[::2]), (parsed["evaluation"][0]["data"], rows[1::2])):
        path = tmp_path / f"{len(part)}-{part[0]['chosen']}-{part[0]['rejected']}.jsonl"
        path.write_text("".join(json.dumps(row) + "\n" for row in part))
        data["files"] = [str(path)]
    parsed["training"] |= {"totalSteps": 20}
    first, *_, last = train_on_pairs(TrainingConfig.model_validate(parsed))
    assert first["val/held-out/rewards/accuracies"] == 0.0
    assert last["val/held-out/rewards/accuracies"] > 0.9


@pytest.mark.slow
@pytest.mark.long
def test_the_user_defined_reward_teaches_digits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The reward increases from 0.002 to 0.11."""
    (tmp_path / "digits").symlink_to(EXAMPLES / "rewards")
    monkeypatch.setattr(sources, "FUNCTIONS_DIRECTORY", str(tmp_path))
    rendered = Job.from_file(EXAMPLES / "23-reward-function.yaml").render()
    (files,) = (each["data"] for each in rendered if each["kind"] == "ConfigMap")
    config = {**json.loads(files[CONFIG_FILE]), "runDirectory": str(tmp_path / "run"), "cpusPerWorker": 1}
    rewards = [step["critic/score/mean"] for step in train(TrainingConfig.model_validate(config))]
    assert sum(rewards[-5:]) / 5 > sum(rewards[:5]) / 5 + 0.05
