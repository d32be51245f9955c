"""The distribution of vLLM's rejection sampler on CPUs, with the function that replaces one of vLLM's."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch

from rlt_trainer.rollout.vllm_expand import expand, replace_expand

VOCABULARY = 8
LOGITS = torch.tensor([2.0, 1.5, 1.0, 0.5, 0.0, -0.5, -1.0, -3.0])
TEMPERATURES = (0.5, 2.0)
ROWS_PER_DRAFT = 1500


@pytest.fixture(scope="module")
def platform() -> None:
    """vLLM's functions for CPUs, as its workers load them."""
    from vllm.platforms import current_platform

    if not current_platform.is_cpu():
        pytest.skip("vLLM has Triton's kernels")
    current_platform.import_kernels()
    current_platform.register_triton_kernel_overrides()


def test_values_are_repeated_for_the_draft_tokens_of_their_requests() -> None:
    output = torch.full((5,), math.nan)
    expand(output, torch.tensor([0.5, 0.0, 2.0, 3.0]), torch.tensor([2, 3, 3, 5], dtype=torch.int32), 0, 1)
    assert output.tolist() == [0.5, 0.5, 1.0, 3.0, 3.0]


@pytest.mark.usefixtures("platform")
def test_vllms_own_function_does_not_write_its_output() -> None:
    """If this fails, vLLM has fixed it: remove rollout/vllm_expand.py."""
    from vllm.utils.cpu_triton_utils import _expand_kernel_impl

    output = torch.full((3,), 7.0)
    replaced: Any = _expand_kernel_impl
    replaced(output, torch.tensor([2.0, 3.0]), torch.tensor([1, 3], dtype=torch.int32), 0, 1)
    assert output.tolist() == [7.0, 7.0, 7.0]


@pytest.mark.usefixtures("platform")
@pytest.mark.parametrize("top_k", [None, 3])
def test_tokens_have_the_distribution_of_the_policy_for_every_draft(top_k: int | None) -> None:
    replace_expand()
    torch.manual_seed(0)
    temperatures = torch.tensor(TEMPERATURES).repeat(VOCABULARY * ROWS_PER_DRAFT)
    drafts = torch.arange(VOCABULARY).repeat_interleave(len(TEMPERATURES)).repeat(ROWS_PER_DRAFT)
    tokens, log_probs = sample(temperatures, drafts, top_k)
    statistic = 0.0
    freedom = 0
    for temperature in TEMPERATURES:
        kept = LOGITS if top_k is None else LOGITS.masked_fill(torch.arange(VOCABULARY) >= top_k, -math.inf)
        expected = (kept / temperature).log_softmax(0)
        for draft in range(VOCABULARY):
            rows = (temperatures == temperature) & (drafts == draft)
            torch.testing.assert_close(log_probs[rows], expected[tokens[rows]])
            probabilities = expected.exp()[: top_k or VOCABULARY] * ROWS_PER_DRAFT
            counts = torch.bincount(tokens[rows], minlength=VOCABULARY)[: top_k or VOCABULARY]
            statistic += float(((counts - probabilities) ** 2 / probabilities).sum())
            freedom += len(counts) - 1
    assert abs(statistic - freedom) < 5 * math.sqrt(2 * freedom), "chi-squared"


def sample(temperatures: torch.Tensor, drafts: torch.Tensor, top_k: int | None) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the first token of each request, of which one is proposed, and its log-probability."""
    from vllm.v1.sample.logits_processor import LogitsProcessors
    from vllm.v1.sample.metadata import SamplingMetadata
    from vllm.v1.sample.rejection_sampler import RejectionSampler
    from vllm.v1.sample.sampler import Sampler
    from vllm.v1.spec_decode.metadata import SpecDecodeMetadata

    count = len(drafts)
    metadata = SpecDecodeMetadata.make_dummy([[int(draft)] for draft in drafts], torch.device("cpu"))
    metadata.target_logits_indices = torch.arange(0, 2 * count, 2)
    metadata.bonus_logits_indices = torch.arange(1, 2 * count, 2)
    nothing: Any = torch.empty(0)
    sampling = SamplingMetadata(
        temperature=temperatures,
        all_greedy=False,
        all_random=True,
        top_p=None,
        top_k=None if top_k is None else torch.full((count,), top_k, dtype=torch.int32),
        generators={},
        max_num_logprobs=0,
        no_penalties=True,
        prompt_token_ids=None,
        frequency_penalties=nothing,
        presence_penalties=nothing,
        repetition_penalties=nothing,
        output_token_ids=[[] for _ in range(count)],
        allowed_token_ids_mask=None,
        bad_words_token_ids={},
        logitsprocs=LogitsProcessors(),
    )
    sampler = RejectionSampler(Sampler(logprobs_mode="processed_logprobs"))
    output = sampler(metadata, None, LOGITS.repeat(2 * count, 1), sampling)
    found, values = RejectionSampler.parse_output(
        output.sampled_token_ids, VOCABULARY, logprobs_tensors=output.logprobs_tensors
    )
    assert values is not None
    assert values.cu_num_generated_tokens is not None
    first = np.asarray(values.cu_num_generated_tokens[:-1])
    return torch.tensor([row[0] for row in found]), torch.from_numpy(np.asarray(values.logprobs))[first, 0]
