"""The commands that start another program: srun, docker, uv and others, with the options that they read."""

from __future__ import annotations

from dataclasses import dataclass

CONTAINER_FLAGS = (
    r"-[dit]+|--(rm|detach|interactive|tty|privileged|init|no-healthcheck|read-only|oom-kill-disable|help|publish-all)"
)
APPTAINER_FLAGS = (
    r"-[ceCufw]|--(nv|nvccli|rocm|cleanenv|contain|containall|no-home|writable|writable-tmpfs|fakeroot|no-init|no-umask"
    r"|userns|pid|ipc|net|compat|no-privs|disable-cache|unsquash)"
)
STEP_FLAGS = (
    r"-[lukvQOsXIHQ]+|--(label|unbuffered|overlap|exclusive|pty|exact|no-kill|overcommit|oversubscribe|spread-job|quiet|verbose"
    r"|kill-on-bad-exit|immediate|hold|requeue|no-requeue|wait-all-nodes|parsable|test-only|contiguous"
    r"|no-container-[\w-]+|container-(writable|readonly|remap-root|mount-home))"
)
ENVIRONMENT_IMAGE = "the image has the programs and packages of the job: spec.cluster.image"
CONTAINER = "the operator starts the containers of the pods"
NEEDLESS = "a job needs no such wrapper"
ON_HEAD = "the operator starts the program once, on the head"


@dataclass(frozen=True)
class Wrapper:
    """A command that starts another one."""

    name: str
    flags: str = r"-[a-zA-Z]|--[\w-]+"
    """Its options without a value."""
    why: str = NEEDLESS
    """Why the job does not have it."""
    target: str = ""
    """What it needs between its options and the program: image, container or word."""


WRAPPERS = (
    Wrapper(
        "uv run",
        r"-[qvnU]+|--(no-sync|frozen|locked|isolated|active|no-project|no-dev|all-extras|all-groups|exact|quiet|verbose"
        r"|offline|no-cache|refresh|reinstall|no-build-isolation|script|gui-script|no-env-file|managed-python|no-config"
        r"|native-tls|upgrade|compile-bytecode|no-default-groups|no-editable|only-dev)",
        ENVIRONMENT_IMAGE + ", or name packages in spec.framework.runtimeEnv.pip",
    ),
    Wrapper("coverage run", r"-[ap]|--(append|branch|parallel-mode)"),
    Wrapper("srun", STEP_FLAGS, ON_HEAD),
    Wrapper("docker run", CONTAINER_FLAGS, CONTAINER, "image"),
    Wrapper("docker create", CONTAINER_FLAGS, CONTAINER, "image"),
    Wrapper("nvidia-docker run", CONTAINER_FLAGS, CONTAINER, "image"),
    Wrapper("podman run", CONTAINER_FLAGS, CONTAINER, "image"),
    Wrapper("docker exec", CONTAINER_FLAGS, CONTAINER, "container"),
    Wrapper("podman exec", CONTAINER_FLAGS, CONTAINER, "container"),
    Wrapper("apptainer exec", APPTAINER_FLAGS, CONTAINER, "image"),
    Wrapper("apptainer run", APPTAINER_FLAGS, CONTAINER, "image"),
    Wrapper("singularity exec", APPTAINER_FLAGS, CONTAINER, "image"),
    Wrapper("singularity run", APPTAINER_FLAGS, CONTAINER, "image"),
    Wrapper("enroot start", r"-[rw]+|--(rw|root)", CONTAINER, "container"),
    Wrapper("ray job submit", r"--(no-wait|verbose|disable-usage-stats)|-v", "the operator submits the Ray job"),
    Wrapper("mpirun", r"--?(allow-run-as-root|tag-output|verbose|oversubscribe|report-bindings)|-[vq]", ON_HEAD),
    Wrapper("mpiexec", r"--?(allow-run-as-root|tag-output|verbose|oversubscribe)|-[vq]", ON_HEAD),
    Wrapper("conda run", r"-v+|--(no-capture-output|live-stream|dev|debug-wrapper-scripts)", ENVIRONMENT_IMAGE),
    Wrapper("micromamba run", r"-v+|--(no-capture-output|live-stream)", ENVIRONMENT_IMAGE),
    Wrapper("mamba run", r"-v+|--(no-capture-output|live-stream)", ENVIRONMENT_IMAGE),
    Wrapper("poetry run", why=ENVIRONMENT_IMAGE),
    Wrapper("pixi run", r"--(frozen|locked|no-install)", ENVIRONMENT_IMAGE),
    Wrapper("pipenv run", why=ENVIRONMENT_IMAGE),
    Wrapper("timeout", r"-[vf]|--(preserve-status|foreground|verbose)", "use spec.activeDeadlineSeconds", "word"),
    Wrapper("numactl", r"-[la]|--(localalloc|all)", "the pods have their own CPUs and memory"),
    Wrapper("taskset", r"-[acp]+", "the pods have their own CPUs", "word"),
    Wrapper("nice", r"--help", NEEDLESS),
    Wrapper("stdbuf", r"-[oei][0L]", NEEDLESS),
    Wrapper("nsys profile", r"-[w]", "use spec.observability for profiles"),
    Wrapper("sudo", r"-[EHnbkS]+"),
    Wrapper("env", r"-[i0v]"),
    Wrapper("time", r"-[pv]"),
    Wrapper("nohup"),
    Wrapper("setsid"),
    Wrapper("exec"),
    Wrapper("command"),
    Wrapper("builtin"),
)
WORKING_DIRECTORY = {
    "-w": "docker", "--workdir": "docker", "--container-workdir": "srun", "--pwd": "apptainer", "--directory": "uv",
    "--cwd": "apptainer",
    "-D": "srun", "--chdir": "srun",
}  # fmt: skip
"""Options with the folder in which the program runs, and the command that has them."""


def get_kind(name: str) -> str:
    """The command of a wrapper, or the one with the same options."""
    kind = name.split()[0]
    return {"nvidia-docker": "docker", "podman": "docker", "singularity": "apptainer"}.get(kind, kind)


def is_working_directory(kind: str, option: str) -> bool:
    """Whether an option sets the folder in which the program runs."""
    return WORKING_DIRECTORY.get(option) == kind
