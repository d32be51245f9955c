"""Jobs for places without Kubernetes, against golden files. UPDATE_GOLDEN=1 writes the files."""

from __future__ import annotations

import http.server
import io
import json
import os
import re
import subprocess
import threading
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from rlt_core.job import Job, parse_job
from rlt_core.targets.compose import PROGRAMS_PATH, build_compose_file
from rlt_core.targets.docker import build_docker_script
from rlt_core.targets.dstack import build_fleet, build_task
from rlt_core.targets.launch import Launch, build_launch, decide_host_network
from rlt_core.targets.left_out import NEEDS_SCHEDULER, find_left_out
from rlt_core.targets.programs import DECODER, SUPERVISED, build_programs_archive
from rlt_core.targets.ray import build_ray_script
from rlt_core.targets.slurm import SlurmOptions, build_slurm_script
from rlt_core.targets.slurm_containers import RUNTIMES, ContainerRuntime
from rlt_pod import await_nodes
from rlt_pod.preflight.expected import parse_expected
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
    "preflight": {"level": "basic"},
    "failurePolicy": {"maxRestarts": 3, "progressDeadlineSeconds": 3600},
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


def shown(name: str, spec: dict[str, Any], **options: Any) -> Launch:
    """A launch with a short text instead of the programs."""
    return replace(launch(name, spec, **options), programs="UHJvZ3JhbXM=")


def to_yaml(*documents: dict[str, Any]) -> str:
    return yaml.safe_dump_all(documents, sort_keys=False, width=120)


TEXTS: dict[str, Callable[[], str]] = {
    "verl.ray.sh": lambda: build_ray_script(shown("verl", VERL)),
    "verl.docker.sh": lambda: build_docker_script(shown("verl", VERL)),
    "verl.podman.sbatch": lambda: build_slurm_script(shown("verl", VERL), SlurmOptions("podman", "mi300x", "rl")),
    "verl.dstack.yml": lambda: to_yaml(build_fleet(shown("verl", VERL)), build_task(shown("verl", VERL))),
    "roll.apptainer.sbatch": lambda: build_slurm_script(shown("roll", TWO_GROUPS), SlurmOptions("apptainer")),
    "roll.compose.yaml": lambda: to_yaml(
        build_compose_file(shown("roll", ONE_NODE, storage="/data", programs=PROGRAMS_PATH))
    ),
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
    for spec in (BUILTIN, TWO_GROUPS):
        alone = launch("sum", spec)
        assert "--port" not in alone.files[alone.program]
        shared = launch("sum", spec, any_port=True)
        assert re.search(r"--port( \\\n )? 0", shared.files[shared.program])


def write_files(moved: Launch) -> None:
    """What a rendered script writes."""
    Path(moved.folder).mkdir(parents=True)
    for path, text in {**moved.files, moved.encoded_programs: moved.programs}.items():
        Path(path).write_text(text)


def test_a_step_before_the_program_runs_once(tmp_path: Path) -> None:
    steps = [{"name": "data", "command": ["python3", "-c", "print('prepared')"]}]
    framework = {"type": "command", "command": ["python3", "-c", "print('trained')"], "prepare": steps}
    moved = launch("sum", {"framework": framework, "cluster": ONE_NODE["cluster"]}, storage=str(tmp_path))
    write_files(moved)
    outputs = [subprocess.run(["bash", moved.program], capture_output=True, text=True, check=True) for _ in range(2)]
    words = [[line for line in each.stdout.splitlines() if "rlt" not in line and "-" not in line] for each in outputs]
    assert words == [["prepared", "trained"], ["trained"]]
    logs = sorted((tmp_path / "runs/sum-11111111/attempts").glob("*/program.log"))
    assert [log.read_text() for log in logs] == ["trained\n", "trained\n"]


def test_the_preflight_expects_machines_instead_of_pods() -> None:
    expected = parse_expected(launch("verl", VERL).files["/checkpoints/configs/verl-11111111/preflight.json"])
    assert (expected.level, expected.head_service, expected.shared_storage) == ("basic", "", True)
    assert (expected.head.shared_memory, expected.workers[0].shared_memory) == (0, 128 * 2**30)


@pytest.mark.parametrize(
    ("more", "option"),
    [
        ({}, "--first-step-deadline 7200"),
        ({"failurePolicy": {"progressDeadlineSeconds": 60}}, "--progress-deadline 60"),
        ({"observability": {"debugger": "ray"}}, "--progress-deadline 0"),
    ],
)
def test_the_deadline_for_progress_is_the_one_of_kubernetes(more: dict[str, Any], option: str) -> None:
    job = launch("sum", {**BUILTIN, **more})
    assert option in job.files[job.program]


def test_a_job_that_only_checks_runs_neither_steps_nor_program() -> None:
    step = {"name": "data", "command": ["python3", "download.py"]}
    framework = {"type": "command", "command": ["python3", "train.py"], "prepare": [step]}
    job = launch("sum", {"framework": framework, "cluster": ONE_NODE["cluster"], "preflight": {"only": True}})
    program = job.files[job.program]
    assert "--preflight-only" in program
    assert "download.py" not in program


def test_a_step_has_the_programs_of_the_archive() -> None:
    spec = {**BUILTIN, "model": {"path": "Qwen/Qwen3-8B"}, "storage": {"claimName": "rlt-runs"}}
    job = launch("sum", spec, programs="/tmp/rlt.pyz")
    assert "  python3 /tmp/rlt.pyz download Qwen/Qwen3-8B\n" in job.files[job.program]
    archive = subprocess.run(["python3", "-c", DECODER], input=job.programs.encode(), capture_output=True, check=True)
    assert "rlt_pod/download/download.py" in zipfile.ZipFile(io.BytesIO(archive.stdout)).namelist()


def test_one_node_downloads_objects_to_the_shared_storage() -> None:
    job = launch("sum", {**BUILTIN, "model": {"path": "s3://models/tiny"}}, programs="/tmp/rlt.pyz")
    step = "  python3 /tmp/rlt.pyz download --to /mnt/rlt/s3 --model spec.model.path=s3://models/tiny\n"
    assert step in job.files[job.program]


@pytest.mark.parametrize("build", [build_ray_script, build_docker_script])
def test_the_end_of_a_script_is_the_archive_of_programs(build: Callable[[Launch], str], tmp_path: Path) -> None:
    """The script runs in bash; a program in the place of Ray and Docker does what is submitted."""
    framework = {"type": "command", "command": ["python3", "-c", "print('trained')"]}
    spec = {"framework": framework, "cluster": ONE_NODE["cluster"]}
    script = tmp_path / "job.sh"
    script.write_text(build(launch("sum", spec, storage=str(tmp_path))))
    for name in ("ray", "docker"):
        program = tmp_path / "bin" / name
        program.parent.mkdir(exist_ok=True)
        program.write_text('#!/bin/bash\nwhile [ "$1" != -- ]; do shift; done\nshift\nexec "$@"\n')
        program.chmod(0o755)
    path = f"{tmp_path / 'bin'}:{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", script, "submit"], capture_output=True, text=True, check=True, env={**os.environ, "PATH": path}
    )
    assert done.stdout.startswith("trained\n")
    archive = tmp_path / "configs/sum-11111111/rlt_pod.pyz"
    assert archive.read_bytes() == build_programs_archive(frozenset(SUPERVISED))


