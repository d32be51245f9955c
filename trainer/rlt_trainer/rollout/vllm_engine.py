"""vLLM in the caller's process: weights are passed as tensors, without serialization."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterable, Sequence
from itertools import count
from threading import Event
from typing import TYPE_CHECKING, Literal

import torch
from torch import Tensor, nn

from rlt_api.blocks.rollout import Rollout
from rlt_trainer.batches.response import FinishReason, Response
from rlt_trainer.rollout.engine import EngineError, Sampling
from rlt_trainer.rollout.vllm_options import build_engine_options, check_engine_kwargs
from rlt_trainer.rollout.vllm_weights import iterate_weights, pack_shared_weights
from rlt_trainer.rollout.weight_sums import Sums, sum_weights

if TYPE_CHECKING:
    from vllm import SamplingParams
    from vllm.outputs import CompletionOutput

FINISHED: dict[str | None, FinishReason] = {"stop": "stop", "length": "length"}


class VllmEngine:
    """One vLLM engine. It joins the process group of its process, so all ranks start their engines together.

    It starts with dummy weights. The first weight sync loads all weights, and verifies them.
    """

    def __init__(
        self,
        files: str,
        *,
        dtype: Literal["float32", "bfloat16"],
        rollout: Rollout,
        sampling: Sampling,
        max_model_len: int,
        seed: int,
        trust_remote_code: bool = False,
    ) -> None:
        """Raises ValueError for options that vLLM does not have, and EngineError if vLLM does not start."""
        check_engine_kwargs(rollout)
        on_gpu = torch.cuda.is_available()
        options = build_engine_options(
            files,
            dtype=dtype,
            rollout=rollout,
            max_model_len=max_model_len,
            seed=seed,
            trust_remote_code=trust_remote_code,
            on_gpu=on_gpu,
        )
        os.environ |= {
            "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
            "VLLM_CPU_KVCACHE_SPACE": str(rollout.kv_cache_space),
            "VLLM_CPU_OMP_THREADS_BIND": "nobind",  # a CPU quota is not a set of cores
            "VLLM_NO_USAGE_STATS": "1",
        }
        # vLLM warns at every sync about layers without weights, such as rotary embeddings; each sync is verified.
        os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
        from vllm import LLM
        from vllm.engine.arg_utils import EngineArgs

        if unknown := sorted(set(rollout.engine_kwargs) - set(EngineArgs.__dataclass_fields__)):
            raise ValueError(f"rollout.engineKwargs: vLLM has no option {', '.join(unknown)}. Use vLLM's names.")
        try:
            self._llm = LLM(**options)
        except Exception as error:
            raise EngineError(
                f"vLLM did not start: {_first_line(error)}. If memory is short, lower rollout.gpuMemoryUtilization "
                "(on a CPU rollout.kvCacheSpace) or rollout.maxModelLen; otherwise check rollout.engineKwargs and the "
                "log above, or use rollout.engine: transformers."
            ) from error
        if rollout.free_cache_engine and not on_gpu:
            warnings.warn("rollout.freeCacheEngine has no effect: vLLM supports sleep mode only on GPUs.", stacklevel=2)
        self._can_sleep = rollout.free_cache_engine and on_gpu
        self._asleep = False
        self._sampling = sampling
        self._request_ids = map(str, count())

    def generate(
        self,
        prompts: Sequence[Sequence[int]],
        seeds: Sequence[int],
        sampling: Sampling | None = None,
        *,
        max_tokens: Sequence[int] | None = None,
        interrupt: Event | None = None,
    ) -> list[Response]:
        """As in RolloutEngine."""
        from vllm.inputs import TokensPrompt
        from vllm.outputs import RequestOutput

        assert not self._asleep, "the engine is asleep until the next update_weights"
        sampling = sampling or self._sampling
        limits = max_tokens or [sampling.max_tokens] * len(prompts)
        engine = self._llm.llm_engine
        partial: dict[str, _Partial] = {}
        try:
            for prompt, seed, limit in zip(prompts, seeds, limits, strict=True):
                request_id = next(self._request_ids)
                parameters = _parameters(sampling, seed=seed, max_tokens=limit, interruptible=interrupt is not None)
                engine.add_request(request_id, TokensPrompt(prompt_token_ids=list(prompt)), parameters)
                partial[request_id] = _Partial()
            while engine.has_unfinished_requests():
                if interrupt is not None and interrupt.is_set():
                    engine.abort_request([name for name, each in partial.items() if each.finish_reason == "abort"])
                    break
                for output in engine.step():
                    assert isinstance(output, RequestOutput)
                    partial[output.request_id].add(output.outputs[0])
        except Exception as error:
            raise EngineError(
                f"vLLM failed during generation: {_first_line(error)}. If memory is short, lower "
                "rollout.maxNumSeqs or rollout.gpuMemoryUtilization; a prompt with its response must fit in "
                "rollout.maxModelLen. The run can be resumed from its latest checkpoint."
            ) from error
        return [
            Response(tuple(each.token_ids), tuple(each.log_probs), finish_reason=each.finish_reason)
            for each in partial.values()
        ]

    def log_probs(self, sequences: Sequence[Sequence[int]]) -> list[list[float]]:
        """As in RolloutEngine. vLLM does not read the prefix cache for prompt log-probabilities."""
        from vllm import SamplingParams
        from vllm.inputs import TokensPrompt

        outputs = self._llm.generate(
            [TokensPrompt(prompt_token_ids=list(sequence)) for sequence in sequences],
            SamplingParams(max_tokens=1, prompt_logprobs=0, detokenize=False),
            use_tqdm=False,
        )
        result = []
        for sequence, output in zip(sequences, outputs, strict=True):
            assert output.prompt_logprobs is not None
            steps = zip(sequence[1:], output.prompt_logprobs[1:], strict=True)
            result.append([step[token].logprob for token, step in steps if step is not None])
        return result

    def update_weights(self, weights: Iterable[tuple[str, Tensor]]) -> None:
        """As in RolloutEngine. vLLM's reload repacks the weights for the CPU's kernels.

        It loads layer by layer, so that only one layer is in memory twice.
        """
        if self._asleep:
            torch.cuda.empty_cache()  # return torch's cached memory to the device, for vLLM to allocate
            self._llm.wake_up()
            self._asleep = False
        stream = iter(weights)
        self._llm.collective_rpc("reload_weights", kwargs={"weights_iterator": stream})
        for _ in stream:  # gathering is collective: each rank must consume all
            pass
        self._llm.apply_model(pack_shared_weights)
        if not self._llm.reset_prefix_cache():
            raise RuntimeError("vLLM did not reset its prefix cache, which contains values of earlier weights")

    def sum_weights(self) -> Sums:
        """As in RolloutEngine."""
        sums: list[Sums] = self._llm.apply_model(_compute_sums)
        return sums[0]

    def sleep(self) -> None:
        """As in RolloutEngine. Level 2 discards the weights, which the next sync restores."""
        if self._can_sleep:
            self._llm.sleep(level=2)
            self._asleep = True

    def close(self) -> None:
        """As in RolloutEngine."""
        self._llm.llm_engine.engine_core.shutdown()
        if torch.cuda.is_available():
            torch.cuda.empty_cache()


class _Partial:
    """A response during generation."""

    def __init__(self) -> None:
        self.token_ids: list[int] = []
        self.log_probs: list[float] = []
        self.finish_reason: FinishReason = "abort"

    def add(self, completion: CompletionOutput) -> None:
        """Append new tokens: all tokens at once if the request is not interruptible."""
        tokens, steps = completion.token_ids, completion.logprobs
        assert steps is not None
        self.token_ids += tokens
        self.log_probs += [step[token].logprob for token, step in zip(tokens, steps, strict=True) if step is not None]
        if completion.finish_reason is not None:
            self.finish_reason = FINISHED[completion.finish_reason]


def _parameters(sampling: Sampling, *, seed: int, max_tokens: int, interruptible: bool) -> SamplingParams:
    from vllm import SamplingParams
    from vllm.sampling_params import RequestOutputKind

    return SamplingParams(
        temperature=sampling.temperature,
        top_p=sampling.top_p,
        top_k=sampling.top_k,
        max_tokens=max_tokens,
        stop_token_ids=list(sampling.stop_token_ids),
        seed=seed,
        logprobs=0,  # of the sampled token only
        detokenize=False,
        output_kind=RequestOutputKind.DELTA if interruptible else RequestOutputKind.FINAL_ONLY,
    )


def _compute_sums(model: nn.Module) -> Sums:
    return sum_weights(iterate_weights(model))


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0].rstrip(".") or type(error).__name__
