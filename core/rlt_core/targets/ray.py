"""A bash script with `ray start` for each node and `ray job submit`, also to a Ray cluster that jobs share."""

from __future__ import annotations

import json
import shlex

from rlt_core.children.pod_template import GCS_PORT
from rlt_core.names import DASHBOARD_PORT
from rlt_core.targets.launch import POD_USER, Launch, NodeGroup
from rlt_core.targets.shell import (
    build_exports,
    build_files,
    build_head_comment,
    build_programs,
    build_programs_file,
    build_requirements,
    build_token,
    format_start,
    join_command,
)


def build_ray_script(launch: Launch) -> str:
    """Build the script. Its first argument is head, a name of a worker group, or submit."""
    usage = [
        *list_usage(launch),
        "  RAY_ADDRESS=http://HEAD:8265 bash SCRIPT submit",
        "                                  to a Ray cluster that runs already, and that other jobs use as well",
    ]
    head = launch.groups[0]
    workers = "\n".join(_build_worker_case(group) for group in launch.groups)
    return "\n".join(
        [
            *build_head_comment(launch, "ray", usage),
            "",
            "start_node() {",
            *(f"  {line}" for line in _build_environment(launch)),
            '  ray start "$@"',
            "}",
            "",
            "case ${1:-} in",
            "head)",
            "  " + join_command(["start_node", *build_head_options(), *format_start(head.start)], indent="  "),
            "  ;;",
            workers,
            "submit)",
            *build_files(launch.files),
            *build_programs_file(launch),
            *_build_submission(launch),
            "  ;;",
            "*)",
            f'  echo "usage: bash $0 head | {" | ".join(list_workers(launch))} | submit" >&2',
            "  exit 2",
            "  ;;",
            "esac",
            *build_programs(launch),
        ]
    )


def list_usage(launch: Launch) -> list[str]:
    """Lines with the arguments of the script, for its comment."""
    return [
        f"  bash SCRIPT {'head':20}on the first node, which is one of {launch.groups[0].name}",
        *(f"  bash SCRIPT {line:20}on each of the others" for line in list_workers(launch)),
        f"  bash SCRIPT {'submit':20}on the first node",
    ]


def build_head_options() -> list[str]:
    """The options of the head that do not depend on the job."""
    return ["--head", f"--port={GCS_PORT}", "--dashboard-host=0.0.0.0", f"--dashboard-port={DASHBOARD_PORT}"]


def build_runtime_env(launch: Launch) -> str:
    """The variables of the job's processes as the runtime environment of its Ray job, in JSON."""
    variables = {name: value for name, value in launch.environment.items() if name not in POD_USER}
    return json.dumps({"env_vars": variables})


def list_workers(launch: Launch) -> list[str]:
    """The arguments of the other nodes: the name of each group that has any."""
    counts = {group.name: group.count - (group is launch.groups[0]) for group in launch.groups}
    return [f"worker-{name} HEAD" for name, count in counts.items() if count]


def _build_environment(launch: Launch) -> list[str]:
    return [*build_requirements(launch), *build_exports(launch, without=POD_USER), *build_token(launch)]


def _build_worker_case(group: NodeGroup) -> str:
    words = ["start_node", f'--address="${{2:?the address of the head}}:{GCS_PORT}"', *format_start(group.start)]
    return f"worker-{group.name})\n  {join_command(words, indent='  ')}\n  ;;"


def _build_submission(launch: Launch) -> list[str]:
    token = build_token(launch)
    words = [
        "ray job submit",
        f'--address="${{RAY_ADDRESS:-http://127.0.0.1:{DASHBOARD_PORT}}}"',
        f'--submission-id="{launch.name}-$(date +%s)"',
        f"--runtime-env-json={shlex.quote(build_runtime_env(launch))}",
        "--",
        f"bash {shlex.quote(launch.program)}",
    ]
    return [
        '  if [ -z "${RAY_ADDRESS:-}" ]; then',
        *(f"    {line}" for line in token),
        "  fi",
        "  " + join_command(words, indent="  "),
    ]
