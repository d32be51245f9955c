"""On-policy distillation: the teacher's log-probabilities, its vocabulary, and a policy that approaches it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from in_process import train
from torch.distributed.device_mesh import init_device_mesh
from torch.testing import assert_close

from rlt_api.blocks.algorithm import Algorithm, Distillation
from rlt_api.blocks.model import Model, SeededModel
from rlt_api.blocks.training import Training
from rlt_api.spec.training_config import TrainingConfig
from rlt_trainer.batches.sequences import Experience, MiniBatch, Sequences
from rlt_trainer.data.byte_tokenizer import build_byte_tokenizer
from rlt_trainer.data.tokenizer import load_tokenizer
from rlt_trainer.driver.input_validation import validate_teacher
from rlt_trainer.policy.actor import Actor
from rlt_trainer.policy.config import resolve_teacher_model
from rlt_trainer.policy.log_probs import response_log_probs
from rlt_trainer.policy.model import load_model
from rlt_trainer.policy.model_files import prepare_model_files
from rlt_trainer.policy.teacher import Teacher

MakeConfig = Callable[..., TrainingConfig]
TEACHER = {"seed": 9, "hiddenSize": 32, "intermediateSize": 64, "numHiddenLayers": 1, "numAttentionHeads": 2}
TEMPERATURE = 0.8
SEQUENCES = Sequences.pad([[50, 51], [60]], [[70, 71, 72], [80]], pad_token_id=0)


@pytest.fixture(scope="module")
def teacher_files(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("teacher")
    return prepare_model_files(Model(from_seed=SeededModel.model_validate(TEACHER)), folder)


def load_teacher(files: str) -> Teacher:
    return Teacher(
        files,
        distillation=Distillation(model_path=files),
        model=Model(),
        dtype=torch.float32,
        mesh=init_device_mesh("cpu", (1,)),
        training=Training(total_steps=1),
        temperature=TEMPERATURE,
        vocabulary=262,
    )


@pytest.mark.usefixtures("one_rank")
def test_a_teacher_is_loaded_frozen_and_compared_at_the_sampling_temperature(teacher_files: str) -> None:
    teacher = load_teacher(teacher_files)
    expected, _ = response_log_probs(load_model(teacher_files, torch.float32), SEQUENCES, temperature=TEMPERATURE)
    (found,) = teacher.log_probs(SEQUENCES)
    assert_close(found, expected.detach())
    assert not any(parameter.requires_grad for parameter in teacher.model.parameters())


@pytest.mark.usefixtures("one_rank")
def test_the_policy_approaches_its_teacher_on_its_own_responses(tiny_model: str, teacher_files: str) -> None:
    """The reverse KL over the whole vocabulary falls. Rewards have no part in it."""
    algorithm = {"klLossCoef": 0, "distillation": {"modelPath": teacher_files, "useTaskRewards": False}}
    actor = Actor(
        tiny_model,
        model=Model(),
        dtype=torch.float32,
        mesh=init_device_mesh("cpu", (1,)),
        algorithm=Algorithm.model_validate(algorithm),
        training=Training(total_steps=1, learning_rate=3e-3),
        temperature=1.0,
        max_response_length=8,
    )
    teacher = load_teacher(teacher_files)
    teacher._options["temperature"] = 1.0
    vocabulary = torch.arange(256)
    every = Sequences.pad([[65, 66]] * 256, vocabulary[:, None].tolist(), pad_token_id=0)
    theirs = teacher.log_probs(every)[0][:, 0]
    generator = torch.Generator().manual_seed(0)

    def divergence() -> float:
        ours = actor.log_probs(every)[0][:, 0]
        return float((ours.exp() * (ours - theirs)).sum())

    before = divergence()
    for _ in range(20):
        ours = actor.log_probs(every)[0][:, 0]
        sampled = torch.multinomial(ours.exp(), 64, replacement=True, generator=generator)
        sequences = Sequences.pad([[65, 66]] * 64, sampled[:, None].tolist(), pad_token_id=0)
        advantages = torch.ones(64, 1)  # of task rewards, without effect
        teachers = theirs[sampled][:, None]
        experience = Experience(sequences, ours[sampled][:, None], advantages, teacher_log_probs=teachers)
        actor.update(MiniBatch(experience, 64, 64))
    assert divergence() < before / 2


@pytest.mark.slow
def test_a_run_scores_its_responses_with_the_teacher(make_config: MakeConfig, teacher_files: str) -> None:
    """With bypassMode, and adapters that Muon updates: the phases and metrics of these settings in a whole step."""
    distillation = {"modelPath": teacher_files, "useTaskRewards": False, "paramOffload": True}
    algorithm = {"klLossCoef": 0, "distillation": distillation, "rolloutCorrection": {"bypassMode": True}}
    config = make_config(
        workers=1,
        model={"lora": {"rank": 4, "useDora": True}},
        algorithm=algorithm,
        training={"totalSteps": 2, "optimizer": "muon"},
    )
    for step in train(config):
        assert step["distillation/abs_loss"] > 0
        assert step["timing_s/teacher"] > 0
        assert step["actor/entropy"] > 0
        assert step["actor/grad_norm"] > 0
        assert "timing_s/old_log_prob" not in step


def test_a_teacher_is_loaded_by_path_and_revision(make_config: MakeConfig) -> None:
    distillation = {"modelPath": "org/teacher", "modelRevision": "v2"}
    config = make_config(algorithm={"distillation": distillation}, model={"trustRemoteCode": True})
    assert config.algorithm.distillation is not None
    teacher = resolve_teacher_model(config, config.algorithm.distillation)
    assert (teacher.path, teacher.revision, teacher.trust_remote_code) == ("org/teacher", "v2", True)


def validate(make_config: MakeConfig, teacher: str) -> None:
    config = make_config(algorithm={"distillation": {"modelPath": teacher}})
    validate_teacher(config, load_tokenizer(config.model))


def test_a_teacher_with_the_same_vocabulary_is_accepted(make_config: MakeConfig, teacher_files: str) -> None:
    validate(make_config, teacher_files)


def test_a_teacher_with_another_vocabulary_is_rejected(
    make_config: MakeConfig, teacher_files: str, tmp_path: Path
) -> None:
    build_byte_tokenizer().save_pretrained(tmp_path)
    content = json.loads((tmp_path / "tokenizer.json").read_text())
    numbers = content["model"]["vocab"]
    first, second = list(numbers)[65:67]
    numbers[first], numbers[second] = numbers[second], numbers[first]
    (tmp_path / "tokenizer.json").write_text(json.dumps(content))
    for name in ("config.json", "model.safetensors"):
        (tmp_path / name).symlink_to(Path(teacher_files) / name)
    with pytest.raises(ValueError, match=r"distillation\.modelPath: .* another number for 2 of 262 tokens .*such as"):
        validate(make_config, str(tmp_path))


def test_a_teacher_without_a_tokenizer_is_named(make_config: MakeConfig, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"^algorithm\.distillation\.modelPath .*no such folder"):
        validate(make_config, str(tmp_path / "missing"))
