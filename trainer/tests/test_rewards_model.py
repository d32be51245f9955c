"""A classifier scores whole conversations, alone or in a batch. Other models are rejected."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, cast

import pytest
import torch
import torch.distributed as dist
from in_process import train
from ranks import join, run_ranks
from torch.distributed.device_mesh import init_device_mesh
from transformers import AutoModelForSequenceClassification, AutoTokenizer, Qwen3Config, Qwen3ForSequenceClassification

from rlt_api.spec.training_config import TrainingConfig
from rlt_trainer.batches.response import Response
from rlt_trainer.checkpoint.export_checkpoint import single_rank_group
from rlt_trainer.data.byte_tokenizer import build_byte_tokenizer
from rlt_trainer.data.prompt import Prompt
from rlt_trainer.driver.batch_builder import BatchBuilder
from rlt_trainer.driver.rollouts import Rollout
from rlt_trainer.policy import reward_model
from rlt_trainer.policy.reward_model import RewardModel
from rlt_trainer.policy.sharded_model import ModelOptions
from rlt_trainer.policy.sharding import local_shards
from rlt_trainer.workers.train_worker import TrainWorker

with_group = pytest.mark.usefixtures("one_rank")
CHAT = [{"role": "user", "content": "2+2?"}]


def load(path: str) -> RewardModel:
    """Load a reward model in the process group of this process."""
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    return RewardModel(path, ModelOptions(mesh=mesh, dtype=torch.float32, frozen=True))


def write_model(folder: Path, *, num_labels: int = 1, pads: bool = True, max_length: int = 64) -> str:
    config = Qwen3Config(
        vocab_size=262,
        hidden_size=32,
        intermediate_size=32,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=16,
        max_position_embeddings=max_length,
    )
    config.num_labels = num_labels
    torch.manual_seed(0)
    classifier = Qwen3ForSequenceClassification(config)  # type: ignore[no-untyped-call]
    classifier.save_pretrained(folder)
    tokenizer = build_byte_tokenizer()
    if not pads:
        tokenizer.pad_token = None
    tokenizer.save_pretrained(folder)
    return str(folder)


@pytest.mark.parametrize("pads", [True, False])
@with_group
def test_scores_are_the_classifiers_logits_and_independent_of_the_batch(tmp_path: Path, pads: bool) -> None:
    path = write_model(tmp_path, pads=pads)
    classifier = AutoModelForSequenceClassification.from_pretrained(path)
    tokenizer = AutoTokenizer.from_pretrained(path)
    texts = ["<|bos|><|user|>2+2?<|eos|><|assistant|>4<|eos|>", "2+2=5, or 6"]
    expected = [classifier(torch.tensor([tokenizer(text)["input_ids"]])).logits[0, 0].item() for text in texts]
    scores = load(path).score([CHAT, "2+2="], ["4", "5, or 6"])
    torch.testing.assert_close(scores, torch.tensor(expected), rtol=1e-5, atol=1e-6)
    assert abs(expected[0] - expected[1]) > 1e-3


def score_on_rank(path: str, texts: Sequence[str], rank: int, ranks: int) -> tuple[list[float], float]:
    """Score this rank's share of the texts. Return the scores, and the share of the weights on this rank."""
    join(rank, ranks)
    try:
        judge = load(path)
        held = sum(shard.numel() for shard in local_shards(judge._model))
        share = held / sum(parameter.numel() for parameter in judge._model.parameters())
        return [float(score) for part in (texts, texts[:1]) for score in judge.score(part, ["x"] * len(part))], share
    finally:
        dist.destroy_process_group()


@pytest.mark.slow
@with_group
def test_two_ranks_hold_half_of_the_weights_and_give_one_ranks_scores(tmp_path: Path) -> None:
    path = write_model(tmp_path, pads=False)  # each sequence is a separate pass
    shares: list[list[str]] = [[], ["1+1=2", "3+4=7, or 8", "5"]]  # a rank without responses takes part
    both = run_ranks(score_on_rank, [(path, share, rank, 2) for rank, share in enumerate(shares)])
    for share, (scores, held) in zip(shares, both, strict=True):
        expected = [load(path).score(part, ["x"] * len(part)) for part in (share, share[:1])]
        torch.testing.assert_close(torch.tensor(scores), torch.cat(expected))
        assert 0.45 < held < 0.55


