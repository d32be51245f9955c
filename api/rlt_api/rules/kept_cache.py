"""The KV cache of responses in progress, kept over a weight sync."""

from __future__ import annotations

from collections.abc import Iterator

from rlt_api.findings.finding import Edit, Finding
from rlt_api.findings.kinds import conflict, needs
from rlt_api.spec.job_spec import RLTrainingJobSpec

CACHE = "spec.rollout.staleness.kvCache"
FREE = "spec.rollout.freeCacheEngine"
RULE = "kept-cache"


def validate_kept_cache(spec: RLTrainingJobSpec) -> Iterator[Finding]:
    """kvCache keep needs vLLM, a cache that is not released during the training, and prompts without images: vLLM's
    cache of image embeddings has no version."""
    rollout = spec.rollout
    if rollout.staleness is None or rollout.staleness.kv_cache != "keep":
        return
    if rollout.engine != "vllm":
        yield needs(CACHE, "keep", "spec.rollout.engine", "vllm", rule=RULE)
    if rollout.mode == "colocated" and rollout.free_cache_engine:
        message = "requires rollout.freeCacheEngine: false, because vLLM releases its cache during the training"
        fix = "use false, or remove kvCache"
        edits: tuple[Edit, ...] = ({FREE: False}, {CACHE: None})
        yield Finding(CACHE, "keep", message, fix, rule=RULE, involved=(FREE, "spec.rollout.mode"), edits=edits)
    if spec.data is not None and spec.data.image_key is not None:
        message = "cannot be combined with data.imageKey: embeddings of images would be from earlier weights"
        yield conflict(CACHE, "keep", "spec.data.imageKey", rule=RULE, message=message)


RULES = (validate_kept_cache,)
