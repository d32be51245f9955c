"""The options of containers, srun, ray and uv: fields of the job, or comments."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence

import yaml

from rlt.convert.draft import Draft
from rlt.convert.launch import Launch, is_image_file, note_wrappers
from rlt.convert.slurm import LONG, Option
from rlt.convert.text import is_known, mark_plain, protect, reveal, show
from rlt.convert.wrappers import get_kind, is_working_directory
from rlt_api.frameworks.mapping import load_mapping

WORKERS = "cluster.workers[]"
ACCELERATOR = f"{WORKERS}.accelerator"
IMAGE_FILE = (
    "cluster.image is an image of a registry: set spec.cluster.image to it; rlt render --image-file takes the file"
)
CODE = "put the code into spec.cluster.image, and variables into spec.cluster.env"
STORAGE = "use spec.storage.claimName: volumes, not folders of the node"
MOUNTS = ("-B", "--bind", "--container-mounts", "--mount", "--container-mount-home", "--scratch", "--overlay", "--home")
RESOURCES = (
    "--nodes", "--gres", "--gpus", "--gpus-per-node", "--gpus-per-task", "--cpus-per-task", "--mem", "--time",
    "--ntasks",
    "--ntasks-per-node", "--job-name", "--partition", "--account", "--qos", "--mem-per-cpu", "--mem-per-gpu",
    "--cpus-per-gpu",
)  # fmt: skip
ARCHIVE = re.compile(r"(https|s3|gs|file)://\S+\.(zip|whl)")
REQUIREMENT = re.compile(r"[A-Za-z0-9][\w.-]*(\[[\w,.-]+\])?\s*([=<>!~]=?[\w.*,<>=!~-]+)?")


def apply_image(draft: Draft, launch: Launch) -> None:
    """Set the image of the container."""
    images = [launch.image] if launch.image else []
    images += [value for wrapper, option, value in launch.options if (wrapper, option) == ("srun", "--container-image")]
    for image in images:
        name = reveal(image).removeprefix("docker://").replace("#", "/", 1)
        if not is_known(image):
            why = "its name is not in the script: set spec.cluster.image"
            draft.leave_out(f"image {show(image)}", why, launch.line)
        elif is_image_file(name):
            draft.leave_out(f"image {name}", IMAGE_FILE, launch.line)
        elif draft.get("cluster.image") not in (None, name):
            draft.leave_out(f"image {name}", "a job has one image", launch.line)
        else:
            draft.put("cluster.image", name)


def apply_options(draft: Draft, launch: Launch) -> None:
    """Carry over the options of the wrappers. The others are named."""
    used = []
    for wrapper, option, value in launch.options:
        if _apply_option(draft, launch, get_kind(wrapper), option, value):
            used.append((option, value))
    note_wrappers(draft, launch, used)


def list_step_options(launch: Launch) -> dict[str, Option]:
    """The options of srun that ask for nodes, devices and time, by their long names."""
    found = {}
    for wrapper, option, value in launch.options:
        name = LONG.get(option, option)
        if wrapper == "srun" and name in RESOURCES and is_known(value):
            found[name] = Option(value, launch.line, "srun")
    return found


def _apply_option(draft: Draft, launch: Launch, kind: str, option: str, value: str) -> bool:
    """Carry over an option, or name it. False if it stays with its wrapper's comment."""
    plain = reveal(value)
    if option in ("-e", "--env", "-x", "--genv") and kind in ("docker", "apptainer", "mpirun", "mpiexec"):
        for each in value.split(",") if kind == "apptainer" else [value]:
            _add_variable(draft, launch, each)
        return True
    if kind == "srun" and option == "--export":
        for each in value.split(","):
            if "=" in each:
                _add_variable(draft, launch, each)
        return "=" in value and not plain.startswith(("ALL", "NONE"))
    if kind == "srun" and option in ("--container-image", "--container-env"):
        return option == "--container-image"
    if option == "--env-file":
        draft.leave_out(f"{kind} {option} {plain}", "the variables of that file are not read", launch.line)
        return True
    if is_working_directory(kind, option) and is_known(value) and plain.startswith("/"):
        draft.put("framework.workingDirectory", plain)
        return True
    if option in MOUNTS and kind in ("apptainer", "srun"):
        draft.leave_out(f"{kind} {option} {show(value)}", STORAGE, launch.line)
        return True
    if kind == "apptainer" and option == "--rocm":
        draft.put(f"{ACCELERATOR}.resourceName", "amd.com/gpu")
        return False
    if kind == "ray":
        return _apply_submission(draft, launch, option, value)
    return kind == "docker" and option.startswith("-") and _apply_docker(draft, launch, option, value)


