"""The dashboard Fleet: jobs, accelerators, starts and ends."""

from __future__ import annotations

from monitoring.dashboard_queries import ANNOTATIONS, NAME, RUNNING, VARIABLES, query_increase, query_quantiles
from monitoring.grafana import Dashboard, Panel, Query, Row

RUNNING_GPUS = f'max by (namespace, name) (rlt_job_gpus{{namespace=~"$namespace"}}) * {RUNNING}'
PARTS = 'max by (namespace, name, role, phase) (rlt_job_accelerator_seconds{namespace=~"$namespace"})'
HELD = f"sum by (namespace, name) ({PARTS})"

# fmt: off
FLEET = Dashboard(
    uid="rlt-fleet",
    title="rlt / Fleet",
    variables=VARIABLES,
    annotations=ANNOTATIONS[1:],
    rows=(
        Row(
            "Jobs",
            (
                Panel("Jobs by phase", "All jobs that exist.",
                      (Query("sum by (phase) (rlt_operator_jobs)", "{{phase}}"),), stacked=True, minimum=0),
                Panel("Jobs by reason", "Jobs that have not ended, by the reason for their phase.",
                      (Query('sum by (phase, reason) (rlt_operator_jobs{phase!~"Succeeded|Failed"})',
                             "{{phase}} {{reason}}"),),
                      stacked=True, minimum=0),
                Panel("Findings", "Jobs whose status has the finding.",
                      (Query("sum by (code) (rlt_operator_findings)", "{{code}}"),), minimum=0, requires="a failure"),
                Panel("Current jobs", "Jobs that run, or ended in the last two minutes.",
                      (Query(f"max by (namespace, name, phase) (rlt_job_phase{NAME} == 1)", "in phase"),
                       Query(f"max by (namespace, name) (rlt_job_step{NAME})", "step"),
                       Query(f"max by (namespace, name) (rlt_job_total_steps{NAME})", "steps"),
                       Query(f"max by (namespace, name) (rlt_job_reward{NAME})", "reward"),
                       Query(f"max by (namespace, name) (rlt_job_gpus{NAME})", "accelerators")),
                      type="table", width=24),
            ),
        ),
        Row(
            "Accelerators",
            (
                Panel("Accelerators of running jobs", "Accelerators that running jobs request, by namespace.",
                      (Query(f"sum by (namespace) ({RUNNING_GPUS})", "{{namespace}}"),),
                      stacked=True, minimum=0, width=12),
                Panel("Accelerator hours", "Accelerator hours that pods held in the range of the dashboard.",
                      (Query(f"sum by (namespace) (max_over_time(({HELD})[$__range:1m]) "
                             f"- min_over_time(({HELD})[$__range:1m])) / 3600", "{{namespace}}"),),
                      type="stat", width=4, requires="accelerators"),
                Panel("Use of accelerators", "Accelerator hours of the current jobs since their start, by phase.",
                      (Query(f"sum by (phase) ({PARTS}) / 3600", "{{phase}}"),),
                      stacked=True, minimum=0, width=8, requires="accelerators"),
            ),
        ),
        Row(
            "Start",
            (
                Panel("Time to the start",
                      "Time from the creation of a job to the start of its training: queue, pods, preflight.",
                      query_quantiles("rlt_operator_job_start_delay_seconds"), unit="s"),
                Panel("Time to the first step", "Time from the creation of a job to its first completed step.",
                      query_quantiles("rlt_operator_job_first_step_seconds"), unit="s"),
                Panel("Preflight", "Duration of each preflight stage.",
                      query_quantiles("rlt_operator_preflight_duration_seconds", "stage"), unit="s",
                      requires="preflight checks"),
            ),
        ),
        Row(
            "Ends",
            (
                Panel("Ends of jobs", "Jobs that ended, by phase and reason.",
                      (query_increase("rlt_operator_jobs_ended_total", "phase", "reason"),), width=12, minimum=0),
                Panel("Ends of attempts", "Attempts that failed or were disrupted, by reason.",
                      (query_increase("rlt_operator_attempts_ended_total", "reason"),), width=12, minimum=0,
                      requires="a failed or disrupted attempt"),
            ),
        ),
    ),
)
