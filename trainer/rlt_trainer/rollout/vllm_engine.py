"""vLLM: its scheduler runs in its own process, and with tensor parallelism each device has another one."""

from __future__ import annotations

import asyncio
import os
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Literal

import torch
from prometheus_client.core import Metric

from rlt_api.blocks.rollout import Rollout
from rlt_trainer.data.image_processor import ImageProcessor
from rlt_trainer.policy.model_files import DTYPES
from rlt_trainer.rollout.engine import Done, EngineDiedError, EngineError, Part, Request
from rlt_trainer.rollout.vllm_adapters import Adapters, build_lora_request
from rlt_trainer.rollout.vllm_images import ImagePrompts
from rlt_trainer.rollout.vllm_metrics import read_vllm_metrics
from rlt_trainer.rollout.vllm_options import build_engine_options, build_variables, check_engine_kwargs
from rlt_trainer.rollout.vllm_pods import EnginePod, run_workers
from rlt_trainer.rollout.vllm_responses import read_response
from rlt_trainer.rollout.vllm_worker import OWNER, WorkerExtension, unpack_received, unpack_sums
from rlt_trainer.rollout.weight_channel import ChannelAddress, Received, join_received
from rlt_trainer.rollout.weight_sums import Sums, add_up_sums
from rlt_trainer.rollout.weight_sync import StaleWeightsError, describe_wrong_layers

if TYPE_CHECKING:
    from vllm import SamplingParams
    from vllm.inputs import EngineInput
    from vllm.v1.engine.output_processor import RequestOutputCollector


