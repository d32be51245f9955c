"""Tasks of SkyPilot (sky/utils/schemas.py) and dstack (dstack/_internal/core/models/configurations.py)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from rlt.convert.draft import Draft
from rlt.convert.reader import Json, Reader
from rlt.convert.task_script import TaskScript, apply_script
from rlt.convert.text import SECRET

WORKERS = "cluster.workers[]"
SKYPILOT_KEYS = {"num_nodes", "resources", "envs", "secrets", "file_mounts", "workdir", "setup"}
CLOUD = "nodes come from the cluster of the job: select them with nodeSelector"
CODE = "put the code into spec.cluster.image, or use spec.framework.runtimeEnv"
VOLUME = "use a PersistentVolumeClaim: spec.storage.claimName, with this path in spec.storage.mountPath"
SECRET_WHY = "put it into a Secret, and name that in spec.cluster.env (secretKeyRef)"
GIVEN_LATER = "its value is given at the launch: set it in spec.cluster.env"
AT_LEAST = "a job has an exact amount: the least one is used"
SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([KMGT]?)(i?)B?", re.IGNORECASE)
VENDORS = {"nvidia": "nvidia.com/gpu", "amd": "amd.com/gpu", "google": "google.com/tpu", "intel": "habana.ai/gaudi"}
"""dstack's vendor -> resource of the device plugin."""
MODELS = {
    re.compile(r"MI\d+\w*", re.IGNORECASE): "amd.com/gpu",
    re.compile(r"(tpu-)?v\d+[ep]?(-.*)?", re.IGNORECASE): "google.com/tpu",
    re.compile(r"Gaudi\d*", re.IGNORECASE): "habana.ai/gaudi",
}
"""Models of other vendors than NVIDIA -> resource of the device plugin."""
PIP = re.compile(r"(uv )?pip3? install (.+)")
QUIET = ("-U", "--upgrade", "-q", "--quiet", "--no-cache-dir")
"""Options of pip that do not change what is installed."""
REQUIREMENT = re.compile(r"[A-Za-z0-9][\w.-]*(\[[\w,-]*\])?([=<>!~]=?[\w.*]+)?")
UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}


def is_skypilot(document: Mapping[str, Any]) -> bool:
    """Whether a document is a task of SkyPilot."""
    is_task = "run" in document or "setup" in document
    return is_task and bool(SKYPILOT_KEYS & document.keys()) and not document.keys() & {"kind", "type", "apiVersion"}


def is_dstack(document: Mapping[str, Any]) -> bool:
    """Whether a document is a task of dstack."""
    return document.get("type") == "task"


def convert_skypilot(draft: Draft, task: Json, file: str, to: str) -> None:
    """Convert a task of SkyPilot: its resources are a worker group, setup a step before the program."""
    reader = Reader(draft, task, "")
    draft.name = str(reader.take("name") or draft.name)
    nodes = reader.take("num_nodes", 1)
    resources = reader.child("resources")
    for choice in ("any_of", "ordered"):
        choices = resources.take_list(choice)
        if choices and isinstance(choices[0], dict):
            resources.left = {**choices[0], **resources.left}
        resources.name(choice, choices, "the first of the choices is used")
    draft.put(f"{WORKERS}.replicas", nodes)
    count = _read_accelerators(draft, resources)
    for key, name in (("cpus", "cpu"), ("memory", "memory")):
        _read_amount(draft, resources, key, name, "Gi")
    image = resources.left.get("image_id")
    if isinstance(image, str) and image.startswith("docker:"):
        draft.put("cluster.image", resources.take("image_id").removeprefix("docker:"))
    resources.leave_rest(CLOUD)
    script = TaskScript()
    script.assign("SKYPILOT_NUM_NODES", nodes)
    script.assign("SKYPILOT_NUM_GPUS_PER_NODE", count)
    script.assign("SKYPILOT_NODE_RANK", 0)
    _read_variables(reader.child("envs"), script)
    secrets = reader.child("secrets")
    for name in tuple(secrets.left):
        secrets.take(name)
        draft.leave_out(secrets.join(name), SECRET_WHY, draft.find_line(secrets.join(name)))
    run = str(reader.take("run") or "")
    script.add(re.sub(r'\$\(echo "?\$\{?SKYPILOT_NODE_IPS\}?"? \| wc -l\)', str(nodes), run), draft.find_line("run"))
    apply_script(draft, script, "run", to)
    _read_setup(reader)
    for key in ("file_mounts", "volumes", "storage_mounts"):
        reader.child(key).leave_rest(VOLUME)
    reader.leave(("workdir",), CODE)
    reader.leave_rest("a job has no such field")


