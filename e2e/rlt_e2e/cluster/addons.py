"""What a new cluster gets: KubeRay, a DNS service, and the machine's Python environment in the trainer's pods."""

import hashlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path

from rlt_e2e.cluster import control_plane, images
from rlt_e2e.cluster.go_programs import GO_FOLDER
from rlt_e2e.cluster.layout import Layout
from rlt_e2e.cluster.programs import Programs
from rlt_e2e.cluster.stages import cache_folder

REPOSITORY = Path(__file__).parents[3]

MOUNTED = tuple(REPOSITORY / name for name in (".venv", "trainer", "api", "pod"))
"""Read-only in every container of a trainer image, at the machine's own paths: editable installs name them."""

COMPILED = cache_folder() / "compiled"
COMPILED_IN_PODS = Path("/var/cache/rlt-compiled")
"""Writable in these containers, a folder for each user: what one pod compiles serves the next. torch and vLLM key the
files by content."""
CACHE_VARIABLES = ("TORCHINDUCTOR_CACHE_DIR", "VLLM_CACHE_ROOT")

TRAINER_IMAGES = "localhost/rlt-trainer:"

Kubectl = Callable[..., str]


def build_pause(programs: Programs) -> None:
    images.build_image(images.DOCKERFILES / "pause.Dockerfile", context=programs.catatonit.parent, tag=images.PAUSE)


def build_images(programs: Programs) -> list[str]:
    """The tags that every node gets, the pause image apart."""
    images.build_image(images.DOCKERFILES / "kuberay.Dockerfile", context=programs.built, tag=images.KUBERAY)
    images.build_base()
    images.build_image(
        images.DOCKERFILES / "trainer.Dockerfile",
        context=images.DOCKERFILES,
        tag=images.TRAINER,
        build_args={"BASE": images.BASE, "VENV": str(MOUNTED[0])},
    )
    return [images.KUBERAY, images.TRAINER]


def fingerprint() -> str:
    """Changes with what makes a running cluster's add-ons out of date: these files, the pins, the repository's path."""
    pins = (GO_FOLDER / "go.mod", GO_FOLDER / "go.sum")
    files = [Path(__file__), *sorted(images.DOCKERFILES.iterdir()), *pins]
    parts = [str(REPOSITORY).encode(), *(file.read_bytes() for file in files)]
    return hashlib.sha256(b"\0".join(parts)).hexdigest()[:16]


def install(layout: Layout, programs: Programs, kubectl: Kubectl) -> None:
    """Apply them all; KubeRay's operator itself only where there are nodes to run it. Repeatable."""
    config = layout.state / "kuberay"
    shutil.rmtree(config, ignore_errors=True)
    shutil.copytree(programs.built / "kuberay", config)
    kubectl("apply", "--server-side", "--force-conflicts", "-f", config / "crd" / "bases")
    if not layout.nodes:
        return
    COMPILED.mkdir(parents=True, exist_ok=True)
    COMPILED.chmod(0o1777)  # pods run as different users
    manifests = [*control_plane.build_manifests(layout), *environment_policy(), _namespace("kuberay-system")]
    apply_list = {"apiVersion": "v1", "kind": "List", "items": manifests}
    kubectl("apply", "--server-side", "--force-conflicts", "-f", "-", input=json.dumps(apply_list))
    overlay = config / "overlay"
    overlay.mkdir()
    (overlay / "kustomization.yaml").write_text(json.dumps(kuberay_overlay()))
    kubectl("apply", "--server-side", "--force-conflicts", "-k", overlay)


def kuberay_overlay() -> dict[str, object]:
    """KubeRay as shipped, with a local image, without its CPU limit and the delays of its probe."""
    name, tag = images.KUBERAY.rsplit(":", 1)
    container = "/spec/template/spec/containers/0"
    changes = [
        {"op": "remove", "path": f"{container}/resources/limits/cpu"},
        {"op": "replace", "path": f"{container}/readinessProbe/initialDelaySeconds", "value": 0},
        {"op": "replace", "path": f"{container}/readinessProbe/periodSeconds", "value": 1},
    ]
    return {
        "apiVersion": "kustomize.config.k8s.io/v1beta1",
        "kind": "Kustomization",
        "namespace": "kuberay-system",
        "resources": ["../rbac", "../manager"],
        "images": [{"name": "kuberay/operator", "newName": name, "newTag": tag}],
        "patches": [{"target": {"kind": "Deployment"}, "patch": json.dumps(changes)}],
    }


def environment_policy() -> list[dict[str, object]]:
    """A MutatingAdmissionPolicy that mounts MOUNTED and COMPILED into the trainer images' containers."""
    places = {folder: folder for folder in MOUNTED} | {COMPILED: COMPILED_IN_PODS}
    names = [f"rlt-{folder.name.lstrip('.')}" for folder in places]
    volumes = ", ".join(
        f"Object.spec.volumes{{name: {_cel(name)}, hostPath: "
        f"Object.spec.volumes.hostPath{{path: {_cel(folder)}, type: 'Directory'}}}}"
        for name, folder in zip(names, places, strict=True)
    )

    def variables(field: str) -> str:
        user = f"{_cel(COMPILED_IN_PODS)} + '/' + string(object.spec.?securityContext.?runAsUser.orValue(0))"
        values = {name: f"{user} + {_cel('/' + name.lower())}" for name in CACHE_VARIABLES}
        return ", ".join(
            f"Object.spec.{field}.env{{name: {_cel(name)}, value: {value}}}" for name, value in values.items()
        )

    def containers(field: str) -> str:
        mounts = ", ".join(
            f"Object.spec.{field}.volumeMounts{{name: {_cel(name)}, mountPath: {_cel(place)}, "
            f"readOnly: {'false' if place == COMPILED_IN_PODS else 'true'}}}"
            for name, place in zip(names, places.values(), strict=True)
        )
        return (
            f"object.spec.?{field}.orValue([]).filter(c, c.image.startsWith({_cel(TRAINER_IMAGES)}))"
            f".map(c, Object.spec.{field}{{name: c.name, volumeMounts: [{mounts}], env: [{variables(field)}]}})"
        )

    fields = ("containers", "initContainers")
    patch = ", ".join([f"volumes: [{volumes}]", *(f"{field}: {containers(field)}" for field in fields)])
    is_trainer = " || ".join(
        f"object.spec.?{field}.orValue([]).exists(c, c.image.startsWith({_cel(TRAINER_IMAGES)}))" for field in fields
    )
    name = "rlt-python-environment"
    api = "admissionregistration.k8s.io/v1beta1"
    policy = {
        "matchConstraints": {
            "resourceRules": [
                {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}
            ]
        },
        "matchConditions": [{"name": "trainer-image", "expression": is_trainer}],
        "failurePolicy": "Fail",
        "reinvocationPolicy": "IfNeeded",
        "mutations": [
            {
                "patchType": "ApplyConfiguration",
                "applyConfiguration": {"expression": f"Object{{spec: Object.spec{{{patch}}}}}"},
            }
        ],
    }
    return [
        {"apiVersion": api, "kind": "MutatingAdmissionPolicy", "metadata": {"name": name}, "spec": policy},
        {
            "apiVersion": api,
            "kind": "MutatingAdmissionPolicyBinding",
            "metadata": {"name": name},
            "spec": {"policyName": name},
        },
    ]


def _namespace(name: str) -> dict[str, object]:
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}


def _cel(value: str | Path) -> str:
    """A CEL string literal."""
    return json.dumps(str(value))
