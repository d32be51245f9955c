"""Warnings about variables of the vLLM in the trainer's images."""

from __future__ import annotations

from collections.abc import Iterator

from rlt_api.findings.spelling import find_nearest_word
from rlt_api.rules.environment import ENV, known_names
from rlt_api.spec.job_spec import RLTrainingJobSpec

REPLACED = {"VLLM_ATTENTION_BACKEND": "set spec.rollout.engineKwargs.attention_backend"}
"""Variables of earlier versions of vLLM -> what replaces them."""


def warn_vllm_variables(spec: RLTrainingJobSpec) -> Iterator[str]:
    """Yield the warnings about variables of vLLM in spec.cluster.env. The vLLM of other frameworks is unknown."""
    for index, variable in enumerate(spec.cluster.env):
        if variable.name.startswith("VLLM_"):
            yield from _warn_unknown_vllm(f"{ENV}[{index}].name", variable.name)


def _warn_unknown_vllm(field: str, name: str) -> Iterator[str]:
    """A variable that the vLLM of the trainer's images does not read (known_environment.txt)."""
    if name in known_names():
        return
    vllm = sorted(each for each in known_names() if each.startswith("VLLM_"))
    nearest = find_nearest_word(name, vllm, max_distance=len(name) // 5)
    fix = REPLACED.get(name) or (f"did you mean {nearest}?" if nearest else "remove it")
    yield f"{field}: {name}: vLLM 0.32.0 does not have this variable; {fix}"
