"""Vision-language models: log-probabilities, ranks without images, and a run that learns the color of a square."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]
import pytest
import torch
from in_process import train
from ranks import join, run_ranks
from safetensors.torch import load_file
from torch import distributed as dist
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from transformers import AutoConfig, AutoModelForImageTextToText
from vision_model import draw_square, write_vision_model

from rlt_api.blocks.algorithm import Algorithm
from rlt_api.blocks.model import Model
from rlt_api.blocks.training import Training
from rlt_api.spec.training_config import TrainingConfig
from rlt_trainer.batches.sequences import Experience, MiniBatch, Sequences
from rlt_trainer.data.image_processor import ImageProcessor
from rlt_trainer.policy.actor import Actor
from rlt_trainer.rollout.weight_sync import pad_probe
from rlt_trainer.telemetry.run_directory import get_rollouts_file

MakeConfig = Callable[..., TrainingConfig]
COLORS = {"red": "r", "lime": "g", "blue": "b", "white": "w"}
LAST = 5
"""Number of steps in the mean."""
START = 262
END = 263
IMAGE = 264
"""Tokens of vision_model.py."""
PROMPTS = [
    [START, *[IMAGE] * 4, END, 63],
    [65, 66],
    [START, IMAGE, END, START, *[IMAGE] * 4, END],
]
IMAGES = [(draw_square("red"),), (), (draw_square("blue", size=8), draw_square("lime"))]
RESPONSES = [[70, 71, 72], [80], [90, 91]]


@pytest.fixture(scope="module", params=["qwen2_5_vl", "qwen3_vl"])
def vision_model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(write_vision_model(tmp_path_factory.mktemp("vision-model"), request.param))


def build_actor(files: str, mesh: DeviceMesh, *, tokens: int | None = None, **model: bool) -> Actor:
    """tokens: of a micro-batch, instead of one response."""
    return Actor(
        files,
        model=Model.model_validate(model),
        dtype=torch.float32,
        mesh=mesh,
        algorithm=Algorithm(kl_loss_coef=0),
        training=Training(
            total_steps=1,
            ppo_micro_batch_size_per_device=1,
            use_dynamic_bsz=tokens is not None,
            ppo_max_token_len_per_device=tokens,
        ),
        temperature=1.0,
        max_response_length=8,
        processor=ImageProcessor(files, AutoConfig.from_pretrained(files)),
    )


@pytest.mark.parametrize("packed", [False, True])
def test_log_probabilities_equal_transformers(vision_model: str, mesh: DeviceMesh, packed: bool) -> None:
    """A sampled image token stands for no image, and has the embedding of the token."""
    responses = [[*RESPONSES[0], IMAGE], *RESPONSES[1:]]
    sequences = Sequences.pad(PROMPTS, responses, pad_token_id=0, images=IMAGES)
    actor = build_actor(vision_model, mesh, useRemovePadding=packed)
    actual, _ = actor.log_probs(sequences)
    plain = AutoModelForImageTextToText.from_pretrained(vision_model).eval()  # type: ignore[no-untyped-call]
    processor = ImageProcessor(vision_model, plain.config)
    for row, (prompt, response, images) in enumerate(zip(PROMPTS, RESPONSES, IMAGES, strict=True)):
        tokens = torch.tensor([[*prompt, *response]])
        inputs = processor.process(images)
        given = {"pixel_values": inputs.pixels, "image_grid_thw": inputs.grids} if images else {}
        with torch.no_grad():
            logits = plain(input_ids=tokens, mm_token_type_ids=(tokens == IMAGE).int(), **given).logits[0]
        expected = logits.log_softmax(-1)[len(prompt) - 1 : -1].gather(-1, torch.tensor(response)[:, None])[:, 0]
        torch.testing.assert_close(actual[row, : len(response)], expected, rtol=1e-4, atol=1e-5)
    assert actual[0, 3] < 0


@pytest.mark.parametrize("frozen", [True, False])
def test_the_vision_tower_is_trained_or_frozen(vision_model: str, one_rank: None, frozen: bool) -> None:
    """Also by a step whose last micro-batch has no image."""
    actor = build_actor(vision_model, init_device_mesh("cpu", (1,)), freezeVisionTower=frozen)
    before = {name: weight.clone() for name, weight in actor.gather_weights()}
    actor.update(build_mini_batch(slice(None)))
    changed = {name for name, weight in actor.gather_weights() if not torch.equal(weight, before[name])}
    tower = {name for name in before if name.startswith("model.visual.")}
    assert changed & tower == (set() if frozen else tower)
    assert "model.language_model.layers.0.mlp.up_proj.weight" in changed


def build_mini_batch(rows: slice) -> MiniBatch:
    """Return rows of a mini-batch with a row with an image and a row without one."""
    sequences = Sequences.pad(PROMPTS[:2], RESPONSES[:2], pad_token_id=0, images=IMAGES[:2])
    zeros = torch.zeros(sequences.responses.shape)
    return MiniBatch(Experience(sequences, zeros - 5.5, zeros + 1).rows(rows), 4, 2)


def test_a_step_on_packed_sequences_is_the_same(vision_model: str, one_rank: None) -> None:
    """Also with both rows in one micro-batch, and the probes of a weight sync, which have no images."""
    mesh = init_device_mesh("cpu", (1,))
    results = []
    for packed, tokens in ((False, None), (True, None), (True, 100)):
        actor = build_actor(vision_model, mesh, tokens=tokens, useRemovePadding=packed)
        probes = actor.probe_log_probs(pad_probe([[50, 51, 52], [60, 61]]))
        results.append([actor.update(build_mini_batch(slice(None))).grad_norm, *probes.flatten().tolist()])
    assert results[1] == pytest.approx(results[0], rel=1e-4)
    assert results[2] == pytest.approx(results[0], rel=1e-4)


def update(files: str, tokens: int | None, rank: int, ranks: int) -> float:
    """Return the gradient norm of one step."""
    torch.set_num_threads(1)
    join(rank, ranks)
    actor = build_actor(files, init_device_mesh("cpu", (ranks,)), tokens=tokens)
    result = actor.update(build_mini_batch(slice(rank, None, ranks)))
    dist.destroy_process_group()
    return result.grad_norm


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize("vision_model", ["qwen3_vl"], indirect=True)
def test_a_rank_without_images_takes_the_same_step(vision_model: str) -> None:
    """It runs the vision tower, too: otherwise the other rank waits for its collectives."""
    one, two, tokens = (
        run_ranks(update, [(vision_model, tokens, rank, ranks) for rank in range(ranks)])
        for ranks, tokens in ((1, None), (2, None), (2, 6))
    )
    assert two == pytest.approx([*one, *one], rel=1e-4)
    assert tokens == pytest.approx(two, rel=1e-4)


def write_squares(folder: Path) -> str:
    """Write a file in verl's format: pictures of one color in two sizes, with the first letter of its name."""
    rows = [
        {
            "prompt": [{"role": "user", "content": "<image>?"}],
            "images": [{"bytes": draw_square(color, size=size), "path": None}],
            "reward_model": {"style": "rule", "ground_truth": letter},
        }
        for color, letter in COLORS.items()
        for size in (8, 16)
    ]
    pq.write_table(pa.Table.from_pylist(rows), folder / "squares.parquet")
    return str(folder / "squares.parquet")


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize("vision_model", ["qwen2_5_vl"], indirect=True)
def test_a_run_learns_to_name_the_color_of_a_square(make_config: MakeConfig, tmp_path: Path, vision_model: str) -> None:
    """The score is 0.3 above the best score without the picture. The export has all weights
    and the image processor."""
    file = write_squares(tmp_path)
    config = make_config(
        workers=1,
        model={"fromSeed": None, "path": vision_model},
        data={
            "preset": None,
            "files": [file],
            "imageKey": "images",
            "maxPromptLength": 16,
            "maxResponseLength": 1,
        },
        training={
            "totalSteps": 25,
            "trainBatchSize": 8,
            "ppoMiniBatchSize": 8,
            "ppoMicroBatchSizePerDevice": 512,
            "learningRate": 4e-3,
        },
        evaluation=[{"name": "squares", "data": {"files": [file]}, "every": 25}],
        algorithm={"klLossCoef": 0},
        rollout={"responsesPerPrompt": 64},
    )
    steps = train(config)
    bar = 1 / len(COLORS) + 0.3
    assert sum(step["critic/score/mean"] for step in steps[-LAST:]) / LAST > bar
    assert next(value for name, value in steps[-1].items() if name.startswith("val-core")) > bar
    assert max(step["training/rollout_probs_diff_max"] for step in steps) < 1e-5
    rollouts = get_rollouts_file(Path(config.run_directory), 25).read_text().splitlines()
    names = {name for line in rollouts for name in json.loads(line)["images"]}
    written = {(Path(config.run_directory) / name).read_bytes() for name in names}
    assert written == {draw_square(color, size=size) for color in COLORS for size in (8, 16)}
    exported = Path(config.run_directory) / "export"
    exported_file, policy_file = (folder / "model.safetensors" for folder in (exported, Path(vision_model)))
    assert load_file(exported_file).keys() == load_file(policy_file).keys()
    ImageProcessor(str(exported), AutoConfig.from_pretrained(exported))
