"""The program in a launch script: without srun, ray, docker and the other commands that start it elsewhere."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from rlt.convert.draft import Draft
from rlt.convert.shell import Command, reveal
from rlt_api.frameworks.mapping import find, load_mapping

SHELLS = ("bash", "sh", "zsh", "dash")
PYTHON = re.compile(r"(.*/)?(python[\d.]*|torchrun|accelerate|deepspeed)")
CONTAINER_FLAGS = r"-[dit]+|--(rm|detach|interactive|tty|privileged|init|no-healthcheck|read-only)"
APPTAINER_FLAGS = r"-[ceC]|--(nv|rocm|cleanenv|contain|containall|no-home|writable|writable-tmpfs|fakeroot)"
FLAGS = {
    "docker": CONTAINER_FLAGS, "podman": CONTAINER_FLAGS, "apptainer": APPTAINER_FLAGS, "singularity": APPTAINER_FLAGS,
    "srun": "-[luvQ]|--(label|unbuffered|overlap|exclusive|pty|exact|no-container-.*|container-(writable|remap-root))",
    "ray": "--no-wait|--verbose", "uv": "--(no-sync|frozen|locked|isolated|active)", "sudo": "-[EHnbkS]+",
    "env": "-[i0v]", "time": "-p",
}  # fmt: skip
"""Program of a wrapper -> its options without a value."""
WRAPPERS = {
    "uv run": 0, "srun": 0, "nohup": 0, "sudo": 0, "time": 0, "exec": 0, "env": 0, "mpirun": 0,
    "docker run": 1, "podman run": 1, "docker exec": 1, "podman exec": 1,
    "apptainer exec": 1, "apptainer run": 1, "singularity exec": 1, "singularity run": 1,
    "ray job submit": 0,
}  # fmt: skip
"""Command -> number of arguments between its options and the program: the image or the container."""
RUNNING = ("docker exec", "podman exec")
"""Wrappers whose argument is the name of a running container."""
CONTAINER_FIELDS = {
    "--shm-size": "spec.cluster.workers[].resources.sharedMemory",
    "-w": "spec.framework.workingDirectory",
    "--workdir": "spec.framework.workingDirectory",
}


CODE = "put the code into spec.cluster.image, and variables into spec.cluster.env"


@dataclass
class Launch:
    """A program, and how the script starts it."""

    words: tuple[str, ...]
    line: int
    environment: dict[str, str] = field(default_factory=dict)
    options: list[tuple[str, str, str]] = field(default_factory=list)
    """Command, option and value of each wrapper, such as docker run, --shm-size, 64g."""
    image: str | None = None


def unwrap(command: Command) -> Launch:
    """Remove the wrappers of a command."""
    launch = Launch(command.words, command.line, dict(command.environment))
    while wrapper := _find_wrapper(launch.words):
        words = list(launch.words[len(wrapper.split()) :])
        while words and (words[0].startswith("-") or "=" in words[0]) and words[0] != "--":
            option, equals, value = words.pop(0).partition("=")
            if not option.startswith("-"):
                launch.environment[option] = value
            elif not equals and not re.fullmatch(FLAGS.get(wrapper.split()[0], ""), option) and words:
                value = words.pop(0)
            launch.options.append((wrapper, option, value))
        if words[:1] == ["--"]:
            words.pop(0)
        elif WRAPPERS[wrapper] and words:
            target = words.pop(0)
            launch.image = launch.image if wrapper in RUNNING else target
        launch.words = tuple(words)
    return launch


def _find_wrapper(words: Sequence[str]) -> str | None:
    text = " ".join((words[0].rpartition("/")[2], *words[1:3])) if words else ""
    return next((each for each in WRAPPERS if text == each or text.startswith(f"{each} ")), None)


def find_inner_script(words: Sequence[str]) -> str | None:
    """The script of `bash -c SCRIPT`."""
    if words and words[0].rpartition("/")[2] in SHELLS:
        for option, script in pairwise(words[1:]):
            if re.fullmatch(r"-[a-z]*c", option):
                return script
    return None


def apply_container_options(draft: Draft, launch: Launch) -> None:
    """Carry over the options of docker and apptainer, by the names of mapping.toml."""
    if launch.image and "$" not in launch.image:
        draft.put("cluster.image", launch.image)
    elif launch.image:
        draft.leave_out(f"image {launch.image}", "its name is not in the script: set spec.cluster.image", launch.line)
    for wrapper, option, value in launch.options:
        if wrapper == "ray job submit" and option in ("--working-dir", "--runtime-env", "--runtime-env-json"):
            draft.leave_out(f"ray job submit {option} {value}", CODE, launch.line)
        if wrapper.split()[0] not in ("docker", "podman"):
            continue
        if option in ("-e", "--env"):
            name, equals, content = value.partition("=")
            if equals:
                launch.environment.setdefault(name, content)
        elif option in CONTAINER_FIELDS and "$" not in value:
            draft.put(CONTAINER_FIELDS[option], _convert_size(value) if option == "--shm-size" else value)
        elif option == "--device" and value in ("/dev/kfd", "/dev/dri"):
            draft.put("cluster.workers[].accelerator.resourceName", "amd.com/gpu")
        elif option not in ("--rm", "-d", "-it", "-i", "-t", "--name", "--detach"):
            draft.leave_out(f"{wrapper} {option} {value}".strip(), _explain(option, value), launch.line)


def _convert_size(value: str) -> str:
    """Docker's size as a quantity: 64g or 64gb -> 64Gi."""
    match = re.fullmatch(r"(\d+)([bkmgt]?)b?", value.lower())
    return f"{match[1]}{match[2].upper()}i" if match and match[2] in "kmgt" and match[2] else value


def _explain(option: str, value: str) -> str:
    """The field or the reason in mapping.toml."""
    option = {"--volume": "-v", "--net": "--network"}.get(option, option)
    settings = [each for each in load_mapping().launch if each.key.startswith(f"docker {option}")]
    found = next((each for each in settings if value.split("=")[0] in each.key), settings[0] if settings else None)
    if found is None:
        return "no counterpart"
    text = f"use {', '.join(found.fields)}" if found.fields else found.reason
    return f"{text}. {found.note}".rstrip(". ")


def apply_environment(draft: Draft, variables: dict[str, str], lines: dict[str, int]) -> None:
    """Carry over environment variables: into cluster.env, or the field that mapping.toml names."""
    for name, value in variables.items():
        line = lines.get(name)
        found = find(name, load_mapping().environment)
        fields = found.fields if found else ("spec.cluster.env",)
        if re.search(r"(KEY|TOKEN|SECRET|PASSWORD)$", name):
            draft.leave_out(name, "put it into a Secret, and name that in spec.cluster.env (secretKeyRef)", line)
        elif found and found.reason:
            draft.leave_out(name, found.reason, line)
        elif found and found.profile:
            draft.leave_out(f"{name}={value}", "the network profile sets it; spec.cluster.env overrides it", line)
        elif fields == ("spec.network.hcas",) and "$" not in value:
            draft.put("network.hcas", re.sub(r"^[=^]*", "", value).split(","))
        elif fields == ("spec.network.socketInterface",) and "$" not in value:
            draft.put("network.socketInterface", value)
        elif fields != ("spec.cluster.env",):
            assert found
            draft.leave_out(f"{name}={value}", f"use {', '.join(fields)}. {found.note}".rstrip(". "), line)
        elif "$" in value or "`" in value:
            draft.leave_out(f"{name}={value}", "its value is not in the script: set it in spec.cluster.env", line)
        else:
            draft.add_variable(name, reveal(value))