class VllmEngine:
    """A RolloutEngine on vLLM's AsyncLLM.

    It starts with dummy weights. The first weight sync loads all weights, and verifies them. If vLLM applies adapters
    itself, it starts with the weights of the files, and a sync loads the adapters. With `from_files` it has no syncs.
    """

    def __init__(
        self,
        files: str,
        *,
        dtype: Literal["float32", "bfloat16"],
        rollout: Rollout,
        max_model_len: int,
        seed: int,
        float32_head: bool = False,
        trust_remote_code: bool = False,
        processor: ImageProcessor | None = None,
        adapters: Adapters | None = None,
        from_files: bool = False,
        pod: EnginePod | None = None,
        reports_routes: bool = False,
    ) -> None:
        """float32_head: model.castLmHeadToFp32. processor: for prompts with images (data.imageKey).

        adapters: those that vLLM applies itself (model.lora.syncAdapters). from_files: load all weights at the start.
        pod: of an engine in several pods. reports_routes: algorithm.routerReplay R3.

        Raises ValueError for options that vLLM does not have.
        """
        check_engine_kwargs(rollout)
        self._on_gpu = torch.cuda.is_available()
        self._options = build_engine_options(
            files,
            dtype=dtype,
            rollout=rollout,
            max_model_len=max_model_len,
            seed=seed,
            float32_head=float32_head,
            trust_remote_code=trust_remote_code,
            has_images=processor is not None,
            adapters=adapters,
            from_files=from_files,
            reports_routes=reports_routes,
            on_gpu=self._on_gpu,
        )
        self._adapters = adapters
        self._is_quantized = rollout.quantization is not None
        self._keeps_cache = rollout.staleness is not None and rollout.staleness.kv_cache == "keep"
        self._version = 0  # of the weights
        self._images = None if processor is None else ImagePrompts(processor, DTYPES[dtype])
        os.environ |= {**build_variables(rollout), OWNER: str(os.getpid())}
        if pod is not None:
            self._options |= pod.options()
            os.environ |= pod.variables()
        # vLLM compiles functions of its sampler even if the model is not compiled, on CPUs with GCC: 6 s of CPU time.
        is_eager = rollout.enforce_eager and not self._on_gpu
        self._start_variables = {"TORCHDYNAMO_DISABLE": "1"} if is_eager else {}
        # vLLM warns at every sync about layers without weights, such as rotary embeddings; each sync is verified.
        os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
        _check_options(rollout, on_gpu=self._on_gpu)
        self._lora = build_lora_request() if adapters else None
        self._can_sleep = rollout.free_cache_engine and self._on_gpu
        self._asleep: set[Part] = set()
        self._is_paused = False
        self._running: dict[int, asyncio.Task[None]] = {}
        self._submitting = asyncio.Lock()

    async def start(self) -> int:
        """As in RolloutEngine."""
        from vllm.engine.arg_utils import AsyncEngineArgs
        from vllm.usage.usage_lib import UsageContext
        from vllm.v1.engine.async_llm import AsyncLLM

        try:
            # Batch sizes for offline inference are larger than a server's, which limits the latency.
            with _set_variables(self._start_variables):
                self._llm = AsyncLLM.from_engine_args(
                    AsyncEngineArgs(**self._options), usage_context=UsageContext.LLM_CLASS
                )
        except Exception as error:
            raise EngineError(
                f"vLLM did not start: {_first_line(error)}. If memory is short, lower rollout.gpuMemoryUtilization "
                "(on a CPU rollout.kvCacheSpace) or rollout.maxModelLen; otherwise check rollout.engineKwargs and the "
                "log above, or use rollout.engine: transformers."
            ) from error
        return int(self._llm.vllm_config.scheduler_config.max_num_seqs)

    def run_workers(self) -> None:
        """Run the workers of this pod alone, instead of `start`. Returns when one of them has ended."""
        with _set_variables(self._start_variables):
            run_workers(self._options)

    async def submit(self, requests: Sequence[Request], done: Done) -> None:
        """As in RolloutEngine. The scheduler is paused meanwhile if it is idle."""
        async with self._submitting:
            prompts = await self._build_prompts(requests)
            hold = not self._is_paused and not self._running
            if hold:
                await self._llm.engine_core.pause_scheduler_async(mode="keep", clear_cache=False)
            for request, prompt in zip(requests, prompts, strict=True):
                await self._add(request, prompt, done)
            if hold:
                await self._llm.resume_generation()

    async def abort(self, numbers: Sequence[int]) -> None:
        """As in RolloutEngine."""
        await self._llm.abort([str(number) for number in numbers])

    async def pause(self) -> None:
        """As in RolloutEngine. Returns when no batch is in progress (vllm/v1/engine/core.py: pause_scheduler)."""
        async with self._submitting:  # `submit` would resume the scheduler
            await self._llm.pause_generation(mode="keep", clear_cache=False)
            self._is_paused = True

    async def resume(self) -> None:
        """As in RolloutEngine."""
        self._is_paused = False
        await self._llm.resume_generation()

    async def sleep(self) -> None:
        """As in RolloutEngine. Level 2 discards weights, which a sync restores. Level 1 keeps them on the host.

        vLLM preempts requests in progress, and resets all caches (vllm/v1/engine/core.py: sleep, _finish_pause).
        """
        if self._can_sleep and not self._asleep:
            async with self._submitting:  # vLLM clears its two caches of images one after the other
                await self._llm.sleep(level=1 if self._adapters else 2, mode="keep")
            self._asleep = {"weights", "kv_cache"}

    async def wake(self, part: Part) -> None:
        """As in RolloutEngine."""
        if part in self._asleep:
            await self._llm.wake_up([part])
            self._asleep.remove(part)

    async def open_channel(self, addresses: Sequence[ChannelAddress]) -> None:
        """As in RolloutEngine."""
        await self._call(WorkerExtension.open_weight_channel, [asdict(address) for address in addresses])

    async def receive_weights(self) -> Received:
        """As in RolloutEngine. Requests in progress are preempted: vLLM computes their caches again.

        With rollout.staleness.kvCache keep they continue with their caches. Later requests have another salt, so that
        they find no values of earlier weights. vLLM evicts those when it needs their blocks.
        """
        if self._adapters:
            parts = await self._call(WorkerExtension.load_policy_adapters, asdict(self._adapters))
        else:
            parts = await self._call(WorkerExtension.load_policy_weights)
        received = join_received([unpack_received(part) for part in parts])
        self._version = received.version
        if not self._keeps_cache:
            await self._reset_caches()
        return received

    async def sum_weights(self) -> Sums:
        """As in RolloutEngine. Replicas count each time.

        A quantized layer counts with the weights that it was loaded with, after a comparison. Raises StaleWeightsError.
        """
        if self._is_quantized:
            wrong = [each for layers in await self._call(WorkerExtension.list_wrong_layers) for each in layers]
            if wrong:
                raise StaleWeightsError(describe_wrong_layers(wrong))
        return add_up_sums(unpack_sums(items) for items in await self._call(WorkerExtension.sum_policy_weights))

    async def log_probs(self, sequences: Sequence[Sequence[int]]) -> list[list[float]]:
        """As in RolloutEngine. vLLM does not read the prefix cache for prompt log-probabilities."""
        return await asyncio.gather(*[self._log_probs(sequence) for sequence in sequences])

    def read_metrics(self) -> list[Metric]:
        """As in RolloutEngine. Empty with rollout.engineKwargs.disable_log_stats."""
        return read_vllm_metrics()

    def close(self) -> None:
        """As in RolloutEngine."""
        self._llm.shutdown()
        del self._llm  # its destructor fails while Python exits

    async def _build_prompts(self, requests: Sequence[Request]) -> list[EngineInput]:
        from vllm.inputs.engine import tokens_input

        with_images = [request for request in requests if request.images]
        inputs: dict[int, EngineInput] = {}
        if with_images:
            assert self._images is not None
            built = await asyncio.to_thread(self._images.build, with_images)
            inputs = {request.number: prompt for request, prompt in zip(with_images, built, strict=True)}
        salt = str(self._version) if self._keeps_cache else None
        return [
            inputs.get(request.number) or tokens_input(list(request.prompt), cache_salt=salt) for request in requests
        ]

    async def _add(self, request: Request, prompt: EngineInput, done: Done) -> None:
        if prompt["type"] == "multimodal":  # the pixels of an image are sent to vLLM's process once
            items: Any = prompt["mm_kwargs"]
            self._llm.input_processor.inject_into_mm_cache(dict(prompt["mm_hashes"]), items)
        try:
            output = await self._llm.add_request(
                str(request.number), prompt, _parameters(request), lora_request=self._lora
            )
        except Exception as error:
            done(request.number, self._describe(error))
            return
        self._running[request.number] = asyncio.create_task(self._wait(request.number, output, done))

    async def _wait(self, number: int, output: RequestOutputCollector, done: Done) -> None:
        try:
            result: Any = await output.get()
            reports_routes = "enable_return_routed_experts" in self._options
            experts = int(self._llm.model_config.get_num_experts()) if reports_routes else None
            done(number, read_response(result, experts=experts))
        except Exception as error:
            done(number, self._describe(error))
        finally:
            del self._running[number]

    async def _log_probs(self, sequence: Sequence[int]) -> list[float]:
        from vllm import SamplingParams
        from vllm.inputs.engine import tokens_input

        parameters = SamplingParams(max_tokens=1, prompt_logprobs=0, detokenize=False)
        name = f"log-probs-{os.urandom(8).hex()}"
        prompt = tokens_input(list(sequence))
        async for output in self._llm.generate(prompt, parameters, name, lora_request=self._lora):
            if output.finished:
                assert output.prompt_logprobs is not None
                steps = zip(sequence[1:], output.prompt_logprobs[1:], strict=True)
                return [step[token].logprob for token, step in steps if step is not None]
        raise AssertionError("vLLM's stream ends with a finished output")

    async def _call(self, method: Any, *arguments: Any) -> list[Any]:
        """Call a method of WorkerExtension in all workers. Raises EngineDiedError."""
        try:
            results: list[Any] = await self._llm.collective_rpc(method.__name__, args=arguments)
        except Exception as error:
            if self._llm.errored:
                raise self._describe(error) from error
            raise
        return results

    def _describe(self, error: Exception) -> EngineError:
        """Describe a failure. vLLM's scheduler ends with any of its workers, and then all requests fail."""
        kind = EngineDiedError if self._llm.errored else EngineError
        return kind(
            f"vLLM failed: {_first_line(error)}. If memory is short, lower rollout.maxNumSeqs or "
            "rollout.gpuMemoryUtilization; a prompt with its response must fit in rollout.maxModelLen. The run can be "
            "resumed from its latest checkpoint."
        )

    async def _reset_caches(self) -> None:
        """Drop all values of earlier weights. The engine is paused.

        Preempted requests are safe with both model runners: after the pause, none has a token in flight, which
        asynchronous scheduling would drop (vllm/v1/core/sched/scheduler.py: _preempt_request), and the next batch
        removes their state before it adds them with all their tokens (vllm/v1/worker/gpu/model_runner.py:
        finish_requests, add_requests). Without requests in progress nothing is preempted.
        """
        if not await self._llm.reset_prefix_cache(reset_running_requests=True):
            raise RuntimeError("vLLM did not reset its prefix cache, which contains values of earlier weights")
        if self._images is not None:
            await self._llm.reset_encoder_cache()


