"""vLLM in the rank's own process: tensors are handed over without being serialised."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from typing import Literal

import torch
from torch import Tensor

from rlt_api.blocks.rollout import Rollout
from rlt_trainer.rollout.engine import Response, Sampling


class VllmEngine:
    """One engine a rank, without tensor parallelism. It joins the rank's process group, so all ranks start together.

    It starts with dummy weights: the first update_weights has to bring all of them, and the verification after it
    shows whether it did.
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
    ) -> None:
        os.environ |= {
            "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
            "VLLM_CPU_KVCACHE_SPACE": str(rollout.kv_cache_space),
            "VLLM_CPU_OMP_THREADS_BIND": "nobind",  # the container's quota is no set of processors
            "VLLM_NO_USAGE_STATS": "1",
        }
        # Its warnings repeat with every sync (layers without weights, such as rotary embeddings); we verify each sync.
        os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
        from vllm import LLM

        self._llm = LLM(
            model=files,
            load_format="dummy",
            dtype=dtype,
            seed=seed,
            max_model_len=max_model_len,
            enforce_eager=rollout.enforce_eager,
            gpu_memory_utilization=rollout.gpu_memory_utilization,
            distributed_executor_backend="uni",
            logprobs_mode="processed_logprobs",
            generation_config="vllm",  # the model's own top_k and the like must not shape what is learned from
            disable_log_stats=True,
        )
        self._sampling = sampling

    def generate(self, prompts: Sequence[Sequence[int]], seeds: Sequence[int]) -> list[Response]:
        """As in RolloutEngine."""
        from vllm import SamplingParams
        from vllm.inputs import TokensPrompt

        parameters = [
            SamplingParams(
                temperature=self._sampling.temperature,
                top_p=self._sampling.top_p,
                max_tokens=self._sampling.max_tokens,
                stop_token_ids=list(self._sampling.stop_token_ids),
                seed=seed,
                logprobs=0,  # of the drawn token alone
                detokenize=False,
            )
            for seed in seeds
        ]
        outputs = self._llm.generate(
            [TokensPrompt(prompt_token_ids=list(prompt)) for prompt in prompts], parameters, use_tqdm=False
        )
        responses = []
        for output in outputs:
            completion = output.outputs[0]
            token_ids, steps = tuple(completion.token_ids), completion.logprobs
            assert steps is not None
            log_probs = [step[token].logprob for token, step in zip(token_ids, steps, strict=True) if step is not None]
            responses.append(Response(token_ids, tuple(log_probs)))
        return responses

    def log_probs(self, sequences: Sequence[Sequence[int]]) -> list[list[float]]:
        """As in RolloutEngine. A request for a prompt's log-probabilities reads no prefix cache."""
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
        """As in RolloutEngine: through vLLM's own loading, which packs the weights anew for the CPU's kernels."""
        self._llm.collective_rpc("reload_weights", kwargs={"weights_iterator": list(weights)})
        if not self._llm.reset_prefix_cache():
            raise RuntimeError("vLLM did not reset its prefix cache: it holds values of the earlier weights")

    def close(self) -> None:
        """As in RolloutEngine."""
        self._llm.llm_engine.engine_core.shutdown()
        if torch.cuda.is_available():
            torch.cuda.empty_cache()
