"""The other commands of a launch script: steps before the program, and comments."""

from __future__ import annotations

import re
from collections.abc import Sequence

from rlt.convert.containers import list_requirements
from rlt.convert.draft import Draft
from rlt.convert.launch import Launch, describe_wrapper
from rlt.convert.text import is_known, show

SCRIPT = re.compile(
    r"(preprocess|download|prepare|dataset|process_data|make_data|build_data|data_process|convert|to_torch_dist|hf_to"
    r"|to_hf|mcore|tokenize)\w{0,40}(\.py)?$|(^|/)data(_preprocess|_process|sets?)?/[\w.-]{1,80}\.py$|(^|\.)data_preprocess\.\w{1,80}$"
)
"""Python programs that make data or models."""
AFTER = re.compile(
    r"(merge|export|eval|evaluate|plot|collect|check|metrics|dump|report|upload|push|infer|inference|generate|serve|server"
    r"|vllm_serve|api_server|launch_server|test|tests|pytest|visuali[sz]e|pip|setup|analy[sz]e)\w{0,40}(\.py)?$|model_merger"
)
"""Python programs that are not the training."""
DOWNLOADS = {
    "hf": ("download", "buckets"), "huggingface-cli": ("download",), "modelscope": ("download",), "wget": (),
    "curl": (),
    "git": ("clone", "lfs"), "aws": ("s3",), "gsutil": (), "gcloud": ("storage",), "rsync": (), "unzip": (), "tar": (),
    "hdfs": (), "rclone": (), "s5cmd": (), "gdown": (),
}  # fmt: skip
"""Programs that get data, with the first arguments for which they do."""
MAX_STEPS = 16
REASONS: tuple[tuple[str, str], ...] = (
    (r"(set|shopt|ulimit|trap|umask|alias)\b", "an option of the script's shell"),
    (
        r"(echo|printf|printenv|env|date|nvidia-smi|rocm-smi|hostname|ls|cat|which|df|free|whoami|pwd|lscpu|head|tail|tee"
        r"|hipconfig|ibstat|ibv_devinfo|ip|ifconfig|numactl|top|ps|python3? --version|python3? -V|ulimit)\b",
        "output for people: rlt logs has the program's",
    ),
    (r"(sleep|wait|read)\b", "the operator waits for the pods and the program"),
    (
        r"(pkill|kill|killall|fuser|ray stop|scancel|docker (stop|kill|rm|system|image|container|ps|restart|start)"
        r"|podman (stop|rm)|rm)\b",
        "each attempt has new pods",
    ),
    (
        r"ray (start|status|list|summary|memory|up|down|attach|exec|get-head-ip|health-check|timeline|logs"
        r"|symmetric-run)\b",
        "the operator and KubeRay start Ray; spec.cluster.workers[] has its devices and CPUs",
    ),
    (
        r"(mkdir|touch|cp|mv|ln|chmod|chown|install)\b",
        "files of the machine: the pods have the files of the image and the volume",
    ),
    (r"(source|\.)\s", "the variables of that file are not read: set them in spec.cluster.env"),
    (
        r"(module|ml|spack|conda|mamba|micromamba|pyenv|deactivate|uv (venv|sync|pip|lock|cache)|pip3?|apt|apt-get|yum"
        r"|dnf|python[\d.]* -m pip|npm|poetry|make|cmake|ninja|pixi|docker (build|pull|login|push|compose|load|tag"
        r"|buildx)|(apptainer|singularity|podman) (pull|build)|enroot (import|create))\b",
        "the image has the programs and packages of the job: build them into spec.cluster.image, or name packages in "
        "spec.framework.runtimeEnv.pip",
    ),
    (
        r"(wandb|huggingface-cli|hf|modelscope|swanlab|mlflow) (auth )?(login|logout|offline|online)",
        "use a Secret: spec.observability.wandb.apiKey, or spec.cluster.env with a secretKeyRef",
    ),
    (r"(exit|return|break|continue)\b", "the script ends here"),
    (r"git\b", "the code is in spec.cluster.image, or a step of spec.framework.prepare gets it"),
    (r"(scontrol|squeue|sinfo|sacct|salloc)\b", "Slurm's state: the operator reports the pods"),
    (r"(srun|sbatch)\b", "the operator starts the program"),
    (r"(ssh|pdsh|scp)\b", "another machine: the operator starts the pods"),
)
SERVER = re.compile(r"serve|server|router|sglang|vllm|sandbox|retrieval|judge|tensorboard|redis|proxy", re.IGNORECASE)


def is_preparation(words: Sequence[str]) -> bool:
    """Whether a program makes or gets data, code or models."""
    name = words[0].rpartition("/")[2] if words else ""
    if name in DOWNLOADS:
        return not DOWNLOADS[name] or (len(words) > 1 and words[1] in DOWNLOADS[name])
    return bool(re.fullmatch(r"python[\d.]*|torchrun", name)) and SCRIPT.search(get_target(words)) is not None


def get_target(words: Sequence[str]) -> str:
    """The module, or the last two parts of the path, in a Python command."""
    rest = list(words[1:])
    for option in ("--module", "--python_module", "-m"):
        if option in rest[:12] and rest.index(option) + 1 < len(rest):
            return rest[rest.index(option) + 1]
    while rest and rest[0].startswith("-") and rest[0] not in ("-m", "-c"):
        option = rest.pop(0)
        if option.startswith("--") and "=" not in option and rest and not rest[0].endswith(".py") and len(rest) > 1:
            rest.pop(0)
    if rest[:1] == ["launch"]:
        return get_target(rest)
    return "/".join(rest[0].split("/")[-2:]) if rest else ""


