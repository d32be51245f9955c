"""A bash script with `docker run` for each node, for machines with Docker and without a scheduler."""

from __future__ import annotations

import shlex

from rlt_core.children.pod_template import GCS_PORT
from rlt_core.targets.container import build_run_options, choose_options
from rlt_core.targets.launch import Launch
from rlt_core.targets.ray import build_head_options, list_usage, list_workers
from rlt_core.targets.shell import (
    build_environment_options,
    build_files,
    build_head_comment,
    build_programs,
    build_programs_file,
    build_requirements,
    build_token,
    format_start,
    join_command,
)


def build_docker_script(launch: Launch) -> str:
    """Build the script. Its first argument is head, a worker group, submit or stop."""
    usage = [*list_usage(launch), f"  bash SCRIPT {'stop':20}on every node"]
    address = f'--address="${{2:?the address of the head}}:{GCS_PORT}"'
    cases = [("head", launch.groups[0], build_head_options())]
    cases += [(f"worker-{group.name}", group, [address]) for group in launch.groups]
    lines = [
        *build_head_comment(launch, "docker", usage),
        f"container={launch.name}-{launch.id}",
        *build_requirements(launch),
        *build_token(launch),
        "",
        "start_node() {",
        "  " + join_command(_build_run(launch), indent="  "),
        "}",
        "",
        "case ${1:-} in",
    ]
    for name, group, start in cases:
        command = join_command(["start_node", *start, *format_start(group.start)], indent="  ")
        lines += [f"{name})", f"  {command}", "  ;;"]
    return "\n".join(
        [
            *lines,
            "submit)",
            *build_files(launch.files),
            *build_programs_file(launch),
            '  docker exec "$container" ray job submit \\',
            f'    --submission-id="{launch.name}-$(date +%s)" -- bash {shlex.quote(launch.program)}',
            "  ;;",
            "stop)",
            f'  docker stop --time={launch.grace_seconds} "$container"',
            "  ;;",
            "*)",
            f'  echo "usage: bash $0 {" | ".join(["head", *list_workers(launch), "submit", "stop"])}" >&2',
            "  exit 2",
            "  ;;",
            "esac",
            *build_programs(launch),
        ]
    )


def _build_run(launch: Launch) -> list[str]:
    options = choose_options(launch, max(group.shared_memory for group in launch.groups))
    return [
        "docker run --detach --rm --init",
        '--name="$container"',
        '--user="$(id -u):$(id -g)"',
        *build_run_options(options, runtime="docker", vendor=launch.vendor),
        *(f"--volume={shlex.quote(f'{path}:{path}')}" for path in launch.mounts),
        *build_environment_options(launch),
        "--entrypoint=ray",
        shlex.quote(launch.image),
        'start "$@"',
        "--block",
    ]
