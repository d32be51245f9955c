"""Warnings about variables in spec.cluster.env that have no effect or slow down the job, and about the debugger."""

from __future__ import annotations

import re
from collections.abc import Iterator

from rlt_api.findings.finding import printable
from rlt_api.rules.environment import ENV
from rlt_api.spec.job_spec import RLTrainingJobSpec

REFERENCE = re.compile(r"\$([A-Z_][A-Z0-9_]{0,99})|\$\{([A-Z_][A-Z0-9_]{0,99})[^}$]{0,99}\}")
"""$NAME or ${NAME}."""
MIN_RAY_WITH_DEBUGGER = (2, 39, 0)
"""The first Ray whose default is the distributed debugger (Ray's docs, "Using the Ray Debugger")."""


def warn_environment(spec: RLTrainingJobSpec) -> Iterator[str]:
    """Yield the warnings about spec.cluster.env."""
    for index, variable in enumerate(spec.cluster.env):
        field = f"{ENV}[{index}]"
        if variable.name == "NCCL_DEBUG" and (variable.value or "").upper() == "TRACE":
            yield (
                f"{field}.value: {variable.value}: prints every call of NCCL in every process, which slows down the "
                "training; use INFO, with NCCL_DEBUG_SUBSYS for the parts of interest"
            )


def warn_slow_transport(spec: RLTrainingJobSpec) -> Iterator[str]:
    """Both ways of NCCL between the GPUs of a node that are switched off."""
    indexes = {variable.name: index for index, variable in enumerate(spec.cluster.env)}
    values = {variable.name: (variable.value or "").upper() for variable in spec.cluster.env}
    without_p2p = values.get("NCCL_P2P_DISABLE") == "1" or values.get("NCCL_P2P_LEVEL") in ("LOC", "0")
    without_shm = values.get("NCCL_SHM_DISABLE") == "1"
    has_several = any(group.accelerator and group.accelerator.count > 1 for group in spec.cluster.workers)
    if without_p2p and without_shm and has_several:
        name = "NCCL_P2P_DISABLE" if "NCCL_P2P_DISABLE" in values else "NCCL_P2P_LEVEL"
        yield (
            f"{ENV}[{indexes['NCCL_SHM_DISABLE']}].name: NCCL_SHM_DISABLE: with {name}, P2P and SHM are both "
            "off, so that NCCL sends data between the GPUs of a pod over the network, or fails; remove one of them"
        )


def warn_unexpanded_values(spec: RLTrainingJobSpec) -> Iterator[str]:
    """References of a shell in values, of which Kubernetes replaces $(NAME) alone."""
    for index, variable in enumerate(spec.cluster.env):
        if found := REFERENCE.search(variable.value or ""):
            name = found[1] or found[2]
            yield (
                f"{ENV}[{index}].value: {printable(variable.value or '')}: {found[0]} is not replaced; use $({name}) "
                "for a variable in the same list, or the value"
            )


def warn_cache_folders(spec: RLTrainingJobSpec) -> Iterator[str]:
    """Caches of models in folders that the user of the pods may not write, and the variable of earlier versions."""
    for index, variable in enumerate(spec.cluster.env):
        value = variable.value or ""
        is_old = variable.name in ("TRANSFORMERS_CACHE", "PYTORCH_TRANSFORMERS_CACHE", "PYTORCH_PRETRAINED_BERT_CACHE")
        is_cache = is_old or variable.name in ("HF_HOME", "HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "HF_DATASETS_CACHE")
        if is_cache and (f"{value}/".startswith("/root/") or value.startswith("~")):
            yield (
                f"{ENV}[{index}].value: {value}: the pods run as user {spec.security.run_as_user}, who may not be able "
                "to write there, and it ends with the pod; use spec.storage.hfHome"
            )
        elif is_old:
            yield (
                f"{ENV}[{index}].name: {variable.name}: transformers 5 does not read it; use spec.storage.hfHome, "
                "which sets HF_HOME"
            )


def warn_old_debugger(spec: RLTrainingJobSpec) -> Iterator[str]:
    """Ray's distributed debugger with an early Ray."""
    version = spec.cluster.ray_version
    if spec.observability.debugger != "ray" or version is None:
        return
    if tuple(map(int, version.split("."))) < MIN_RAY_WITH_DEBUGGER:
        first = ".".join(map(str, MIN_RAY_WITH_DEBUGGER))
        yield (
            f"spec.observability.debugger: ray: spec.cluster.rayVersion is {version}, and the distributed debugger is "
            f"Ray's default from {first} on; use legacy, or an image with a later Ray"
        )
