"""What the pods of a rendered job have beyond those of a job with the same spec: the user's variables, and more."""

from __future__ import annotations

from typing import Any

from rlt.convert.draft import Draft
from rlt.convert.pods import apply_env
from rlt.manifest_files import Document
from rlt.offline_job import build_offline_job, detect_network, render_children
from rlt.validation import validate_documents
from rlt_core.fabric.profiles import load_profiles
from rlt_core.keep_logs import ATTEMPT_DIRECTORY

Json = dict[str, Any]
FABRIC = "the operator decides it by the nodes"


def add_differences(draft: Draft, manifest: Json) -> None:
    """Set variables, tolerations, sizes and topology that differ from those of the job so far, and note the others."""
    again = _render(draft)
    if again is None:
        draft.leave_out("variables and tolerations of the pods", "what is missing decides which are the operator's")
        return
    given, own = (_get_pod(each["spec"]["headGroupSpec"]) for each in (manifest, again))
    _add_variables(draft, given["containers"][0]["env"], own["containers"][0]["env"])
    if tolerations := _find_more(given, own, "tolerations"):
        draft.put("cluster.head.tolerations", tolerations)
    groups = zip(manifest["spec"]["workerGroupSpecs"], again["spec"]["workerGroupSpecs"], strict=True)
    for worker, (given_group, own_group) in zip(draft.get("cluster.workers"), groups, strict=True):
        given, own = _get_pod(given_group), _get_pod(own_group)
        if tolerations := _find_more(given, own, "tolerations"):
            worker["tolerations"] = tolerations
        if (size := _find_shared_memory(given)) != _find_shared_memory(own):
            worker["resources"]["sharedMemory"] = format_size(size)
        cpus, default = (each["rayStartParams"].get("num-cpus") for each in (given_group, own_group))
        if cpus != default:
            worker["numCpus"] = int(cpus)
        _add_topology(draft, given)
        for key in given.keys() - own.keys() - {"affinity", "tolerations"}:
            draft.leave_out(f"{key} of the pods of {given_group['groupName']}", FABRIC)


def format_size(size: float) -> str:
    """Bytes as a quantity with the largest unit that divides them."""
    for power, unit in ((40, "Ti"), (30, "Gi"), (20, "Mi"), (10, "Ki")):
        if size % 2**power == 0:
            return f"{int(size) >> power}{unit}"
    return str(int(size))


def _render(draft: Draft) -> Json | None:
    """The RayCluster of the job so far. None if it is not valid."""
    manifest = draft.build_manifest()
    validated = validate_documents([Document(draft.name, 1, manifest, {})])
    if validated.findings:
        return None
    children = render_children(detect_network(build_offline_job(manifest, validated), ()))
    return next(each for each in children if each["kind"] == "RayCluster")


def _get_pod(group: Json) -> Json:
    pod: Json = group["template"]["spec"]
    return pod


def _find_more(given: Json, own: Json, key: str) -> list[Json]:
    return [each for each in given.get(key, []) if each not in own.get(key, [])]


def _find_shared_memory(pod: Json) -> int:
    sizes = (each["emptyDir"]["sizeLimit"] for each in pod["volumes"] if each["name"] == "shared-memory")
    return int(next(sizes))


def _add_variables(draft: Draft, given: list[Json], own: list[Json]) -> None:
    """The variables that the operator does not set: by itself, for the fabric of the nodes, or for an attempt."""
    operators = {each["name"]: each for each in own}
    fabric = {variable.name for profile in load_profiles().values() for variable in profile.env}
    attempt = next(each["value"] for each in given if each["name"] == ATTEMPT_DIRECTORY)
    for each in given:
        if operators.get(each["name"]) == each or attempt in each.get("value", ""):
            continue
        if each["name"] == "HF_HOME":
            draft.put("storage.hfHome", each["value"])
        elif each["name"] in fabric:
            draft.leave_out(f"variable {each['name']}", FABRIC)
        else:
            apply_env(draft, [each])


def _add_topology(draft: Draft, pod: Json) -> None:
    """The affinity between the workers, which topology sets, or a ComputeDomain."""
    affinity = pod.get("affinity", {}).get("podAffinity", {})
    required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution", [])
    preferred = [
        each["podAffinityTerm"] for each in affinity.get("preferredDuringSchedulingIgnoredDuringExecution", [])
    ]
    for mode, terms in (("required", required), ("preferred", preferred)):
        if terms and "resourceClaims" not in pod:
            draft.put("scheduling.topology", {"key": terms[0]["topologyKey"], "mode": mode})
