"""The preflight check `engine` with vLLM, for real: it loads a tiny model, and an unknown architecture is named."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import rlt_core
from rlt_pod.preflight.expected import Engine
from rlt_pod.preflight.trial.engine import ask_engine, check_answer

FOLDER = str(Path(rlt_core.__file__).parents[1])
OPTIONS = {"dtype": "float32", "max_model_len": 64, "enforce_eager": True, "trust_remote_code": False}


@pytest.fixture(autouse=True)
def small_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    """A small KV cache, and threads that need no set of cores."""
    monkeypatch.setenv("VLLM_CPU_KVCACHE_SPACE", "1")
    monkeypatch.setenv("VLLM_CPU_OMP_THREADS_BIND", "nobind")


@pytest.mark.slow
@pytest.mark.long
def test_vllm_loads_the_model_and_generates_a_line(tiny_model: str) -> None:
    engine = Engine("vllm", tiny_model, 1, OPTIONS)
    answer = ask_engine(engine, "pod-a", FOLDER)
    result = check_answer(engine, answer)
    assert (result.result, answer.tokens > 0) == ("passed", True), result.message


@pytest.mark.slow
@pytest.mark.long
def test_an_architecture_that_vllm_does_not_have_is_named(tiny_model: str, tmp_path: Path) -> None:
    config = json.loads(Path(tiny_model, "config.json").read_text())
    for file in Path(tiny_model).iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    (tmp_path / "config.json").write_text(json.dumps({**config, "architectures": ["NowhereForCausalLM"]}))
    engine = Engine("vllm", str(tmp_path), 1, OPTIONS)
    result = check_answer(engine, ask_engine(engine, "pod-a", FOLDER))
    assert result.result == "failed"
    assert "NowhereForCausalLM" in result.message
