"""The examples: validated, and rendered for nodes that fit, with what their headers promise."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from fabric.node_builders import GPUS, HCA, IB, node, nvidia
from fabric.node_sets import CASES

from rlt import Job
from rlt.manifest_files import parse_documents
from rlt.offline_job import build_offline_job, detect_network
from rlt.validation import validate_documents
from rlt_api.model import quantity_value
from rlt_api.rules.device_memory import list_moments
from rlt_api.rules.engine_memory import cache_share, read_trained
from rlt_api.rules.memory_parts import GIB
from rlt_api.rules.volume_size import list_volume_parts
from rlt_api.spec.runtime import resolve
from rlt_api.spec.training_config import PROGRAMS_PATH
from rlt_api.status.network import NetworkStatus
from rlt_api.validation.resolved_spec import build_resolved_spec
from rlt_api.validation.validate import validate_job
from rlt_core.fabric.nodes import parse_nodes

FOLDER = Path(__file__).parents[2] / "examples"
EXAMPLES = sorted(FOLDER.glob("*.yaml"))
SIXTEEN = [
    node(f"node-{index}", nvidia() | IB | {"topology.kubernetes.io/rack": f"rack-{index // 8}"}, GPUS | HCA)
    for index in range(16)
]
SPOT = [node(name, nvidia(**{"cloud.google.com/gke-spot": "true"}), GPUS) for name in ("a", "b")]
SHARED = {"rdma/hca_shared_devices_a": 1}
Json = dict[str, Any]


def load(name: str) -> Job:
    """The job of examples/NUMBER-name.yaml."""
    (path,) = FOLDER.glob(f"[0-9][0-9]-{name}.yaml")
    return Job.from_file(path)


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_a_model_of_the_hub_is_downloaded_by_a_step(path: Path) -> None:
    """With a volume, a step downloads it once, with its progress in the status. The operator adds it."""
    spec = Job.from_file(path).manifest["spec"]
    model = spec.get("model", {}).get("path", "/")
    if model.startswith("/") or "storage" not in spec:
        return
    assert PROGRAMS_PATH not in path.read_text()
    revision = spec["model"].get("revision")
    command = ["python3", PROGRAMS_PATH, "download", model, *(["--revision", revision] if revision else [])]
    assert build_resolved_spec(spec, None)["framework"]["prepare"][0]["command"] == command


def decide(job: Job, nodes: list[Json]) -> NetworkStatus:
    """status.network on these nodes."""
    network = detect_network(build_offline_job(job.manifest, job.check()), parse_nodes(nodes)).status.network
    assert network
    return network


def render(name: str, nodes: list[Json] | None = None) -> dict[str, Json]:
    """The manifests of an example by their kinds."""
    return {each["kind"]: each for each in load(name).render(nodes or ())}


def get_pod(rendered: Mapping[str, Json], group: int = 0) -> Json:
    """The pod of a worker group."""
    pod: Json = rendered["RayCluster"]["spec"]["workerGroupSpecs"][group]["template"]["spec"]
    return pod


def get_head(rendered: Mapping[str, Json]) -> Json:
    pod: Json = rendered["RayCluster"]["spec"]["headGroupSpec"]["template"]["spec"]
    return pod


def get_config(rendered: Mapping[str, Json]) -> Json:
    """The trainer's config."""
    config: Json = yaml.safe_load(rendered["ConfigMap"]["data"]["training.json"])
    return config


def get_variables(pod: Json) -> dict[str, Any]:
    """Name -> value, or the reference."""
    return {each["name"]: each.get("value", each.get("valueFrom")) for each in pod["containers"][0]["env"]}


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_a_warning_has_a_comment_at_its_field(path: Path) -> None:
    documents = list(parse_documents(path.name, path.read_bytes()))
    validated = validate_documents(documents)
    assert validated.findings == ()
    lines = path.read_text().splitlines()
    for note in validated.notes:
        field = re.match(r"[\w.\[\]]+", note.message)
        if field and field[0].startswith("spec."):
            assert "#" in lines[documents[0].line_of(field[0]) - 1], note.message


def test_qwen3_30b_a3b_has_room_on_each_gpu_and_on_its_volume() -> None:
    """The numbers in the comments of example 32 and of its volume."""
    spec = validate_job("qwen3-30b-a3b", load("qwen3-30b-a3b").manifest["spec"]).spec
    assert spec
    trained = read_trained(spec)
    share = cache_share(spec)
    assert trained
    assert share
    device = 79 * GIB
    assert share * device / GIB == pytest.approx(20, abs=1)
    peaks = [moment.bytes / GIB for moment in list_moments(spec, *trained, device)]
    assert max(peaks) < 70
    volume = yaml.safe_load((FOLDER / "volumes/h100.yaml").read_text())
    size = volume["spec"]["resources"]["requests"]["storage"]
    kept = sum(part.bytes for part in list_volume_parts(spec)) / GIB
    assert 1.2 * kept < quantity_value(size) / GIB < 1.5 * kept


