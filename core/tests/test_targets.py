"""Jobs for places without Kubernetes, against golden files. UPDATE_GOLDEN=1 writes the files."""

from __future__ import annotations

import http.server
import json
import os
import re
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from rlt_core.job import Job, parse_job
from rlt_core.targets.compose import build_compose_file
from rlt_core.targets.docker import build_docker_script
from rlt_core.targets.dstack import build_fleet, build_task
from rlt_core.targets.launch import Launch, build_launch, decide_host_network
from rlt_core.targets.left_out import find_left_out
from rlt_core.targets.ray import build_ray_script
from rlt_core.targets.slurm import SlurmOptions, build_slurm_script
from rlt_core.targets.slurm_containers import RUNTIMES
from rlt_pod import await_nodes
from separate_environment import install

GOLDEN = Path(__file__).parent / "golden/targets"
GPUS = {"resourceName": "amd.com/gpu", "count": 8, "memory": "192Gi"}
VERL: dict[str, Any] = {
    "framework": {
        "type": "command",
        "command": [
            *("python3", "-m", "verl.trainer.main_ppo"),
            *("data.train_files=/checkpoints/data/gsm8k/train.parquet", 'trainer.logger=["console","wandb"]'),
            *("trainer.n_gpus_per_node=8", "trainer.nnodes=2", "trainer.default_local_dir=/checkpoints/ppo"),
        ],
    },
    "network": {"profile": "amd-roce-mlx5"},
    "security": {"supplementalGroups": [109]},
    "observability": {"wandb": {"apiKey": {"name": "wandb", "key": "apiKey"}}},
    "storage": {"claimName": "checkpoints", "mountPath": "/checkpoints"},
    "scheduling": {"queueName": "team"},
    "activeDeadlineSeconds": 2592000,
    "cluster": {
        "image": "registry.example/verl:rocm",
        "workers": [
            {
                "replicas": 2,
                "resources": {"cpu": "28", "memory": "200Gi", "sharedMemory": "128Gi"},
                "accelerator": GPUS,
                "podTemplate": {"spec": {"hostIPC": True}},
            }
        ],
    },
}
"""The job of verl's guide for AMD clusters with Slurm."""
TWO_GROUPS: dict[str, Any] = {
    "framework": {"type": "command", "command": ["python3", "start.py"], "workingDirectory": "/mnt/rlt/roll"},
    "cluster": {
        "image": "registry.example/roll:cuda",
        "workers": [
            {
                "name": name,
                "replicas": replicas,
                "resources": {"cpu": "32", "memory": "512Gi"},
                "accelerator": {"resourceName": "nvidia.com/gpu", "count": 8},
            }
            for name, replicas in (("train", 2), ("infer", 1))
        ],
    },
}
ONE_NODE = {**TWO_GROUPS, "cluster": {**TWO_GROUPS["cluster"], "workers": [TWO_GROUPS["cluster"]["workers"][1]]}}
BUILTIN = {
    "model": {"path": "/mnt/rlt/models/qwen"},
    "data": {"preset": "gsm8k", "path": "/mnt/rlt/gsm8k"},
    "training": {"totalSteps": 10, "trainBatchSize": 16},
    "cluster": ONE_NODE["cluster"],
}


def decide(name: str, spec: dict[str, Any]) -> Job:
    metadata = {"namespace": "default", "name": name, "uid": "11111111", "generation": 1, "resourceVersion": "1"}
    job = parse_job({"metadata": metadata, "spec": spec})
    assert job.findings == ()
    return decide_host_network(job, ())


def launch(name: str, spec: dict[str, Any], **options: Any) -> Launch:
    return build_launch(decide(name, spec), **options)


def to_yaml(*documents: dict[str, Any]) -> str:
    return yaml.safe_dump_all(documents, sort_keys=False, width=120)


TEXTS: dict[str, Callable[[], str]] = {
    "verl.ray.sh": lambda: build_ray_script(launch("verl", VERL)),
    "verl.docker.sh": lambda: build_docker_script(launch("verl", VERL)),
    "verl.podman.sbatch": lambda: build_slurm_script(launch("verl", VERL), SlurmOptions("podman", "mi300x", "rl")),
    "verl.dstack.yml": lambda: to_yaml(build_fleet(launch("verl", VERL)), build_task(launch("verl", VERL))),
    "roll.apptainer.sbatch": lambda: build_slurm_script(launch("roll", TWO_GROUPS), SlurmOptions("apptainer")),
    "roll.compose.yaml": lambda: to_yaml(build_compose_file(launch("roll", ONE_NODE, storage="/data"))),
}


@pytest.mark.parametrize("name", TEXTS)
def test_texts_equal_the_golden_file(name: str) -> None:
    text = TEXTS[name]()
    golden = GOLDEN / name
    if os.environ.get("UPDATE_GOLDEN"):
        golden.write_text(text)
    assert text == golden.read_text()


def scripts() -> Iterator[tuple[str, str]]:
    for spec in (VERL, TWO_GROUPS, BUILTIN):
        each = launch("sum", spec)
        yield "ray", build_ray_script(each)
        yield "docker", build_docker_script(each)
        yield from ((runtime, build_slurm_script(each, SlurmOptions(runtime))) for runtime in RUNTIMES)
        yield "dstack", "#!/bin/bash\n" + build_task(each)["commands"][0]