@with_group
def test_smaller_batches_do_not_change_the_scores(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    judge = load(write_model(tmp_path))
    prompts = ["a" * n for n in range(1, 9)]
    responses = ["b"] * 8
    at_once = judge.score(prompts, responses)
    monkeypatch.setattr(reward_model, "MAX_TOKENS", 10)
    torch.testing.assert_close(judge.score(prompts, responses), at_once, rtol=1e-5, atol=1e-6)


@with_group
def test_a_sequence_over_the_maximum_length_has_no_score(tmp_path: Path) -> None:
    judge = load(write_model(tmp_path, max_length=8))
    assert judge.score(["abcd", "abcd"], ["efgh", "efghi"]).isnan().tolist() == [False, True]


@with_group
def test_a_classifier_with_several_outputs_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"is not a reward model \(it has 2 outputs, not one"):
        load(write_model(tmp_path, num_labels=2))


@with_group
def test_a_language_model_is_rejected(tiny_model: str, tmp_path: Path) -> None:
    for name in ("model.safetensors", "tokenizer.json", "tokenizer_config.json"):
        (tmp_path / name).write_bytes((Path(tiny_model) / name).read_bytes())
    Qwen3Config.from_pretrained(tiny_model, num_labels=1).save_pretrained(tmp_path)
    with pytest.raises(ValueError, match=r"it has no weights for score\.weight"):
        load(str(tmp_path))


@with_group
def test_a_missing_folder_is_reported() -> None:
    with pytest.raises(ValueError, match="rewards: model /nowhere is not a reward model"):
        load("/nowhere")


@pytest.mark.slow
def test_a_run_learns_from_a_reward_model(make_config: Callable[..., TrainingConfig], tmp_path: Path) -> None:
    path = write_model(tmp_path / "judge")
    evaluation = [{"name": "test", "every": 1}]
    (step,) = train(
        make_config(workers=1, training={"totalSteps": 1}, evaluation=evaluation, rewards=[{"model": path}])
    )
    lines = [json.loads(line) for line in (tmp_path / "run/rollouts/step-1.jsonl").read_text().splitlines()]
    prompts, responses = ([line[name] for line in lines] for name in ("prompt", "response"))
    with single_rank_group():
        judged = load(path).score(prompts, responses)
    torch.testing.assert_close(torch.tensor([line["reward"] for line in lines]), judged, rtol=1e-4, atol=1e-5)
    assert step["critic/score/mean"] == pytest.approx(float(judged.mean()), rel=1e-4)
    assert step["actor/grad_norm"] > 0
    assert step["val/test/reward/mean"] != 0
    assert step["val/test/overlong_prompts"] == 0


def test_workers_share_the_responses_and_the_scores_keep_their_order(
    make_config: Callable[..., TrainingConfig],
) -> None:
    class TwoWorkers:
        shares: tuple[int, ...] = ()

        def __len__(self) -> int:
            return 2

        def each(self, method: Any, paths: list[str], prompts: Any, texts: Sequence[list[str]]) -> list[torch.Tensor]:
            assert (method, paths) == (TrainWorker.model_rewards, ["judge"] * 2)
            assert [[prompt.text for prompt in part] for part in prompts] == list(texts)
            self.shares = tuple(map(len, texts))
            return [torch.tensor([float(text) for text in part]) for part in texts]

    workers = TwoWorkers()
    names = ["0", "1", "2", "3", "4"]
    batches = BatchBuilder(make_config(), cast(Any, None), cast(Any, workers))
    rollouts = [
        Rollout(Prompt(index, (1,), name, "", "", ""), Response((), ()), name, {}) for index, name in enumerate(names)
    ]
    assert batches._model_scores("judge", rollouts).tolist() == [0.0, 1.0, 2.0, 3.0, 4.0]
    assert workers.shares == (3, 2)