@pytest.mark.parametrize("name", ["h100", "mi300x", "l4"])
def test_a_short_job_fits_the_runtimes_and_gets_their_gpus(name: str) -> None:
    model = {"path": "Qwen/Qwen3-0.6B", "lora": {"rank": 8}}
    training = {"totalSteps": 10, "trainBatchSize": 32}
    spec = {"runtimeRef": {"name": name}, "model": model, "data": {"preset": "gsm8k"}, "training": training}
    head = {"apiVersion": "rlt.dev/v1alpha1", "kind": "RLTrainingJob", "metadata": {"name": "short"}}
    text = [(FOLDER / f"{folder}/{name}.yaml").read_text() for folder in ("runtimes", "volumes")]
    text.append(yaml.safe_dump({**head, "spec": {**spec, "cluster": {"workers": [{"replicas": 1}]}}}))
    documents = list(parse_documents("short.yaml", "\n---\n".join(text).encode()))
    validated = validate_documents(documents)
    assert (validated.findings, validated.notes) == ((), ())
    (job,) = validated.jobs()
    (group,) = resolve(job["spec"], validated.runtimes[name])["cluster"]["workers"]
    assert group["pool"] == name


@pytest.mark.parametrize(
    ("name", "nodes", "fabric", "variables", "devices"),
    [
        (
            "infiniband",
            CASES["onprem-ib"].nodes,
            "infiniband",
            {"NCCL_IB_HCA": "mlx5"},
            {"rdma/hca_shared_devices_a": 1},
        ),
        ("sixteen-nodes", SIXTEEN, "infiniband", {"NCCL_IB_HCA": "mlx5"}, {"rdma/hca_shared_devices_a": 1}),
        (
            "mi300x-roce",
            CASES["amd-verl-cluster"].nodes,
            "roce",
            {"NCCL_IB_GID_INDEX": "3", "HSA_NO_SCRATCH_RECLAIM": "1", "NCCL_IB_HCA": "mlx5", "RCCL_MSCCL_ENABLE": "0"},
            SHARED | {"amd.com/gpu": 8},
        ),
        ("efa", CASES["aws-p5"].nodes, "efa", {"FI_EFA_USE_HUGE_PAGE": "0"}, {"vpc.amazonaws.com/efa": 32}),
        ("efa", [node("cpu", {}, {})], "efa", {"FI_EFA_USE_HUGE_PAGE": "0"}, {"vpc.amazonaws.com/efa": 32}),
        ("gb200", CASES["two-cliques"].nodes, "mnnvl+infiniband", {"NCCL_MNNVL_ENABLE": "1"}, {"rdma/ib_nic": 1}),
        ("ppo-two-nodes", CASES["tcp"].nodes, "tcp", {}, {"nvidia.com/gpu": 8}),
        ("spot", SPOT, "tcp", {}, {"nvidia.com/gpu": 8}),
    ],
)
def test_pods_have_the_devices_and_variables_of_the_fabric(
    name: str, nodes: list[Json], fabric: str, variables: dict[str, str], devices: dict[str, int]
) -> None:
    network = decide(load(name), nodes)
    assert (network.fabric, network.rejection) == (fabric, None)
    pod = get_pod(render(name, nodes))
    assert variables.items() <= get_variables(pod).items()
    limits = pod["containers"][0]["resources"]["limits"]
    assert {resource: int(limits[resource]) for resource in devices} == devices


@pytest.mark.parametrize("name", ["infiniband", "sixteen-nodes", "mi300x-roce", "gb200"])
def test_without_rdma_the_job_does_not_start(name: str) -> None:
    amd = {"amd.com/gpu": 8}
    rejection = decide(load(name), [node("a", {}, GPUS), node("b", {}, amd)]).rejection
    assert rejection
    assert rejection.code == "RdmaNotFound"


def test_workers_of_gb200_prefer_one_clique_and_claim_a_compute_domain() -> None:
    network = decide(load("gb200"), CASES["two-cliques"].nodes)
    assert any("2 NVLink cliques" in warning for warning in network.warnings)
    rendered = render("gb200", CASES["two-cliques"].nodes)
    pod = get_pod(rendered)
    (term,) = pod["affinity"]["podAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"]
    assert term["podAffinityTerm"]["topologyKey"] == "nvidia.com/gpu.clique"
    template = rendered["ComputeDomain"]["spec"]["channel"]["resourceClaimTemplate"]["name"]
    assert pod["resourceClaims"][0]["resourceClaimTemplateName"] == template


