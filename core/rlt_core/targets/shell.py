"""Parts of bash scripts: comments, exports, files."""

from __future__ import annotations

import posixpath
import shlex
from collections.abc import Iterable, Mapping, Sequence
from importlib import resources
from itertools import accumulate

from rlt_core.targets.launch import Launch

END_OF_FILE = "RLT_END_OF_FILE"
"""The line that ends a file in a script."""
PROGRAMS_MARK = "# Programs of rlt: a zip archive in bzip2 and base85"
"""The line before the programs."""
JOIN_TIMEOUT_S = 600
"""Time for all nodes to join Ray. In Slurm, spec.pendingDeadlineSeconds has precedence."""
TOKEN_FILE = "ray-token"
"""Name of the file with the token of Ray, in the folder of the job's files."""


def join_command(words: Iterable[str], *, indent: str = "") -> str:
    """A command on lines of two spaces more than `indent`: each option has its own line. Words are not quoted."""
    lines: list[str] = []
    for word in words:
        if not lines or word.startswith("-") or lines[-1] == "--":
            lines.append(word)
        else:
            lines[-1] += f" {word}"
    return f" \\\n{indent}  ".join(lines)


def format_start(start: Mapping[str, str]) -> list[str]:
    """The parameters of `ray start` as quoted words."""
    return [f"--{name}" if value == "true" else f"--{name}={shlex.quote(value)}" for name, value in start.items()]


def build_exports(launch: Launch, *, without: Iterable[str] = ()) -> list[str]:
    """Lines that export the environment of Ray and the program."""
    dropped = set(without)
    values = launch.environment.items()
    return [*(f"export {name}={shlex.quote(value)}" for name, value in values if name not in dropped)]


def build_requirements(launch: Launch) -> list[str]:
    """Lines that end the script if the user's environment lacks a variable, and export these variables."""
    required = [f': "${{{name}:?set {name}: the job reads it from a Secret}}"' for name in launch.inherited]
    return [*required, f"export {' '.join(launch.inherited)}"] if required else []


def build_environment_options(launch: Launch) -> list[str]:
    """The options of a container for its environment. Those without a value are in the environment of the script."""
    values = [f"--env={name}={shlex.quote(value)}" for name, value in launch.environment.items()]
    token = ["RAY_AUTH_MODE", *(["RAY_AUTH_TOKEN_PATH"] if launch.has_token else [])]
    return [*values, *(f"--env={name}" for name in (*launch.inherited, *token))]


def build_files(files: Mapping[str, str]) -> list[str]:
    """Lines that write files with their folders."""
    folders = sorted({posixpath.dirname(path) for path in files})
    lines = [f"mkdir -p {shlex.join(folders)}"]
    for path, text in files.items():
        lines += [f"cat > {shlex.quote(path)} <<'{END_OF_FILE}'", text.rstrip("\n"), END_OF_FILE]
    return lines


def build_programs_file(launch: Launch) -> list[str]:
    """Lines that write the end of the script, `build_programs`, to a file."""
    return [f"sed -n '1,/^{PROGRAMS_MARK}$/d; s/^#//p' \"$0\" > {shlex.quote(launch.encoded_programs)}"]


def build_programs(launch: Launch) -> list[str]:
    """The end of a script: rlt's programs as comments."""
    return ["", PROGRAMS_MARK, *(f"#{line}" for line in launch.programs.splitlines()), ""]


def build_await_nodes(launch: Launch) -> dict[str, str]:
    """The program that waits for the nodes: its path and its text."""
    source = resources.files("rlt_pod").joinpath("await_nodes.py")
    return {f"{launch.folder}/await_nodes.py": source.read_text("utf-8")}


def build_token(launch: Launch, path: str = f'"$files/{TOKEN_FILE}"') -> list[str]:
    """Lines that create the token once, and set the variables with which Ray reads it. `path` is quoted."""
    if not launch.has_token:
        return ["export RAY_AUTH_MODE=disabled"]
    return [
        "export RAY_AUTH_MODE=token",
        f"export RAY_AUTH_TOKEN_PATH={path}",
        'if [ ! -s "$RAY_AUTH_TOKEN_PATH" ]; then',
        '  mkdir -p "$files"',
        "  (umask 077 && head -c 32 /dev/urandom | base64 | tr -d '\\n' > \"$RAY_AUTH_TOKEN_PATH\")",
        "fi",
    ]


def build_node_choice(launch: Launch, rank: str) -> list[str]:
    """Lines that set `node` to the parameters of `ray start`. `rank` is the variable with the number of the node."""
    if len(launch.groups) == 1:
        return [f"node=({' '.join(format_start(launch.groups[0].start))})"]
    ends = list(accumulate(group.count for group in launch.groups))
    lines = []
    for index, (group, end) in enumerate(zip(launch.groups, ends, strict=True)):
        condition = f'{"elif" if index else "if"} [ "${rank}" -lt {end} ]; then'
        is_last = index == len(ends) - 1
        lines += ["else" if is_last else condition, f"  node=({' '.join(format_start(group.start))})"]
    return [*lines, "fi"]


def build_head_comment(launch: Launch, target: str, usage: Sequence[str]) -> list[str]:
    """The first lines of a script."""
    nodes = f"{launch.nodes} node{'s' * (launch.nodes > 1)}"
    return [
        "#!/bin/bash",
        f"# {launch.name} on {nodes}, rendered by `rlt render --target {target}`.",
        f"# {launch.storage} is a folder that all nodes share. The network profile is {launch.profile}.",
        *(f"# {line}" for line in usage),
        "set -euo pipefail",
        f"files={shlex.quote(launch.folder)}",
    ]
