"""Queries, variables and annotations that the dashboards share."""

from __future__ import annotations

from monitoring.grafana import Annotation, Query, Variable

JOB = '{namespace=~"$namespace", job=~"$job"}'
NAME = '{namespace=~"$namespace", name=~"$job"}'
OF_JOB = "{{namespace}}/{{name}}"
RUNNING = 'on (namespace, name) max by (namespace, name) (rlt_job_phase{phase="Running"})'

VARIABLES = (
    Variable("namespace", "Namespace", "label_values(rlt_job_info, namespace)"),
    Variable("job", "Job", 'label_values(rlt_job_info{namespace=~"$namespace"}, name)'),
)
ANNOTATIONS = (
    Annotation(
        name="Checkpoints",
        expression=f"rlt_trainer_latest_checkpoint_timestamp_seconds{JOB} * 1000 "
        "and on (namespace, job) rlt_trainer_latest_checkpoint_step",
        text="{{namespace}}/{{job}}",
        color="blue",
        at_value=True,
    ),
    Annotation(
        name="Restarts",
        expression=f"delta(rlt_job_restarts{NAME}[2m]) > 0 or delta(rlt_job_disruptions{NAME}[2m]) > 0",
        text=OF_JOB,
        color="red",
    ),
    Annotation(name="Findings", expression=f"rlt_job_finding{NAME}", text=OF_JOB + ": {{code}}", color="orange"),
)


def query_driver(metric: str, legend: str = "{{namespace}}/{{job}}") -> Query:
    """A metric of the drivers."""
    return Query(f"{metric}{JOB}", legend)


def query_statistic(name: str) -> Query:
    """A metric of the drivers whose name ends with a statistic, which is the legend."""
    return query_driver(f"rlt_trainer_{name}", f"{{{{job}}}} {name.rpartition('_')[2]}")


def query_pods(metric: str) -> Query:
    """A metric of dcgm-exporter for the pods of the jobs; Prometheus may have renamed its labels."""
    renamed = f'label_replace(label_replace({metric}, "pod", "$1", "exported_pod", "(.+)"), '
    renamed += '"namespace", "$1", "exported_namespace", "(.+)")'
    pods = f"max by (namespace, name, pod) (rlt_job_pod_info{NAME})"
    return Query(f"{renamed} * on (namespace, pod) group_left (name) {pods}", "{{pod}} {{gpu}}")


def query_quantiles(metric: str, labels: str = "") -> tuple[Query, ...]:
    """The median and the 95th percentile of a histogram, by a label."""
    by, legend = (f"le, {labels}", f" {{{{{labels}}}}}") if labels else ("le", "")
    return tuple(
        Query(
            f"histogram_quantile({share}, sum by ({by}) (rate({metric}_bucket[$__rate_interval])))",
            f"p{100 * share:.0f}{legend}",
        )
        for share in (0.5, 0.95)
    )


def query_rate(metric: str, *labels: str) -> Query:
    """The rate of a counter per second, by labels."""
    by = f" by ({', '.join(labels)})" if labels else ""
    return Query(
        f"sum{by} (rate({metric}[$__rate_interval]))", " ".join(f"{{{{{label}}}}}" for label in labels) or "all"
    )


def query_increase(metric: str, *labels: str) -> Query:
    """The increase of a counter between two points, by labels."""
    by = f" by ({', '.join(labels)})"
    legend = " ".join(f"{{{{{label}}}}}" for label in labels)
    return Query(f"sum{by} (increase({metric}[$__rate_interval]))", legend)
