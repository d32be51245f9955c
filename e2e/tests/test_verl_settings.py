"""verl's own config composes the settings of jobs with framework verl, in the versions 0.5.0 and 0.9.1."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from verl_jobs import ONLY_0_9, RUN, TABLE, resolve

from rlt_api.frameworks.verl.overrides import format_override
from rlt_api.frameworks.verl.settings import PROGRAM, build_arguments, list_settings
from rlt_api.validation.validate import validate_job
from separate_environment import install

SCRIPT = Path(__file__).parents[2] / "tools/compose_verl.py"
GUIDE = Path(__file__).parents[2] / "docs/frameworks/verl.md"
ENVIRONMENTS = {"0.5": "verl-config-0-5", "0.9": "verl-config"}
TEXTS = [
    "it's",
    "\\",
    "a\\'b\\\\",
    "${x}",
    "\\${x}",
    "{{ a }}\n'{% b %}'",
    "a: [b, {c}]",
    "1_000",
    "nan",
    "~/x",
    "#",
    "",
    " ",
]
"""Texts with a meaning in the grammars of Hydra or OmegaConf."""


def compose(version: str, lists: list[list[str]], config: str = "ppo_trainer") -> list[dict[str, Any]]:
    """Compose each list of overrides with a config of this verl version."""
    python = install(ENVIRONMENTS[version], "--no-deps")
    done = subprocess.run(
        [python, "-W", "ignore", SCRIPT, config], input=json.dumps(lists), check=True, capture_output=True, text=True
    )
    composed: list[dict[str, Any]] = json.loads(done.stdout)
    return composed


@pytest.mark.slow
@pytest.mark.parametrize("version", ["0.5", "0.9"])
def test_verl_composes_the_settings_of_each_job(version: str) -> None:
    """Each setting has its value in the composed config, so that verl neither rejects nor changes it."""
    specs = [
        resolve(changes, version) for changes in [*TABLE.values(), *(ONLY_0_9.values() if version == "0.9" else [])]
    ]
    assert len(specs) >= 40
    composed = compose(version, [build_arguments(spec, RUN)[len(PROGRAM) :] for spec in specs])
    for spec, values in zip(specs, composed, strict=True):
        settings = {key.lstrip("+"): value for key, value in list_settings(spec, RUN).items()}
        assert {key: values.get(key, values.get("error")) for key in settings} == settings


@pytest.mark.slow
def test_the_sft_job_of_the_guide_composes() -> None:
    (block,) = re.findall(r"```yaml\n(.*?)```", GUIDE.read_text(), re.DOTALL)
    job = yaml.safe_load(block)
    assert validate_job(job["metadata"]["name"], job["spec"]).findings == ()
    python, _, module, *overrides = job["spec"]["framework"]["command"]
    assert (python, module) == ("python3", "verl.trainer.sft_trainer_ray")
    (values,) = compose("0.9", [overrides], "sft_trainer_engine")
    assert values["trainer.nnodes"] * values["trainer.n_gpus_per_node"] == 16, values


@pytest.mark.slow
def test_hydra_reads_any_text() -> None:
    lists = [
        [format_override("++trainer.x", text), format_override("++trainer.y", [text, {"a": text}])] for text in TEXTS
    ]
    assert compose("0.9", lists) == [{"trainer.x": text, "trainer.y": [text, {"a": text}]} for text in TEXTS]


@pytest.mark.slow
def test_unknown_setting_is_an_error() -> None:
    assert "trainer.nnode" in compose("0.9", [["trainer.nnode=2"]])[0]["error"]
