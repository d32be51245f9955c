"""The experts that vLLM reports (algorithm.routerReplay R3)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from in_process import Pair
from replayed_mixtures import MIXTURES, PROMPTS
from trained_families import write_model

from rlt_api.spec.training_config import TrainingConfig
from rlt_trainer.batches.sequences import Sequences
from rlt_trainer.data.prompt import Prompt
from rlt_trainer.rollout.build_engine import build_engine
from rlt_trainer.rollout.engine import EngineError
from rlt_trainer.rollout.vllm_responses import read_response

if TYPE_CHECKING:
    from vllm.outputs import RequestOutput

MakeConfig = Callable[..., TrainingConfig]


def build_output(routed_experts: Any, finish_reason: str = "stop") -> RequestOutput:
    """The output of a request with two prompt tokens and two response tokens."""
    from vllm.logprobs import FlatLogprobs
    from vllm.outputs import CompletionOutput, RequestOutput

    sampled = FlatLogprobs(logprobs=[-0.5, -1.0])
    completion = CompletionOutput(0, "", [7, 8], None, sampled, routed_experts, finish_reason)
    return RequestOutput("1", None, [5, 6], None, [completion], finished=True)


def test_routes_are_the_numbers_of_experts_plus_one() -> None:
    chosen = np.arange(12, dtype=np.uint8).reshape(3, 2, 2)
    for experts, dtype in ((255, np.uint8), (256, np.int16)):
        routes = read_response(build_output(chosen), experts=experts).routes
        assert routes is not None
        assert routes.dtype == dtype
        assert np.array_equal(routes, chosen.astype(np.int16) + 1)
    many = np.full((3, 1, 1), 511, dtype=np.uint16)
    routes = read_response(build_output(many), experts=512).routes
    assert routes is not None
    assert routes.max() == 512
    assert read_response(build_output(None), experts=None).routes is None


def test_an_aborted_response_has_the_routes_so_far() -> None:
    chosen = np.zeros((2, 2, 2), dtype=np.uint8)
    routes = read_response(build_output(chosen, "abort"), experts=8).routes
    assert routes is not None
    assert len(routes) == 2
    assert read_response(build_output(None, "abort"), experts=8).routes is None


@pytest.mark.parametrize(("chosen", "found"), [(None, 0), (np.zeros((2, 2, 2), dtype=np.uint8), 2)], ids=str)
def test_a_response_without_all_routes_is_rejected(chosen: Any, found: int) -> None:
    with pytest.raises(ValueError, match=rf"experts of {found} of 3 tokens \(algorithm\.routerReplay R3\)"):
        read_response(build_output(chosen), experts=8)


def build_job(make_config: MakeConfig, folder: Path, **changes: Any) -> TrainingConfig:
    write_model(MIXTURES["qwen3_moe"], folder)
    return make_config(
        workers=1,
        model={"fromSeed": None, "path": str(folder)},
        algorithm={"routerReplay": "R3"},
        data={"preset": "arithmetic", "maxPromptLength": 64, "maxResponseLength": 8},
        rollout={"engine": "vllm", "maxNumSeqs": 8},
        **changes,
    )


@pytest.mark.slow
async def test_vllm_without_triton_does_not_start(make_config: MakeConfig, tmp_path: Path) -> None:
    """The rule router-replay rejects such jobs."""
    from vllm.triton_utils import HAS_TRITON

    if HAS_TRITON:
        pytest.skip("needs vLLM's CPU build")
    config = build_job(make_config, tmp_path)
    engine = build_engine(config, files=str(tmp_path), device=torch.device("cpu"))
    with pytest.raises(EngineError) as error:
        await engine.start()
    assert "Model Runner V2" in str(error.value.__cause__)


@pytest.mark.gpu
def test_vllm_reports_the_experts_of_its_tokens(make_config: MakeConfig, tmp_path: Path) -> None:
    config = build_job(make_config, tmp_path, devicesPerWorker=1)
    pair = Pair(config, [Prompt(0, (50, 51, 52, 53), "", "", "", "")])
    try:
        pair.sync()
        responses = pair.generate(PROMPTS, [1, 2, 3, 4])
        sequences = Sequences.pad(PROMPTS, [each.token_ids for each in responses], pad_token_id=0)
        _, _, routes = pair.rank.record_log_probs(sequences)
        reported = sequences.with_routes([each.routes for each in responses])
        assert reported.routes is not None
        found = reported.flatten_routes(reported.routes)
        is_reported = found.any(axis=(1, 2))
        assert is_reported.sum() == sum(sequences.token_counts()) - len(PROMPTS)
        same = np.sort(found, axis=-1) == np.sort(routes, axis=-1)
        assert same[is_reported].mean() > 0.9, "other kernels choose other experts where two scores are close"
    finally:
        pair.close()