def _apply_docker(draft: Draft, launch: Launch, option: str, value: str) -> bool:
    plain = reveal(value)
    if option == "--shm-size" and is_known(value):
        draft.put(f"{WORKERS}.resources.sharedMemory", _convert_size(plain))
    elif option == "--device" and plain.startswith(("/dev/kfd", "/dev/dri")):
        draft.put(f"{ACCELERATOR}.resourceName", "amd.com/gpu")
        draft.leave_out(f"docker {option} {plain}", "the device plugin mounts the devices of amd.com/gpu", launch.line)
    elif option == "--gpus":
        draft.leave_out(f"docker {option} {plain}", "use spec.cluster.workers[].accelerator", launch.line)
    elif not value and option not in ("--privileged",):
        return False
    else:
        wrapper = next((each.name for each in launch.wrappers if each.target == "image"), "docker run")
        draft.leave_out(f"{wrapper} {option} {show(value)}".strip(), _explain(option, plain), launch.line)
    return True


def _apply_submission(draft: Draft, launch: Launch, option: str, value: str) -> bool:
    """ray job submit: its runtime environment."""
    what = f"ray job submit {option} {show(value)}"
    if option == "--runtime-env-json":
        environment = _parse_json(reveal(value))
        if isinstance(environment, dict):
            apply_runtime_environment(draft, launch, environment, mark_plain(value))
        else:
            draft.leave_out(what, f"its JSON is not complete in the script: {CODE}", launch.line)
        return True
    if option == "--runtime-env":
        draft.leave_out(what, f"the file is not read: use spec.framework.runtimeEnv, or {CODE}", launch.line)
        return True
    if option == "--working-dir":
        if ARCHIVE.fullmatch(reveal(value)):
            draft.put("framework.runtimeEnv.workingDir", reveal(value))
        else:
            draft.leave_out(
                what, f"a job uploads no folder: {CODE}, or set spec.framework.workingDirectory", launch.line
            )
        return True
    return False


def apply_runtime_environment(draft: Draft, launch: Launch, environment: dict[str, object], written: str) -> None:
    """Carry over Ray's runtime_env: variables, packages and archives."""
    option = "ray job submit --runtime-env-json"
    for key, value in environment.items():
        if key == "env_vars" and isinstance(value, dict):
            names = ", ".join(value)
            draft.leave_out(
                f"{option} env_vars {names}", "spec.cluster.env has them, apart from those below", launch.line
            )
            for name, each in value.items():
                text = str(each)
                launch.environment[name] = text if "$" in text and "\\$" not in written else protect(text)
        elif key == "pip" and isinstance(value, list) and all(isinstance(each, str) for each in value):
            draft.put("framework.runtimeEnv.pip", value)
        elif key == "working_dir" and isinstance(value, str) and ARCHIVE.fullmatch(value):
            draft.put("framework.runtimeEnv.workingDir", value)
        elif key == "working_dir" and isinstance(value, str) and value.startswith("/"):
            draft.put("framework.workingDirectory", value)
            draft.leave_out(
                f"{option} {key} {value}", "it is not uploaded: the image or the volume must have it", launch.line
            )
        elif key == "py_modules" and isinstance(value, list) and all(ARCHIVE.fullmatch(str(each)) for each in value):
            draft.put("framework.runtimeEnv.pyModules", value)
        else:
            draft.leave_out(
                f"{option} {key} {yaml.safe_dump(value, default_flow_style=True).strip()}", CODE, launch.line
            )


def _add_variable(draft: Draft, launch: Launch, text: str) -> None:
    name, equals, content = text.partition("=")
    if equals:
        launch.environment.setdefault(name, content)
    elif name in launch.exported:
        launch.environment.setdefault(name, launch.exported[name])
    else:
        draft.leave_out(
            f"variable {show(name)}", "its value is not in the script: set it in spec.cluster.env", launch.line
        )


def _convert_size(value: str) -> str:
    """Docker's size as a quantity: 64g or 64gb -> 64Gi."""
    match = re.fullmatch(r"(\d+)([bkmgt]?)b?", value.lower())
    return f"{match[1]}{match[2].upper()}i" if match and match[2] in "kmgt" and match[2] else value


def _explain(option: str, value: str) -> str:
    """The field or the reason in mapping.toml."""
    option = {"--volume": "-v", "--net": "--network", "--mount": "-v"}.get(option, option)
    settings = [each for each in load_mapping().launch if each.key.startswith(f"docker {option}")]
    exact = (each for each in settings if each.key == f"docker {option}")
    found = next((each for each in settings if value.split("=")[0] in each.key), next(exact, None))
    if found is None:
        return "no counterpart"
    text = f"use {', '.join(found.fields)}" if found.fields else found.reason
    return f"{text}. {found.note}".rstrip(". ")


def list_requirements(words: Sequence[str]) -> list[str] | None:
    """The packages of `pip install`, if they are names with versions alone."""
    found = [each for each in words if each not in ("-U", "--upgrade", "-q", "--quiet", "--no-cache-dir", "--user")]
    return found if found and all(REQUIREMENT.fullmatch(each) for each in found) else None


def _parse_json(text: str) -> object:
    """A JSON text in a script. None if it is not JSON."""
    try:
        return json.loads(text)
    except ValueError:
        return None