@pytest.mark.slow  # installs the environment
def test_scripts_pass_shellcheck(tmp_path: Path) -> None:
    files = []
    for number, (name, text) in enumerate(scripts()):
        files.append(tmp_path / f"{number}-{name}.sh")
        files[-1].write_text(text)
        written = re.findall(r"cat > (\S+\.sh) <<'RLT_END_OF_FILE'\n(.*?)RLT_END_OF_FILE", text, re.S)
        for path, content in written:
            files.append(tmp_path / f"{number}-{name}-{Path(path).name}")
            files[-1].write_text(content)
    subprocess.run([install("targets").parent / "shellcheck", *files], check=True)


@pytest.mark.slow  # installs the environment
def test_dstack_parses_fleet_and_task() -> None:
    program = """
import sys, yaml
from dstack._internal.core.models.configurations import parse_apply_configuration
fleet, task = map(parse_apply_configuration, yaml.safe_load_all(sys.stdin))
gpu = task.resources.gpu
print(task.nodes, task.stop_criteria.value, gpu.count.min, gpu.memory.min, fleet.placement.value)
"""
    text = TEXTS["verl.dstack.yml"]()
    done = subprocess.run([install("targets"), "-c", program], input=text, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["2", "master-done", "8", "192GB", "cluster"]


def test_paths_move_to_the_given_storage() -> None:
    moved = launch("sum", BUILTIN, storage="/lustre/rlt")
    config = json.loads(moved.files["/lustre/rlt/configs/sum-11111111/training.json"])
    assert config["model"]["path"] == "/lustre/rlt/models/qwen"
    assert config["runDirectory"] == "/lustre/rlt/runs/sum-11111111"
    assert moved.environment["HF_HOME"] == "/lustre/rlt/huggingface"
    assert "/mnt/rlt" not in json.dumps([*moved.files.values(), dict(moved.environment), moved.mounts])


def test_jobs_that_share_machines_have_free_ports_for_metrics() -> None:
    assert "--port" not in launch("sum", BUILTIN).files["/mnt/rlt/configs/sum-11111111/program.sh"]
    program = launch("sum", BUILTIN, any_port=True).files["/mnt/rlt/configs/sum-11111111/program.sh"]
    assert "--port \\\n  0\n" in program


def test_a_step_before_the_program_runs_once(tmp_path: Path) -> None:
    steps = [{"name": "data", "command": ["python3", "-c", "print('prepared')"]}]
    framework = {"type": "command", "command": ["python3", "-c", "print('trained')"], "prepare": steps}
    spec = {"framework": framework, "cluster": ONE_NODE["cluster"]}
    moved = launch("sum", spec, storage=str(tmp_path))
    Path(moved.folder).mkdir(parents=True)
    Path(moved.program).write_text(moved.files[moved.program])
    outputs = [subprocess.run(["bash", moved.program], capture_output=True, text=True, check=True) for _ in range(2)]
    assert [each.stdout.split() for each in outputs] == [["prepared", "trained"], ["trained"]]


def test_variables_refer_to_earlier_ones() -> None:
    env = [{"name": "A", "value": "1"}, {"name": "B", "value": "$(A)/$(UNKNOWN)"}]
    spec = {**BUILTIN, "cluster": {**BUILTIN["cluster"], "env": env}}
    assert launch("sum", spec).environment["B"] == "1/$(UNKNOWN)"


def test_fields_of_kubernetes_are_named() -> None:
    fields = [warning.partition(":")[0] for warning in find_left_out(decide("verl", VERL))]
    assert fields == ["spec.scheduling.queueName", "spec.cluster.workers[0].podTemplate", "spec.storage.claimName"]


def test_compose_has_one_machine() -> None:
    with pytest.raises(ValueError, match=r"spec\.cluster\.workers: 3 workers need 3 machines"):
        build_compose_file(launch("roll", TWO_GROUPS))


def test_a_profile_without_host_network_keeps_its_settings() -> None:
    job = decide("sum", {**ONE_NODE, "network": {"profile": "azure-infiniband"}})
    assert job.status.network
    assert job.status.network.rejection is None
    assert job.status.network.attach.mode == "podNetwork"


@pytest.fixture
def dashboard() -> Iterator[tuple[str, list[dict[str, str]]]]:
    """The address of a server with the answer of Ray's state API, and the nodes in it."""
    nodes: list[dict[str, str]] = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = json.dumps({"result": True, "data": {"result": {"result": nodes}}}).encode()
            self.send_response(200)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:
            pass

    with http.server.HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}", nodes
        server.shutdown()


def test_missing_nodes_are_named(
    dashboard: tuple[str, list[dict[str, str]]], capsys: pytest.CaptureFixture[str]
) -> None:
    url, nodes = dashboard
    nodes += [{"node_name": "gpu-1", "state": "ALIVE"}, {"node_name": "gpu-3", "state": "DEAD"}]
    assert await_nodes.main([url, "0", "gpu-1", "gpu-2", "gpu-3"]) == 1
    assert capsys.readouterr().err == "rlt: gpu-2 gpu-3 did not join Ray within 0 s\n"
    nodes += [{"node_name": "gpu-2", "state": "ALIVE"}, {"node_name": "gpu-3", "state": "ALIVE"}]
    assert await_nodes.main([url, "0", "gpu-1", "gpu-2", "gpu-3"]) == 0


def test_a_head_that_does_not_respond_has_no_nodes() -> None:
    assert await_nodes.find_missing("http://127.0.0.1:1", ["gpu-1"]) == ["gpu-1"]