@pytest.mark.parametrize("runtime", ["docker", "podman"])
def test_a_container_of_slurm_gets_the_devices_of_its_job(runtime: ContainerRuntime, tmp_path: Path) -> None:
    """On AMD, Slurm selects the devices of a job by ROCR_VISIBLE_DEVICES alone."""
    moved = launch("verl", VERL, storage=str(tmp_path))
    Path(moved.folder).mkdir(parents=True)
    script = build_slurm_script(moved, SlurmOptions(runtime))
    inherited = re.findall(r"--env=(\w+) ", script)
    (text,) = re.findall(r"start-node\.sh <<'RLT_END_OF_FILE'\n(.*?)RLT_END_OF_FILE", script, re.S)
    (tmp_path / "start-node.sh").write_text(text)
    ray = tmp_path / "ray"
    ray.write_text('#!/bin/bash\necho "HIP=$HIP_VISIBLE_DEVICES ROCR=${ROCR_VISIBLE_DEVICES:-}"\n')
    ray.chmod(0o755)
    of_slurm = {"SLURM_NODEID": "0", "SLURMD_NODENAME": "gpu-1", "SLURM_JOB_ID": "7", "ROCR_VISIBLE_DEVICES": "4,5,6,7"}
    passed = {
        name: value for name, value in {**of_slurm, "RLT_HEAD": "::1", "RLT_PORT": "1"}.items() if name in inherited
    }
    path = f"{tmp_path}:{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", tmp_path / "start-node.sh"], capture_output=True, text=True, check=True, env={**passed, "PATH": path}
    )
    assert done.stdout == "HIP=4,5,6,7 ROCR=\n"
    assert Path(moved.folder, "ray-ended-7").exists()


@pytest.mark.parametrize(("limit", "directive"), [(None, "--requeue"), (2, "--requeue"), (0, "--no-requeue")])
def test_slurm_itself_starts_a_job_again_unless_it_has_no_disruptions(limit: int | None, directive: str) -> None:
    job = launch("sum", {**BUILTIN, "failurePolicy": {"maxDisruptions": limit}})
    assert f"#SBATCH {directive}\n" in build_slurm_script(job, SlurmOptions())


def test_variables_refer_to_earlier_ones() -> None:
    env = [{"name": "A", "value": "1"}, {"name": "B", "value": "$(A)/$(UNKNOWN)"}]
    spec = {**BUILTIN, "cluster": {**BUILTIN["cluster"], "env": env}}
    assert launch("sum", spec).environment["B"] == "1/$(UNKNOWN)"


def test_fields_of_kubernetes_are_named() -> None:
    fields = [warning.partition(":")[0] for warning in find_left_out(decide("verl", VERL), "slurm")]
    assert fields == ["spec.scheduling.queueName", "spec.cluster.workers[0].podTemplate", "spec.storage.claimName"]


def test_the_image_of_a_model_is_named() -> None:
    (warning,) = find_left_out(decide("sum", {**BUILTIN, "model": {"path": "oci://ghcr.io/a/tiny:v1"}}), "slurm")
    assert warning.startswith("the image ghcr.io/a/tiny:v1 is not mounted: copy its files")


@pytest.mark.parametrize("target", NEEDS_SCHEDULER)
def test_fields_that_need_a_scheduler_are_named_where_there_is_none(target: str) -> None:
    policy = {"maxDisruptions": 3, "keepClusterSeconds": 600, "excludeFaultyNodes": True}
    job = decide("sum", {**BUILTIN, "failurePolicy": policy})
    named = [warning.partition(":")[0] for warning in find_left_out(job, target)]
    assert named == ([] if target == "slurm" else [f"spec.failurePolicy.{field}" for field in policy])


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
