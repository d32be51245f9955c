"""What the counters of vLLM have added in a step, and the metrics of all engines from them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from prometheus_client.core import Metric

QUERIES = "vllm:prefix_cache_queries_total"
"""Tokens of prompts that were looked up in the prefix cache (vllm/v1/metrics/loggers.py)."""
HITS = "vllm:prefix_cache_hits_total"
"""Those that it had."""
PREEMPTIONS = "vllm:num_preemptions_total"
"""Requests whose KV cache was dropped, and is computed again."""
DRAFTS = "vllm:spec_decode_num_drafts_total"
"""Steps of a response with proposed tokens (vllm/v1/spec_decode/metrics.py)."""
DRAFT_TOKENS = "vllm:spec_decode_num_draft_tokens_total"
"""Proposed tokens."""
ACCEPTED = "vllm:spec_decode_num_accepted_tokens_total"
"""Those that were accepted."""
NAMES = frozenset({QUERIES, HITS, PREEMPTIONS, DRAFTS, DRAFT_TOKENS, ACCEPTED})


class EngineCounters:
    """Reads the counters of one engine step by step."""

    def __init__(self) -> None:
        self._before: dict[str, float] = {}

    def take(self, families: Iterable[Metric]) -> dict[str, float]:
        """Return what each counter has added since the last call. Empty for an engine without these counters."""
        now = {sample.name: sample.value for family in families for sample in family.samples if sample.name in NAMES}
        added = {name: value - self._before.get(name, 0.0) for name, value in now.items()}
        self._before = now
        return added


def compute_counter_metrics(engines: Iterable[Mapping[str, float]]) -> dict[str, float]:
    """Compute metrics of a step from what the counters of each engine have added. Empty without counters."""
    steps = list(engines)
    total = {name: sum(added[name] for added in steps if name in added) for name in NAMES}
    if not any(steps):
        return {}
    metrics = {"rollout/preemptions": total[PREEMPTIONS]}
    if total[QUERIES]:
        metrics["rollout/prefix_cache_hit_rate"] = total[HITS] / total[QUERIES]
    if total[DRAFTS]:
        metrics["rollout/spec_accept_rate"] = total[ACCEPTED] / total[DRAFT_TOKENS]
        metrics["rollout/spec_accept_length"] = 1 + total[ACCEPTED] / total[DRAFTS]
    return metrics
