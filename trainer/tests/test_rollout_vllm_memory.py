"""vLLM without memory for its KV cache, for real: the failure is a known one, and its remedy starts the engine."""

from __future__ import annotations

import asyncio
import io
import json
import subprocess
import sys
from pathlib import Path

import pytest

from rlt_api.blocks.rollout import Rollout
from rlt_core.knowledge.diagnosis import diagnose_logs

SHAPE = {
    "num_hidden_layers": 4,
    "num_attention_heads": 8,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "max_position_embeddings": 131072,
}
"""A token has 16 KiB in the cache in bfloat16: 1 GiB, the default of rollout.kvCacheSpace, is 65,536 tokens."""


@pytest.mark.slow
@pytest.mark.long
def test_a_kv_cache_that_is_too_small_is_named_and_its_remedy_starts_the_engine(
    tiny_model: str, tmp_path: Path
) -> None:
    config = json.loads(Path(tiny_model, "config.json").read_text())
    for file in Path(tiny_model).glob("*token*"):
        (tmp_path / file.name).write_bytes(file.read_bytes())
    (tmp_path / "config.json").write_text(json.dumps({**config, **SHAPE, "layer_types": None}))

    def start(max_model_len: int) -> subprocess.CompletedProcess[bytes]:
        command = [sys.executable, __file__, str(tmp_path), str(max_model_len)]
        return subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)

    failed = start(131072)
    assert failed.returncode == 1
    best, *_ = diagnose_logs([io.BytesIO(failed.stdout)])
    assert best.code == "KvCacheTooSmall"
    assert "Lower spec.rollout.maxModelLen" in best.remedy
    assert start(1024).returncode == 0


def main(files: str, max_model_len: int) -> None:
    """Start and stop an engine."""
    from rlt_trainer.rollout.vllm_engine import VllmEngine

    rollout = Rollout(max_num_seqs=2, enforce_eager=True)
    engine = VllmEngine(files, dtype="bfloat16", rollout=rollout, max_model_len=max_model_len, seed=0)

    async def start() -> None:
        await engine.start()
        engine.close()

    asyncio.run(start())


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