def convert_dstack(draft: Draft, task: Json, file: str, to: str) -> None:
    """Convert a task of dstack: its resources are a worker group."""
    reader = Reader(draft, task, "")
    reader.take("type")
    draft.name = str(reader.take("name") or draft.name)
    nodes = reader.take("nodes", 1)
    draft.put(f"{WORKERS}.replicas", nodes)
    resources = reader.child("resources")
    count = _read_accelerators(draft, resources, "gpu")
    for key, name in (("cpu", "cpu"), ("memory", "memory"), ("shm_size", "sharedMemory")):
        _read_amount(draft, resources, key, name, "G")
    resources.leave_rest(CLOUD)
    reader.move("image", "cluster.image")
    if reader.take("privileged"):
        draft.put("security.privileged", True)
    script = TaskScript()
    script.assign("DSTACK_NODES_NUM", nodes)
    script.assign("DSTACK_NODE_RANK", 0)
    script.assign("DSTACK_GPUS_PER_NODE", count)
    if isinstance(nodes, int) and isinstance(count, int):
        script.assign("DSTACK_GPUS_NUM", nodes * count)
    _read_dstack_variables(reader, script)
    for index, command in enumerate(reader.take_list("commands")):
        script.add(str(command), draft.find_line(f"commands[{index}]"))
    apply_script(draft, script, "commands", to)
    directory = reader.left.get("working_dir")
    if isinstance(directory, str) and directory.startswith("/") and draft.get("framework.type") == "command":
        draft.put("framework.workingDirectory", reader.take("working_dir"))
    _read_duration(draft, reader)
    reader.leave(("volumes",), VOLUME)
    reader.leave(("files", "repos", "working_dir"), CODE)
    reader.leave(("registry_auth",), "put it into a Secret, and name that in spec.cluster.imagePullSecrets")
    reader.leave(("retry",), "set spec.failurePolicy.maxRestarts")
    reader.leave(("backends", "regions", "instance_types", "spot_policy", "max_price", "fleets", "reservation"), CLOUD)
    reader.leave(("python", "nvcc", "docker"), "the image of the job has it: set spec.cluster.image")
    reader.leave_rest("a job has no such field")


def _read_accelerators(draft: Draft, resources: Reader, key: str = "accelerators") -> int | None:
    """Set the devices of a pod from H100:8, 80GB:8, {H100: 8} or {name, count, memory}. Return their number."""
    given = resources.left.get(key)
    value = given[0] if isinstance(given, list) and given else given
    if isinstance(value, dict) and not {"name", "count", "memory", "vendor"} & value.keys():
        value = ":".join(str(part) for pair in list(value.items())[:1] for part in pair)
    if isinstance(value, dict):
        names = value.get("name")
        model = names[0] if isinstance(names, list) and names else names
        listed = (value.get("vendor"), model, value.get("memory"), value.get("count") or 1)
        value = ":".join(str(part) for part in listed if part)
    if value in (None, ""):
        return None
    parts = str(value).split(":")
    numbers = [part for part in parts if re.fullmatch(r"\d+(\.\.\d*)?", part)]
    count = int(numbers[-1].partition("..")[0]) if numbers else 1
    models = [part for part in parts if part not in numbers and not SIZE.fullmatch(part.partition("..")[0])]
    if not count:
        return None
    draft.put(f"{WORKERS}.accelerator", {"resourceName": _find_resource(models), "count": count})
    resources.take(key)
    resources.name(key, given, f"{count} devices in each pod; select nodes with this model with nodeSelector")
    return count


