"""The command lines of `rlt serve`: vLLM's own parser reads them, and a server with one has the trainer's values."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import urllib.request
from argparse import Namespace
from pathlib import Path
from typing import Any
from urllib.error import URLError

import pytest
from job_specs import BUILTIN, gpus, merged

from rlt_api.spec.job_spec import RLTrainingJobSpec
from rlt_core.children.model_server import ServedModel, build_server_command
from rlt_e2e.ports import free_port

pytestmark = pytest.mark.slow

START_TIMEOUT_S = 300.0
BASE = {"path": "Qwen/Qwen2.5-1.5B-Instruct", "fromSeed": None, "dtype": "bfloat16"}


def parse(model: ServedModel, changes: dict[str, Any]) -> Namespace:
    """Parse the arguments after `vllm serve`."""
    from vllm.entrypoints.launchers.cli_args import make_arg_parser, validate_parsed_serve_args
    from vllm.utils.argparse_utils import FlexibleArgumentParser

    spec = RLTrainingJobSpec.model_validate(merged(BUILTIN, {**gpus(8), "model": BASE, **changes}))
    program, serve, *arguments = build_server_command("math", spec, model)
    assert (program, serve) == ("vllm", "serve")
    create_parser: Any = FlexibleArgumentParser  # vLLM does not annotate it
    found: Namespace = make_arg_parser(create_parser()).parse_args(arguments)
    validate_parsed_serve_args(found)
    return found


def test_the_arguments_of_a_model() -> None:
    model = ServedModel("lab/math", "c0ffee")
    found = parse(model, {"rollout.tensorParallelSize": 4, "model.trustRemoteCode": True})
    assert (found.model_tag, found.revision, found.served_model_name) == ("lab/math", "c0ffee", ["math"])
    assert (found.tensor_parallel_size, found.dtype, found.max_model_len) == (4, "bfloat16", 1024)
    assert found.trust_remote_code is True
    assert found.port == 8000


@pytest.mark.parametrize(("rank", "maximum"), [(1, 1), (12, 16), (256, 256), (300, 320)])
def test_the_arguments_of_an_adapter(rank: int, maximum: int) -> None:
    model = ServedModel("Qwen/Qwen2.5-1.5B-Instruct", adapter="/mnt/rlt/runs/a/export/adapter")
    found = parse(model, {"model": {**BASE, "lora": {"rank": rank}}})
    (module,) = found.lora_modules
    assert (module.name, module.path) == ("math", "/mnt/rlt/runs/a/export/adapter")
    assert (found.enable_lora, found.max_lora_rank, found.served_model_name) == (True, maximum, ["math-base"])


def test_a_server_has_the_log_probabilities_of_the_trainer(tiny_model: str, tmp_path: Path) -> None:
    """The command line is the one of `rlt serve`, with the environment of its container."""
    import torch
    from transformers import AutoModelForCausalLM

    spec = RLTrainingJobSpec.model_validate(merged(BUILTIN, {"data.maxPromptLength": 24, "data.maxResponseLength": 8}))
    port = free_port()
    python, *arguments = build_server_command("tiny", spec, ServedModel(tiny_model))
    assert python == "python3"
    arguments[arguments.index("--port") + 1] = str(port)
    variables = {"VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_CPU_OMP_THREADS_BIND": "nobind", "HOME": str(tmp_path)}
    log = tmp_path / "server.log"
    with log.open("w") as out:
        server = subprocess.Popen(
            [sys.executable, *arguments],
            stdout=out,
            stderr=subprocess.STDOUT,
            env={**os.environ, **variables, "no_proxy": "127.0.0.1"},
        )
    prompt = [50, 51, 52]
    request = {"model": "tiny", "prompt": prompt, "max_tokens": 5, "temperature": 0, "logprobs": 0}
    request |= {"return_token_ids": True, "ignore_eos": True}
    try:
        await_health(server, f"http://127.0.0.1:{port}", log)
        (choice,) = post(f"http://127.0.0.1:{port}/v1/completions", request)["choices"]
    finally:
        server.terminate()
        server.wait(timeout=60)
    tokens = choice["token_ids"]
    model = AutoModelForCausalLM.from_pretrained(tiny_model, dtype=torch.float32)
    with torch.no_grad():
        logits = model(torch.tensor([prompt + tokens])).logits[0, len(prompt) - 1 : -1]
    expected = logits.log_softmax(-1).gather(-1, torch.tensor(tokens)[:, None])[:, 0]
    torch.testing.assert_close(torch.tensor(choice["logprobs"]["token_logprobs"]), expected, rtol=0, atol=1e-4)


def await_health(server: subprocess.Popen[bytes], url: str, log: Path) -> None:
    deadline = time.monotonic() + START_TIMEOUT_S
    while True:
        try:
            urllib.request.urlopen(f"{url}/health", timeout=10).close()
        except (URLError, OSError):
            assert server.poll() is None, log.read_text()[-5000:]
            assert time.monotonic() < deadline, log.read_text()[-5000:]
            time.sleep(0.2)
        else:
            return


def post(url: str, content: object) -> Any:
    headers = {"Content-Type": "application/json"}
    request = urllib.request.Request(url, json.dumps(content).encode(), headers)
    with urllib.request.urlopen(request, timeout=120) as answer:
        return json.loads(answer.read())
