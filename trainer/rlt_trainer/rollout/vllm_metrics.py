"""vLLM's own metrics of the engine in this process."""

from __future__ import annotations

from collections.abc import Iterable

from prometheus_client import REGISTRY
from prometheus_client.core import Metric

PREFIX = "vllm:"
CONSTANT_LABELS = frozenset({"model_name", "engine"})
"""Labels with one value in the process. The model's name is a temporary folder."""


def read_vllm_metrics() -> list[Metric]:
    """Read the metrics that vLLM keeps in the default registry of prometheus_client."""
    return reduce_families(REGISTRY.collect())


def reduce_families(families: Iterable[Metric]) -> list[Metric]:
    """Select vLLM's families, without constant labels and the buckets of histograms.

    An engine has about 20 histograms with up to 30 buckets each. Their sums and counts show the means.
    """
    reduced = []
    for family in families:
        if not family.name.startswith(PREFIX):
            continue
        kind = "summary" if family.type == "histogram" else family.type
        result = Metric(family.name, family.documentation, kind)
        for sample in family.samples:
            if not sample.name.endswith(("_bucket", "_created")):
                labels = {name: value for name, value in sample.labels.items() if name not in CONSTANT_LABELS}
                result.add_sample(sample.name, labels, sample.value)
        reduced.append(result)
    return reduced