def _check_options(rollout: Rollout, *, on_gpu: bool) -> None:
    from vllm.engine.arg_utils import AsyncEngineArgs

    if unknown := sorted(set(rollout.engine_kwargs) - set(AsyncEngineArgs.__dataclass_fields__)):
        raise ValueError(f"rollout.engineKwargs: vLLM has no option {', '.join(unknown)}. Use vLLM's names.")
    if rollout.free_cache_engine and not on_gpu:
        warnings.warn("rollout.freeCacheEngine has no effect: vLLM supports sleep mode only on GPUs.", stacklevel=3)


def _parameters(request: Request) -> SamplingParams:
    from vllm import SamplingParams
    from vllm.sampling_params import RequestOutputKind

    sampling = request.sampling
    return SamplingParams(
        temperature=sampling.temperature,
        top_p=sampling.top_p,
        top_k=sampling.top_k,
        min_p=sampling.min_p,
        max_tokens=request.max_tokens,
        stop_token_ids=list(sampling.stop_token_ids),
        seed=request.seed,
        logprobs=0,  # of the sampled token only
        flat_logprobs=True,  # lists of numbers instead of two objects for each token
        stop=list(sampling.stop),
        detokenize=bool(sampling.stop),
        include_stop_str_in_output=True,  # also the text: with any value, the tokens include the string
        skip_special_tokens=False,  # a string may contain one
        output_kind=RequestOutputKind.FINAL_ONLY,
    )


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0].rstrip(".") or type(error).__name__


@contextmanager
def _set_variables(variables: Mapping[str, str]) -> Iterator[None]:
    """Set environment variables for processes that start meanwhile."""
    before = dict(os.environ)
    os.environ |= variables
    try:
        yield
    finally:
        for name in variables:
            os.environ.pop(name)
        os.environ |= {name: before[name] for name in variables if name in before}
