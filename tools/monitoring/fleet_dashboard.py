"""The dashboard Fleet: jobs, accelerators, starts and ends."""

from __future__ import annotations

from monitoring.dashboard_queries import ANNOTATIONS, NAME, RUNNING, VARIABLES, query_increase, query_quantiles
from monitoring.grafana import Dashboard, Panel, Query, Row

FLEET = Dashboard(
    uid="rlt-fleet",
    title="rlt / Fleet",
    variables=VARIABLES,
    annotations=ANNOTATIONS[1:],
    rows=(
        Row(
            "Jobs",
            (
                Panel(
                    title="Jobs by phase",
                    description="All jobs that exist.",
                    queries=(Query("sum by (phase) (rlt_operator_jobs)", "{{phase}}"),),
                    stacked=True,
                    minimum=0,
                ),
                Panel(
                    title="Jobs by reason",
                    description="Jobs that have not ended, by the reason for their phase.",
                    queries=(
                        Query(
                            'sum by (phase, reason) (rlt_operator_jobs{phase!~"Succeeded|Failed"})',
                            "{{phase}} {{reason}}",
                        ),
                    ),
                    stacked=True,
                    minimum=0,
                ),
                Panel(
                    title="Findings",
                    description="Jobs whose status has the finding.",
                    queries=(Query("sum by (code) (rlt_operator_findings)", "{{code}}"),),
                    minimum=0,
                    requires="a failure",
                ),
                Panel(
                    title="Current jobs",
                    description="Jobs that run, or ended in the last two minutes.",
                    queries=(
                        Query(f"max by (namespace, name, phase) (rlt_job_phase{NAME} == 1)", "in phase"),
                        Query(f"max by (namespace, name) (rlt_job_step{NAME})", "step"),
                        Query(f"max by (namespace, name) (rlt_job_total_steps{NAME})", "steps"),
                        Query(f"max by (namespace, name) (rlt_job_reward{NAME})", "reward"),
                        Query(f"max by (namespace, name) (rlt_job_gpus{NAME})", "accelerators"),
                    ),
                    type="table",
                    width=24,
                ),
            ),
        ),
        Row(
            "Accelerators",
            (
                Panel(
                    title="Accelerators of running jobs",
                    description="Accelerators that running jobs request, by namespace.",
                    queries=(
                        Query(
                            "sum by (namespace) (max by (namespace, name) (rlt_job_gpus"
                            f'{{namespace=~"$namespace"}}) * {RUNNING})',
                            "{{namespace}}",
                        ),
                    ),
                    stacked=True,
                    minimum=0,
                    width=12,
                ),
                Panel(
                    title="Accelerator hours",
                    description="Accelerators of running jobs times hours, in the range of the dashboard.",
                    queries=(
                        Query(
                            "sum by (namespace) (sum_over_time((max by (namespace, name) (rlt_job_gpus"
                            f'{{namespace=~"$namespace"}}) * {RUNNING})[$__range:1m])) / 60',
                            "{{namespace}}",
                        ),
                    ),
                    type="stat",
                    width=12,
                ),
            ),
        ),
        Row(
            "Start",
            (
                Panel(
                    title="Time to the start",
                    description="Time from the creation of a job to the start of its training: queue, pods, preflight.",
                    queries=query_quantiles("rlt_operator_job_start_delay_seconds"),
                    unit="s",
                ),
                Panel(
                    title="Time to the first step",
                    description="Time from the creation of a job to its first completed step.",
                    queries=query_quantiles("rlt_operator_job_first_step_seconds"),
                    unit="s",
                ),
                Panel(
                    title="Preflight",
                    description="Duration of each stage of the preflight checks.",
                    queries=query_quantiles("rlt_operator_preflight_duration_seconds", "stage"),
                    unit="s",
                    requires="preflight checks",
                ),
            ),
        ),
        Row(
            "Ends",
            (
                Panel(
                    title="Ends of jobs",
                    description="Jobs that ended, by phase and reason.",
                    queries=(query_increase("rlt_operator_jobs_ended_total", "phase", "reason"),),
                    width=12,
                    minimum=0,
                ),
                Panel(
                    title="Ends of attempts",
                    description="Attempts that failed or were disrupted, by reason.",
                    queries=(query_increase("rlt_operator_attempts_ended_total", "reason"),),
                    width=12,
                    minimum=0,
                    requires="a failed or disrupted attempt",
                ),
            ),
        ),
    ),
)
