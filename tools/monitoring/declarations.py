"""The metrics that operator and driver declare, and Ray's, vLLM's and DCGM's that alerts and dashboards query."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from prometheus_client import Counter, Gauge, Histogram

from rlt_operator import metrics
from rlt_pod.report import prometheus_names as names

SUFFIXES = {"counter": ("",), "gauge": ("",), "histogram": ("_bucket", "_sum", "_count")}
OF_A_JOB = ("namespace", "job")
"""Labels of all a driver's series."""

EXTERNAL = {
    "DCGM_FI_DEV_GPU_UTIL": "NVIDIA's dcgm-exporter",
    "DCGM_FI_DEV_FB_USED": "NVIDIA's dcgm-exporter",
    "DCGM_FI_DEV_POWER_USAGE": "NVIDIA's dcgm-exporter",
    "ray_node_cpu_utilization": "Ray",
    "ray_node_gpus_utilization": "Ray",
    "ray_node_mem_used": "Ray",
    "ray_node_network_receive_speed": "Ray",
    "ray_node_network_send_speed": "Ray",
    "vllm:kv_cache_usage_perc": "vLLM",
    "vllm:num_preemptions_total": "vLLM",
}
"""Metrics of other exporters -> exporter. Ray's metrics are METRICS_GAUGES of its reporter_agent.py, with a prefix
(https://github.com/NVIDIA/dcgm-exporter/blob/main/etc/default-counters.csv). vLLM's metrics are in its
v1/metrics/loggers.py."""


@dataclass(frozen=True)
class Metric:
    """A declared metric."""

    name: str
    type: str
    labels: tuple[str, ...]
    help: str
    keys: tuple[str, ...] = ()
    """verl's keys of its value."""

    @property
    def unit(self) -> str:
        """The unit, from the name as Prometheus recommends, or from the description."""
        if self.name.endswith("_timestamp_seconds"):
            return "Unix time in seconds"
        if "tokens_per_second" in self.name:
            return "tokens per second"
        if self.name.endswith("_seconds"):
            return "seconds"
        if self.name.endswith("_bytes"):
            return "bytes"
        if "token" in self.help.lower() and ("tokens" in self.name or "_length_m" in self.name):
            return "tokens"
        if "in nats" in self.help:
            return "nats"
        shares = ("_fraction", "_share", "_utilization", "_ratio", "_lower", "_baselines")
        return "share, 0 to 1" if self.name.endswith(shares) else "1"

    def list_series(self) -> list[str]:
        """The names of its series."""
        return [self.name + suffix for suffix in SUFFIXES[self.type]]


def list_driver_metrics() -> Iterator[Metric]:
    """List the metrics of a driver, in the order of their declaration."""
    gauges: dict[str, list[names.Gauge]] = {}
    for gauge in (*names.GAUGES, names.OTHER):
        gauges.setdefault(gauge.name, []).append(gauge)
    for name, same in gauges.items():
        labels = (*OF_A_JOB, same[0].rest_label) if same[0].rest_label else OF_A_JOB
        yield Metric(name, "gauge", labels, same[0].help, tuple(gauge.verl for gauge in same))
    for name, text in names.REPORTED.items():
        label = names.REPORTED_LABELS.get(name)
        yield Metric(name, "gauge", (*OF_A_JOB, label) if label else OF_A_JOB, text)
    for name, text in names.COUNTERS.items():
        yield Metric(name, "counter", OF_A_JOB, text)


def list_operator_metrics() -> Iterator[Metric]:
    """List the metrics of the operator, in the order of their declaration, then each job's."""
    for value in vars(metrics).values():
        if isinstance(value, Counter | Gauge | Histogram):
            (family,) = value.describe()
            name = f"{family.name}_total" if family.type == "counter" else family.name
            yield Metric(name, family.type, tuple(value._labelnames), family.documentation)
    for family in metrics.JOBS.collect():
        yield Metric(family.name, family.type, tuple(family._labelnames), family.documentation)


def list_served_names() -> frozenset[str]:
    """The names of all series that operator, drivers, Ray and DCGM serve, as far as they are known."""
    declared = [*list_operator_metrics(), *list_driver_metrics()]
    return frozenset(name for metric in declared for name in metric.list_series()) | EXTERNAL.keys()
