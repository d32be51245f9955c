"""Which tokens end a response."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from transformers import dynamic_module_utils

from rlt_trainer.rollout.start_engine import load_stop_token_ids

OWN_CODE = """
from transformers import Qwen3Config

class OwnConfig(Qwen3Config):
    model_type = "own"
"""


@pytest.mark.parametrize(
    ("generation", "ends"),
    [
        ({"eos_token_id": 7}, (5, 7)),
        ({"eos_token_id": [9, 7, 5]}, (5, 7, 9)),
        ({}, (5,)),
        (None, (5, 8)),  # there is no such file: the model's config says it
    ],
    ids=["one", "several", "none", "no file"],
)
def test_a_response_ends_with_the_tokenizers_token_and_the_models_own(
    tmp_path: Path, generation: dict[str, object] | None, ends: tuple[int, ...]
) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "qwen3", "eos_token_id": 8}))
    if generation is not None:
        (tmp_path / "generation_config.json").write_text(json.dumps(generation))
    assert load_stop_token_ids(str(tmp_path), 5, trust_remote_code=False) == ends


def test_a_config_of_the_models_own_code_is_read_where_it_is_trusted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dynamic_module_utils, "HF_MODULES_CACHE", str(tmp_path / "modules"))
    config = {"model_type": "own", "auto_map": {"AutoConfig": "own.OwnConfig"}, "eos_token_id": 8}
    (tmp_path / "config.json").write_text(json.dumps(config))
    (tmp_path / "own.py").write_text(OWN_CODE)
    assert load_stop_token_ids(str(tmp_path), 5, trust_remote_code=True) == (5, 8)
    with pytest.raises(ValueError, match=r"custom code.*model\.trustRemoteCode"):
        load_stop_token_ids(str(tmp_path), 5, trust_remote_code=False)
