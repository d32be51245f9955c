"""vLLM in bfloat16: the tests of its weight sync on a GPU, then sleep and wake by parts with CUDA graphs."""

from __future__ import annotations

import time
from collections.abc import Iterator

import torch
from in_process import Pair

from gpu_check.figures import Figure
from gpu_check.models import build_shape, write_model
from gpu_check.pytest_run import run_tests
from gpu_check.runs import build_config
from gpu_check.settings import Settings
from rlt_trainer.data.prompt import Prompt
from rlt_trainer.rollout.weight_sums import sum_weights
from rlt_trainer.rollout.weight_sync import MAX_DIFFERENCE

GIB = 2**30
PROBES = [Prompt(number, tuple(range(50 + number, 66 + number)), "", "", "", "") for number in range(4)]


def run(settings: Settings) -> Iterator[Figure]:
    """The tests run eagerly; the rest has CUDA graphs and Qwen3-0.6B's shape."""
    if not settings.rehearse:
        yield from run_tests(settings, "weight sync, eager", ("test_rollout_vllm_bfloat16.py",))
    model = write_model(build_shape(settings.choose("0.6B", "tiny")), settings.folder / "model", settings.device)
    on_gpu = {"freeCacheEngine": True, "gpuMemoryUtilization": 0.4, "enforceEager": False}
    config = build_config(
        settings.device,
        settings.folder / "run",
        model,
        rollout={"engine": "vllm", "maxNumSeqs": 64, **settings.choose(on_gpu, {"kvCacheSpace": 1})},
    )
    start = time.perf_counter()
    pair = Pair(config, PROBES)
    yield Figure("start of vLLM", time.perf_counter() - start, "s")
    try:
        yield from exercise(settings, pair)
    finally:
        pair.close()


def exercise(settings: Settings, pair: Pair) -> Iterator[Figure]:
    """Sync, compare the weights, sleep, and sync again."""
    bound = MAX_DIFFERENCE["bfloat16"]
    for name in ("first sync", "second sync"):
        start = time.perf_counter()
        difference = pair.sync()
        yield Figure(f"{name}: time", time.perf_counter() - start, "s")
        yield Figure(f"{name}: difference", difference, "nats", passed=difference < bound, note=f"at most {bound}")
    held = pair.engines.loop.submit(pair.engine.sum_weights()).result(120)
    equal = held.parts == sum_weights(pair.rank._actor.gather_weights()).parts
    yield Figure("the engine has the exact weights that were sent", str(equal), passed=equal)
    prompts = [list(prompt.token_ids) for prompt in PROBES]
    seeds = [1, 2, 3, 4]
    before = [list(response.token_ids) for response in pair.generate(prompts, seeds)]
    awake = read_free_memory(settings)
    pair.engines.pause()
    asleep = read_free_memory(settings)
    pair.engines.loop.submit(pair.engine.wake("weights")).result(120)
    with_weights = read_free_memory(settings)
    pair.sync()
    after = [list(response.token_ids) for response in pair.generate(prompts, seeds)]
    yield Figure("the same tokens after sleep and wake", str(after == before), passed=after == before)
    if settings.rehearse:
        return
    whole = torch.cuda.mem_get_info()[1] / GIB
    freed = asleep - awake
    yield Figure("memory that a sleeping engine returns", freed, "GiB", passed=freed > 0.3 * whole, note="of 40 %")
    yield Figure("memory that the weights take at their wake", asleep - with_weights, "GiB")
    yield Figure("memory in use beside a sleeping engine", whole - asleep, "GiB")


def read_free_memory(settings: Settings) -> float:
    """Return the free memory of the GPU in GiB. A rehearsal has none: 0."""
    return 0.0 if settings.rehearse else torch.cuda.mem_get_info()[0] / GIB