def test_sixteen_nodes_form_four_copies_of_the_weights_in_a_queue() -> None:
    rendered = render("sixteen-nodes", SIXTEEN)
    config = get_config(rendered)
    assert config["workers"] * config["devicesPerWorker"] // config["training"]["fsdp"]["fsdpSize"] == 4
    assert rendered["RayCluster"]["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "research"
    (term,) = get_pod(rendered)["affinity"]["podAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"]
    assert term["podAffinityTerm"]["topologyKey"] == "topology.kubernetes.io/rack"


def test_ppo_has_the_sizes_of_verls_guide() -> None:
    config = get_config(render("ppo-two-nodes"))
    assert (config["workers"], config["devicesPerWorker"], config["rollout"]["responsesPerPrompt"]) == (2, 8, 1)
    assert config["algorithm"]["critic"]["learningRate"] == 1e-5
    assert config["algorithm"]["klInReward"]["klCoef"] == 0.001
    sizes = ("trainBatchSize", "ppoMiniBatchSize", "ppoMicroBatchSizePerDevice", "totalEpochs")
    assert [config["training"][size] for size in sizes] == [256, 64, 4, 15]


def test_lora_fits_into_24_gb_and_all_weights_do_not() -> None:
    job = load("lora-24-gb")
    assert not job.validate()
    manifest = job.manifest
    del manifest["spec"]["model"]["lora"]
    (finding,) = Job.from_manifest(manifest).validate()
    assert "24" in str(finding)


CONFIGS: dict[str, Callable[[Json], object]] = {
    "dapo": lambda config: (
        config["algorithm"]["clipRatioHigh"] > config["algorithm"]["clipRatioLow"]
        and config["algorithm"]["filterGroups"]["maxNumGenBatches"] == 10
        and config["algorithm"]["overlongBuffer"]["length"] == 2048
        and config["algorithm"]["klLossCoef"] == 0
    ),
    "separate-rollout": lambda config: (
        config["workers"] * config["devicesPerWorker"] == 8
        and config["rolloutWorkers"] * config["rolloutDevicesPerWorker"] == 24
    ),
    "tools": lambda config: len(config["rollout"]["multiTurn"]["tools"]) == 2,
    "openenv": lambda config: config["rollout"]["multiTurn"]["openenv"]["concurrency"] == 64 and not config["rewards"],
    "judge": lambda config: sum(each["weight"] * (10 if "judge" in each else 1) for each in config["rewards"]) == 1.2,
    "resume-from-another-job": lambda config: (
        config["checkpoint"]["resumeFromPath"].startswith("/mnt/rlt/runs/arithmetic-grpo-")
        and config["training"]["totalSteps"] > 100
    ),
    "s3-data": lambda config: config["data"]["path"] == "/mnt/rlt/s3/datasets/gsm8k",
}


@pytest.mark.parametrize("name", CONFIGS)
def test_the_trainer_gets_what_the_header_promises(name: str) -> None:
    assert CONFIGS[name](get_config(render(name)))


def test_a_resumed_job_has_the_model_and_the_data_of_the_first() -> None:
    first, second = (load(name).manifest["spec"] for name in ("arithmetic-grpo", "resume-from-another-job"))
    assert (first["model"], first["data"]) == (second["model"], second["data"])


def test_separate_groups_run_on_their_own_kind_of_gpu() -> None:
    rendered = render("separate-rollout")
    products = [get_pod(rendered, group)["nodeSelector"]["nvidia.com/gpu.product"] for group in (0, 1)]
    assert products == ["NVIDIA-H100-80GB-HBM3", "NVIDIA-L40S"]


def test_a_job_of_kueue_has_the_queue_and_the_priority() -> None:
    rendered = render("kueue")
    assert rendered["RayCluster"]["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "team-a"
    assert get_pod(rendered)["priorityClassName"] == "low"


def test_only_the_workers_run_on_spot_nodes() -> None:
    rendered = render("spot", SPOT)
    worker = get_pod(rendered)
    head = get_head(rendered)
    assert worker["nodeSelector"] == {"cloud.google.com/gke-spot": "true"}
    assert any(each["key"] == "cloud.google.com/gke-spot" for each in worker["tolerations"])
    assert worker["terminationGracePeriodSeconds"] < 30
    assert head["nodeSelector"] == {"pool": "standard"}
    assert not any(each.get("key") == "cloud.google.com/gke-spot" for each in head.get("tolerations", []))


def test_the_config_map_of_the_reward_is_mounted_in_the_head() -> None:
    head = get_head(render("reward-function"))
    (volume,) = (each for each in head["volumes"] if "digits" in str(each))
    mounts = {each["name"]: each["mountPath"] for each in head["containers"][0]["volumeMounts"]}
    assert mounts[volume["name"]].startswith("/etc/rlt-functions")


def test_the_hub_cache_is_a_volume_and_the_token_a_reference() -> None:
    variables = get_variables(get_head(render("hub-data")))
    assert variables["HF_HOME"].startswith("/mnt/models")
    assert variables["HF_TOKEN"] == {"secretKeyRef": {"name": "hugging-face", "key": "token"}}