def _find_resource(models: list[str]) -> str:
    """The resource of the device plugin for a vendor or model."""
    for model in models:
        if model.lower() in VENDORS:
            return VENDORS[model.lower()]
        for pattern, resource in MODELS.items():
            if pattern.fullmatch(model):
                return resource
    return "nvidia.com/gpu"


def _read_amount(draft: Draft, resources: Reader, key: str, name: str, unit: str) -> None:
    """An amount such as 8+, 8.., x86:8.. or 64GB..128GB: its lower bound."""
    value = resources.left.get(key)
    least = str(value).rpartition(":")[2].partition("..")[0].removesuffix("+")
    size = SIZE.fullmatch(least)
    if value is None or isinstance(value, dict | list) or size is None or (name == "cpu" and size[2]):
        return
    resources.take(key)
    suffix = "" if name == "cpu" else f"{size[2].upper()}{size[3]}" if size[2] else unit
    draft.put(f"{WORKERS}.resources.{name}", f"{size[1]}{suffix}")
    if str(value) != least:
        resources.name(key, value, AT_LEAST)


def _read_variables(variables: Reader, script: TaskScript) -> None:
    draft = variables.draft
    for name in tuple(variables.left):
        value = variables.take(name)
        line = draft.find_line(variables.join(name))
        if value in (None, ""):
            draft.leave_out(variables.join(name), GIVEN_LATER, line)
        elif SECRET.search(str(name)):
            draft.leave_out(variables.join(name), SECRET_WHY, line)
        else:
            script.export(str(name), value, line)


def _read_dstack_variables(reader: Reader, script: TaskScript) -> None:
    """Variables as NAME=value, as an object, or as NAME, whose value is the user's."""
    given = reader.left.get("env")
    if isinstance(given, dict):
        _read_variables(reader.child("env"), script)
        return
    pairs = [str(each).partition("=") for each in reader.take_list("env")]
    listed = Reader(reader.draft, {name: value if equals else None for name, equals, value in pairs}, "env")
    _read_variables(listed, script)


def _read_setup(reader: Reader) -> None:
    text = str(reader.take("setup") or "").strip()
    if not text:
        return
    framework = reader.draft.spec.setdefault("framework", {})
    steps = framework.get("prepare", [])
    framework["prepare"] = [{"name": "setup", "command": ["bash", "-c", text]}, *steps]
    packages = [each for line in text.splitlines() for each in _list_packages(line)]
    if packages and framework.get("type") == "command":
        environment = framework.setdefault("runtimeEnv", {})
        environment["pip"] = list(dict.fromkeys([*environment.get("pip", []), *packages]))
    reader.name("setup", text, "a step of the job runs on the head alone: all pods have its packages from PyPI alone")


def _list_packages(line: str) -> list[str]:
    """The requirements of a pip install without files, addresses and indexes."""
    match = PIP.fullmatch(line.strip())
    words = [word.strip("'\"") for word in match[2].split()] if match else []
    packages = [word for word in words if word not in QUIET]
    return packages if all(REQUIREMENT.fullmatch(each) for each in packages) else []


def _read_duration(draft: Draft, reader: Reader) -> None:
    value = reader.left.get("max_duration")
    match = re.fullmatch(r"(\d+)([smhdw]?)", str(value))
    if match and not isinstance(value, bool):
        reader.take("max_duration")
        draft.put("activeDeadlineSeconds", int(match[1]) * UNITS[match[2] or "s"])
