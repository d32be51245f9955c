"""The child process of the check `engine`: load the model in vLLM or SGLang and generate a line.

    python3 -c '…; main()' '{"name": "vllm", "model": "/models/q", "tensor_parallel_size": 1, "options": {}}'

The last line of the output is ANSWER_PREFIX and a JSON object with seconds, tokens and text. Errors are the engine's.
"""

from __future__ import annotations

import json
import sys
import time
from importlib import import_module
from typing import Any

ANSWER_PREFIX = "rlt-engine-answer "
PROMPT = "1 + 1 ="
MAX_TOKENS = 16


def main() -> None:
    """Run the program."""
    engine = json.loads(sys.argv[1])
    started = time.monotonic()
    generate = {"vllm": use_vllm, "sglang": use_sglang}[engine["name"]]
    text, tokens = generate(engine["model"], engine["tensor_parallel_size"], engine["options"])
    answer = {"seconds": time.monotonic() - started, "tokens": tokens, "text": text}
    print(f"\n{ANSWER_PREFIX}{json.dumps(answer)}", flush=True)


def use_vllm(model: str, tensor_parallel_size: int, options: dict[str, Any]) -> tuple[str, int]:
    """Generate with vLLM: https://docs.vllm.ai/en/stable/api/vllm/entrypoints/llm.html. Return text and tokens."""
    vllm: Any = import_module("vllm")
    # Ray is vLLM's default in a Ray cluster, and would need its own accelerators.
    backend = "uni" if tensor_parallel_size == 1 else "mp"
    engine = vllm.LLM(
        model=model,
        tensor_parallel_size=tensor_parallel_size,
        distributed_executor_backend=backend,
        disable_log_stats=True,
        **options,
    )
    (result,) = engine.generate([PROMPT], vllm.SamplingParams(max_tokens=MAX_TOKENS, temperature=0), use_tqdm=False)
    return str(result.outputs[0].text), len(result.outputs[0].token_ids)


def use_sglang(model: str, tensor_parallel_size: int, options: dict[str, Any]) -> tuple[str, int]:
    """Generate with SGLang: https://docs.sglang.ai/basic_usage/offline_engine_api.html. Return text and tokens."""
    sglang: Any = import_module("sglang")
    engine = sglang.Engine(model_path=model, tp_size=tensor_parallel_size, **options)
    try:
        answer = engine.generate(PROMPT, {"max_new_tokens": MAX_TOKENS, "temperature": 0})
    finally:
        engine.shutdown()
    return str(answer["text"]), int(answer["meta_info"]["completion_tokens"])
