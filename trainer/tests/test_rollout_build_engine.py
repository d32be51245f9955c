"""The tokens that end a response."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from transformers import dynamic_module_utils

from rlt_trainer.rollout.build_engine import load_stop_token_ids

CUSTOM_CODE = """
from transformers import Qwen3Config

class CustomConfig(Qwen3Config):
    model_type = "custom"
"""


@pytest.mark.parametrize(
    ("generation", "expected"),
    [
        ({"eos_token_id": 7}, (5, 7)),
        ({"eos_token_id": [9, 7, 5]}, (5, 7, 9)),
        ({}, (5,)),
        (None, (5, 8)),  # without the file, the model's config is used
    ],
    ids=["one", "several", "none", "no file"],
)
def test_stop_tokens_come_from_tokenizer_and_model(
    tmp_path: Path, generation: dict[str, object] | None, expected: tuple[int, ...]
) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "qwen3", "eos_token_id": 8}))
    if generation is not None:
        (tmp_path / "generation_config.json").write_text(json.dumps(generation))
    assert load_stop_token_ids(str(tmp_path), 5, trust_remote_code=False) == expected


def test_a_config_with_custom_code_is_loaded_only_if_trusted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dynamic_module_utils, "HF_MODULES_CACHE", str(tmp_path / "modules"))
    config = {"model_type": "custom", "auto_map": {"AutoConfig": "custom.CustomConfig"}, "eos_token_id": 8}
    (tmp_path / "config.json").write_text(json.dumps(config))
    (tmp_path / "custom.py").write_text(CUSTOM_CODE)
    assert load_stop_token_ids(str(tmp_path), 5, trust_remote_code=True) == (5, 8)
    with pytest.raises(ValueError, match=r"custom code.*model\.trustRemoteCode"):
        load_stop_token_ids(str(tmp_path), 5, trust_remote_code=False)
