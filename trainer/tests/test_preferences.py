"""algorithm.dpo: pairs of the data, the update on any number of ranks, and runs that learn and resume."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from in_process import train_on_pairs
from ranks import join, run_ranks

from rlt_api.blocks.algorithm import Algorithm
from rlt_api.blocks.data import Data
from rlt_api.blocks.model import Model
from rlt_api.blocks.training import Training
from rlt_api.spec.training_config import TrainingConfig
from rlt_trainer.batches.pairs import Pairs
from rlt_trainer.batches.sequences import Sequences
from rlt_trainer.data.byte_tokenizer import build_byte_tokenizer
from rlt_trainer.data.pairs import PairSet
from rlt_trainer.driver.run import run
from rlt_trainer.driver.trial import run_trial
from rlt_trainer.policy.actor import Actor
from rlt_trainer.policy.mesh import create_mesh, data_parallel_size

MakeConfig = Callable[..., TrainingConfig]
Json = dict[str, Any]
STEPS = 5


# Data


def write(path: Path, rows: Sequence[Json]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def load(tmp_path: Path, *rows: Json, **data: Any) -> PairSet:
    files = [str(write(tmp_path / "pairs.jsonl", rows))]
    return PairSet.load(Data.model_validate({"files": files, **data}), build_byte_tokenizer())


TEMPLATE = (
    "{% for m in messages %}<{{ m.role }}>{{ m.content }};{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}"
)
QUESTION = {"role": "user", "content": "q"}
GOOD, BAD = ({"role": "assistant", "content": text} for text in "+-")


def decode(tokens: Sequence[int]) -> str:
    return str(build_byte_tokenizer().decode(list(tokens)))


def test_text_pairs_end_with_the_end_of_text(tmp_path: Path) -> None:
    (pair,) = load(tmp_path, {"prompt": "1+1=", "chosen": "2", "rejected": "33"}).pairs
    eos = build_byte_tokenizer().eos_token_id
    assert [decode(each) for each in (pair.prompt, pair.chosen[:-1], pair.rejected[:-1])] == ["1+1=", "2", "33"]
    assert pair.chosen[-1] == pair.rejected[-1] == eos


@pytest.mark.parametrize(
    "row",
    [
        {"prompt": [QUESTION], "chosen": [GOOD], "rejected": [BAD]},
        {"chosen": [QUESTION, GOOD], "rejected": [QUESTION, BAD]},
    ],
    ids=["explicit", "implicit"],
)
def test_conversations_are_rendered_with_the_chat_template(tmp_path: Path, row: Json) -> None:
    (pair,) = load(tmp_path, row, chatTemplate=TEMPLATE).pairs
    assert [decode(each) for each in (pair.prompt, pair.chosen, pair.rejected)] == ["<user>q;<assistant>", "+;", "-;"]


PAIR = {"prompt": "a", "chosen": "b", "rejected": "c"}


@pytest.mark.parametrize(
    ("row", "data", "message"),
    [
        ({"prompt": "a", "chosen": "b"}, {}, r"row 2 has no column rejected; it has prompt, chosen.*algorithm\.dpo"),
        ({**PAIR, "chosen": None}, {}, r"row 2: column chosen \(algorithm\.dpo\) is null"),
        ({**PAIR, "rejected": "b"}, {}, r"row 2: chosen and rejected are equal: 'b'\. Correct or remove"),
        ({**PAIR, "chosen": [GOOD]}, {}, r"row 2: prompt is text, chosen is a conversation, rejected is text\. All"),
        ({"chosen": [GOOD], "rejected": [GOOD, BAD]}, {}, r"row 2: .*chosen is \[\]"),
        ({**PAIR, "chosen": "b" * 8}, {"overlongPrompts": "error"}, r"row 2: .*1, 9, 2 tokens\. 1 of 2 .*filter\.$"),
        (
            {"prompt": [QUESTION], "chosen": [GOOD], "rejected": [BAD]},
            {"chatTemplate": "{{ messages | length }}"},
            r"row 2: the chat template renders the prompt otherwise.*Set data\.chatTemplate",
        ),
    ],
)
def test_an_invalid_pair_is_rejected(tmp_path: Path, row: Json, data: Json, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        load(tmp_path, PAIR, row, maxResponseLength=4, **data)


def test_overlong_pairs_are_left_out_and_counted(tmp_path: Path) -> None:
    rows = [PAIR, {**PAIR, "prompt": "a" * 9}, {**PAIR, "rejected": "c" * 9}]
    found = load(tmp_path, *rows, maxPromptLength=4, maxResponseLength=4)
    assert (len(found.pairs), found.overlong) == (1, 2)
    with pytest.raises(ValueError, match=r"1 of 1 pairs are longer .*raise them\.$"):
        load(tmp_path, rows[2], maxPromptLength=4, maxResponseLength=4)


# The update

DYNAMIC = {"use_dynamic_bsz": True, "ppo_max_token_len_per_device": 20}
PACKED = {"use_remove_padding": True}
VARIANTS: dict[int, dict[str, tuple[Json, Json]]] = {
    1: {
        "reference": ({}, {}),
        "one pair at a time": ({}, {"ppo_micro_batch_size_per_device": 2}),
        "packed": (PACKED, {}),
        "dynamic": (PACKED, DYNAMIC),
    },
    2: {
        "two ranks": ({}, {}),
        "two ranks, dynamic": (PACKED, DYNAMIC),
        "context parallel": (PACKED, {"context_parallel_size": 2}),
    },
}


def make_pairs() -> Sequences:
    generator = torch.Generator().manual_seed(0)
    lengths = [3, 1, 5, 2, 4, 4, 1, 6]
    responses = [torch.randint(256, (length,), generator=generator).tolist() for length in lengths]
    return Sequences.pad([[40 + row] * (1 + row) for row in range(4)] * 2, responses, pad_token_id=0)


def update(files: str, rank: int, ranks: int) -> dict[str, list[dict[str, float]]]:
    """Return the metrics of each step, over all ranks."""
    torch.set_num_threads(1)
    join(rank, ranks)
    results = {name: run_variant(files, rank, ranks, *blocks) for name, blocks in VARIANTS[ranks].items()}
    dist.destroy_process_group()
    return results


def run_variant(files: str, rank: int, ranks: int, model: Json, training: Json) -> list[dict[str, float]]:
    block = Training.model_validate({"total_steps": STEPS, "learning_rate": 1e-3, **training})
    actor = Actor(
        files,
        model=Model.model_validate(model),
        dtype=torch.float32,
        mesh=create_mesh("cpu", block, ranks),
        algorithm=Algorithm.model_validate({"dpo": {"beta": 0.5}}),
        training=block,
        temperature=1.0,
        max_response_length=6,
    )
    sequences = make_pairs()
    reference = (actor.ref_log_probs(sequences) * sequences.response_mask).sum(-1)
    whole = Pairs.split(sequences, reference)
    groups = data_parallel_size(block, ranks)
    size = len(whole) // groups
    group = rank * groups // ranks
    part = whole.rows(slice(group * size, (group + 1) * size))
    steps = []
    for _ in range(STEPS):
        result = actor.preference_step(part, len(whole))
        shares = torch.tensor(list(result.shares.values()))
        dist.all_reduce(shares)
        steps.append({**dict(zip(result.shares, shares.tolist(), strict=True)), "grad_norm": result.grad_norm})
    return steps


@pytest.fixture(scope="module")
def updates(tiny_model: str) -> dict[str, list[dict[str, float]]]:
    by_ranks = (run_ranks(update, [(tiny_model, rank, ranks) for rank in range(ranks)])[0] for ranks in VARIANTS)
    return {name: steps for each in by_ranks for name, steps in each.items()}


def test_the_loss_falls_from_log_2(updates: dict[str, list[dict[str, float]]]) -> None:
    first, *_, last = updates["reference"]
    assert first["loss"] == pytest.approx(0.693147, abs=1e-5)
    assert first["rewards/margins"] == pytest.approx(0, abs=1e-5)
    assert last["loss"] < 0.6
    assert last["rewards/accuracies"] == 1.0


@pytest.mark.parametrize("name", [name for variants in VARIANTS.values() for name in variants][1:])
def test_steps_do_not_depend_on_ranks_packing_and_micro_batches(
    updates: dict[str, list[dict[str, float]]], name: str
) -> None:
    first, *later = zip(updates[name], updates["reference"], strict=True)
    assert first[0] == pytest.approx(first[1], rel=1e-5, abs=1e-5)
    for ours, expected in later:
        assert ours == pytest.approx(expected, rel=1e-3, abs=1e-5)


# Runs


def write_preferences(folder: Path) -> Json:
    """Write pairs in which the smaller of two digits is preferred. Every fifth is held out."""
    rows = [
        {"prompt": f"{a}{b}", "chosen": str(min(a, b)), "rejected": str(max(a, b))}
        for a, b in product(range(10), repeat=2)
        if a != b
    ]
    train = [row for number, row in enumerate(rows) if number % 5]
    write(folder / "val.jsonl", rows[::5])
    return {"preset": None, "files": [str(write(folder / "train.jsonl", train))]}


def make_run(
    make_config: MakeConfig, folder: Path, name: str, model: Json, *, evaluation: Sequence[Json] = (), **training: Any
) -> TrainingConfig:
    block = {"trainBatchSize": 24, "ppoMiniBatchSize": 24, "learningRate": 1e-3, **training}
    return make_config(
        workers=1,
        model=model,
        runDirectory=str(folder / name),
        data=write_preferences(folder),
        rewards=[],
        algorithm={"dpo": {}},
        training=block,
        evaluation=evaluation,
        checkpoint={"saveFreq": 2},
    )


def test_a_run_learns_the_preferences_of_held_out_pairs(make_config: MakeConfig, tmp_path: Path) -> None:
    files = {name: {"files": [str(tmp_path / f"{name}.jsonl")]} for name in ("val", "train")}
    suites = [
        {"name": "held-out", "data": files["val"], "every": 20, "beforeTrain": True},
        {"name": "seen", "data": files["train"], "every": 40},
    ]
    steps = train_on_pairs(make_run(make_config, tmp_path, "run", {}, totalSteps=40, evaluation=suites))
    assert steps[0]["val/held-out/rewards/accuracies"] == 0.0  # the policy is its own reference: no margin is positive
    assert steps[-1]["val/held-out/rewards/accuracies"] > 0.8
    assert steps[-1]["val/held-out/rewards/margins"] > 0
    assert [step["step"] for step in steps if "val/seen/rewards/accuracies" in step] == [40]
    assert steps[-1]["loss"] < steps[1]["loss"]
    assert (tmp_path / "run/export/config.json").exists()
    assert not list((tmp_path / "run/rollouts").iterdir())


@pytest.mark.parametrize("model", [{}, {"lora": {"rank": 4}}], ids=["full", "lora"])
def test_a_resumed_run_has_the_same_steps(make_config: MakeConfig, tmp_path: Path, model: Json) -> None:
    def run(name: str, steps: int) -> list[Json]:
        return train_on_pairs(make_run(make_config, tmp_path, name, model, totalSteps=steps))

    whole = run("whole", 4)
    run("halves", 2)
    resumed = run("halves", 4)
    assert [step["step"] for step in resumed] == [1, 2, 3, 4]
    names = [name for name in whole[0] if not name.startswith(("timing", "perf", "overlap"))]
    assert {"loss", "rewards/margins", "actor/grad_norm"} <= set(names)
    for ours, expected in zip(resumed, whole, strict=True):
        assert [ours[name] for name in names] == [expected[name] for name in names]


@pytest.mark.slow
@pytest.mark.usefixtures("ray_cluster")
def test_two_ranks_of_a_ray_cluster_learn_as_one(make_config: MakeConfig, tmp_path: Path) -> None:
    """The whole driver, with the validation of its input. No engine starts."""
    config = make_run(make_config, tmp_path, "two", {}, totalSteps=2)
    run(config.model_copy(update={"workers": 2}), local=False)
    two = [json.loads(line) for line in (tmp_path / "two/metrics.jsonl").read_text().splitlines()]
    one = train_on_pairs(make_run(make_config, tmp_path, "one", {}, totalSteps=2))
    for name in ("loss", "rewards/margins", "actor/grad_norm", "response_length/mean"):
        assert [step[name] for step in two] == pytest.approx([step[name] for step in one], rel=1e-4, abs=1e-5)


def test_pairs_longer_than_the_context_are_rejected(make_config: MakeConfig, tmp_path: Path) -> None:
    config = make_run(make_config, tmp_path, "run", {}, totalSteps=1)
    longer = config.data.model_copy(update={"max_prompt_length": 2**20})
    with pytest.raises(ValueError, match=r"data: maxPromptLength 1048576 .*the model supports .*reduce one of them"):
        run(config.model_copy(update={"data": longer}), local=False)


@pytest.mark.slow
@pytest.mark.usefixtures("ray_cluster")
def test_the_trial_of_the_preflight_makes_a_step(make_config: MakeConfig, tmp_path: Path) -> None:
    report = run_trial(make_run(make_config, tmp_path, "trial", {}, totalSteps=5))
    assert report["checkpointBytes"] > 0
    assert "text" not in report