def apply_others(draft: Draft, others: Sequence[tuple[Launch, bool]], to: str) -> None:
    """Each command beside the training: a step before it, a package, or a comment. True: before the training."""
    for launch, is_before in others:
        if launch.inner:
            _note_inner(draft, launch)
        elif is_before and to != "builtin" and _add_step(draft, launch):
            if launch.command.redirects:
                draft.leave_out(
                    f"{show(launch.words[0])} {launch.command.redirects}", "rlt logs --step has it", launch.line
                )
        elif is_before and to == "command" and _add_packages(draft, launch):
            continue
        else:
            draft.leave_out(launch.command.text, explain(launch), launch.line)
            _note_arguments_of_tee(draft, launch)


def _note_inner(draft: Draft, launch: Launch) -> None:
    """A script whose commands are other launches: what starts it, without the script."""
    words = launch.command.words
    text = " ".join(show(each) for each in words if "\n" not in each and len(each) < 200)
    parts = [text, launch.command.redirects, "&" if launch.command.background else ""]
    draft.leave_out(" ".join(filter(None, parts)), "its commands are read", launch.line)


def _note_arguments_of_tee(draft: Draft, launch: Launch) -> None:
    """Arguments that a pipe takes from the program."""
    for word in launch.plain[1:] if launch.plain[:1] == ("tee",) else ():
        if "=" in word:
            why = "it is an argument of tee, after the pipe, and not of the training"
            draft.leave_out(show(word), why, launch.line)


def explain(launch: Launch) -> str:
    """Why the job does not have a command."""
    words = launch.plain
    text = (
        " ".join((words[0].rpartition("/")[2], *words[1:]))
        if words
        else " ".join(each.name for each in launch.wrappers)
    )
    found = next((why for pattern, why in REASONS if re.match(pattern, text)), None)
    if launch.command.piped and (found is None or text.startswith("tee")):
        return "it reads the output of the command before it: rlt logs has the program's"
    if found is None and launch.command.background:
        what = "a server beside the training" if SERVER.search(text) else "it runs beside the training"
        return f"{what}: the job does not start it: run it in its own Deployment, or in cluster.head.podTemplate"
    if found is not None:
        return found
    return "the job runs the training alone: add it to spec.framework.prepare if the training needs it"


def _add_step(draft: Draft, launch: Launch) -> bool:
    """Add a step of framework.prepare. False if the command is none, or if it depends on the machine."""
    from rlt.convert.command import build_command

    steps = draft.get("framework.prepare") or []
    command = launch.command
    plain = launch.plain
    if not is_preparation(plain) or command.background or command.piped or len(steps) >= MAX_STEPS:
        return False
    if any(wrapper.target == "container" and wrapper.name.startswith("enroot") for wrapper in launch.wrappers):
        return False
    unknown = Draft()
    words = build_command(unknown, launch.words, launch.line, launch.directory)
    environment = {name: value for name, value in launch.environment.items() if name not in launch.exported}
    if not all(is_known(value) for value in environment.values()) or len(words) > 256:
        return False
    if environment:
        words = ["env", *(f"{name}={value}" for name, value in environment.items()), *words]
    for note in unknown.left_out:
        draft.leave_out(note.what, note.why, note.line)
    draft.put("framework.prepare", [*steps, {"name": _name_step(plain, steps), "command": words}])
    for wrapper in launch.wrappers:
        draft.leave_out(describe_wrapper(launch, wrapper, ()), wrapper.why, launch.line)
    return True


def _name_step(words: Sequence[str], steps: Sequence[dict[str, object]]) -> str:
    name = words[0].rpartition("/")[2]
    if name.startswith(("python", "torchrun")):
        name = re.sub(r"\.py$", "", get_target(words).rpartition("/")[2]).rpartition(".")[2]
    elif name == "git":
        name = next((each for each in reversed(words) if not each.startswith("-")), name).rstrip("/").rpartition("/")[2]
        name = f"clone-{name.removesuffix('.git')}"
    elif len(words) > 1 and name in ("hf", "huggingface-cli", "modelscope"):
        name = "download"
    label = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[:40].strip("-") or "step"
    label = label if label[0].isalpha() else f"step-{label}"
    taken = {each["name"] for each in steps}
    names = [label, *(f"{label}-{number}" for number in range(2, MAX_STEPS + 2))]
    return next(each for each in names if each not in taken)


def _add_packages(draft: Draft, launch: Launch) -> bool:
    """Add the packages of `pip install NAME==VERSION` to framework.runtimeEnv."""
    words = launch.plain
    start = next((index for index, word in enumerate(words) if word == "install"), None)
    is_pip = start is not None and re.search(r"(^|[/ ])(pip3?|uv pip)$", " ".join(words[:start])) is not None
    requirements = list_requirements(words[start + 1 :]) if start is not None and is_pip else None
    if any(re.match(r"ray\b", each) for each in requirements or ()):  # the version of the cluster
        return False
    if not requirements or launch.command.background or any("$" in each or "`" in each for each in words):
        return False
    before = draft.get("framework.runtimeEnv.pip") or []
    draft.put("framework.runtimeEnv.pip", list(dict.fromkeys([*before, *requirements])))
    why = "Ray installs the packages into each pod for the program: spec.framework.runtimeEnv.pip"
    draft.leave_out(launch.command.text, why, launch.line)
    return True
