"""Start the driver of ROLL on a worker of the Ray cluster, with the checkpoint to resume from.

    python3 rlt_pod.pyz run-roll --config FILE [--checkpoints DIRECTORY] -- python3 SCRIPT ARGUMENTS...

ROLL reads the number and kind of devices from its driver's machine (roll/platforms/__init__.py, and
num_gpus_per_node in roll/configs/base_config.py, ROLL 0.3.0), and the head has none. The program runs on the first node
with devices. Its output, exit code and signals are this process's. The script gets --config_path and
--config_name. With --checkpoints, the variable VARIABLE has the latest complete checkpoint in the directory, quoted for
OmegaConf, if there is one.

The config is compared with the devices of the cluster before the program starts. With a device_mapping that ROLL cannot
place, the program is not started, and the exit code is 1. Other contradictions are printed.

The file has no imports outside of the standard library, Ray and this package, except ROLL's for its config, because
it runs in the image of the job.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import Any

from rlt_pod.command.checkpoints import find_roll_checkpoint
from rlt_pod.command.roll_layout import Contradiction, list_contradictions, list_device_contradictions

VARIABLE = "RLT_ROLL_CHECKPOINT"
READ_BYTES = 65536
DEVICES = ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES")
"""Variables that Ray sets to "" for an actor without devices (ray/_private/accelerators, Ray 2.60)."""
PR_SET_PDEATHSIG = 1
"""prctl(2)."""


class Driver:
    """The program as a child of a Ray worker. A Ray actor: `send` runs while `read` waits."""

    def __init__(self, command: list[str], directory: str, variables: dict[str, str]) -> None:
        env = {name: value for name, value in os.environ.items() if value or name not in DEVICES}
        self._child = subprocess.Popen(
            command,
            cwd=directory,
            env={**env, **variables},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            bufsize=0,
            start_new_session=True,
            preexec_fn=_end_with_parent,
        )

    def read(self) -> bytes:
        """Return the next part of the output; nothing at its end."""
        assert self._child.stdout
        return os.read(self._child.stdout.fileno(), READ_BYTES)

    def wait(self) -> int:
        """Return the exit code, 128 + N if signal N ended the program."""
        code = self._child.wait()
        return code if code >= 0 else 128 - code

    def send(self, number: int) -> None:
        """Send a signal to the program and its children."""
        if self._child.poll() is None:
            os.killpg(self._child.pid, number)


def main(arguments: list[str]) -> int:
    """Run the command line and return the exit code of the program."""
    options, command = _parse(arguments)
    ray = import_module("ray")
    ray.init(address="auto", log_to_driver=False)
    node = find_node(ray.nodes())
    if node is None:
        print("run_roll: no node of the Ray cluster has accelerators", file=sys.stderr, flush=True)
        return 1
    variables = {"RAY_ADDRESS": ray.get_runtime_context().gcs_address}
    found = find_roll_checkpoint(options.checkpoints) if options.checkpoints else None
    if found:
        print(f"run_roll: resume from {found[1]}", flush=True)
        variables[VARIABLE] = f"'{found[1]}'"
    affinity = import_module("ray.util.scheduling_strategies").NodeAffinitySchedulingStrategy
    place = {"num_cpus": 0, "scheduling_strategy": affinity(node, soft=False)}
    config = ray.get(ray.remote(read_config).options(**place).remote(os.path.abspath(options.config), variables))
    problems = list(list_problems(config, count_devices(ray.nodes()), find_script(command)))
    for line in describe(config, problems):
        print(f"run_roll: {line}", file=sys.stderr, flush=True)
    if any(each.ends for each in problems):
        return 1
    actor = ray.remote(Driver).options(max_concurrency=2, **place)
    driver = actor.remote([*command, *build_config_options(options.config, command)], os.getcwd(), variables)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda received, frame: driver.send.remote(received))
    while output := ray.get(driver.read.remote()):
        sys.stdout.buffer.write(output)
        sys.stdout.buffer.flush()
    return int(ray.get(driver.wait.remote()))


def build_config_options(config: str, command: list[str]) -> list[str]:
    """Build the options of the script for the config. Hydra's initialize() takes no absolute path, and reads the path
    from the real folder of the script (hydra/initialize.py and hydra/_internal/utils.py, Hydra 1.3)."""
    path = os.path.relpath(os.path.dirname(config), os.path.dirname(os.path.realpath(find_script(command))))
    return ["--config_path", path, "--config_name", os.path.splitext(os.path.basename(config))[0]]


def find_script(command: list[str]) -> str:
    """Find ROLL's script in the command."""
    return next(word for word in command if word.endswith(".py"))


def read_config(path: str, variables: dict[str, str]) -> Any:
    """Read a config as ROLL does, with its list of defaults and its references (examples/start_rlvr_pipeline.py).
    Return the error as text if it cannot be read: ROLL fails with it as well, or has another version of Hydra.
    `path` is absolute. `variables`: those that references need. A Ray task, which may change its process."""
    os.environ.update(variables)
    try:
        hydra = import_module("hydra")
        omegaconf = import_module("omegaconf")
        with hydra.initialize_config_dir(os.path.dirname(path), version_base=None):
            config = hydra.compose(os.path.splitext(os.path.basename(path))[0])
        return omegaconf.OmegaConf.to_container(config, resolve=True)
    except Exception as error:  # of any module in the image
        return f"{type(error).__name__}: {error}"


def list_problems(config: Any, devices: int, script: str) -> Iterator[Contradiction]:
    """List the contradictions of a config with the devices of the cluster. The batches are RLVR's alone."""
    if isinstance(config, Mapping):
        is_rlvr = "rlvr" in os.path.basename(script)
        yield from (list_contradictions if is_rlvr else list_device_contradictions)(config, devices)


def describe(config: Any, problems: list[Contradiction]) -> Iterator[str]:
    """Describe what is known of the config: its contradictions, and the number of steps, which ROLL does not print."""
    if not isinstance(config, Mapping):
        yield f"the config is not compared with the devices of the pods: {config}"
        return
    for each in problems:
        yield f"{each.key}: {each.value}: {each.message}: {each.fix}"
    steps = config.get("max_steps")
    if isinstance(steps, int) and steps > 0:
        yield f"Total training steps: {steps}"


def count_devices(nodes: list[dict[str, Any]]) -> int:
    """Count the accelerators of all living nodes."""
    return sum(int(each["Resources"].get("GPU", 0)) for each in nodes if each["Alive"])


def find_node(nodes: list[dict[str, Any]]) -> str | None:
    """Find the ID of the first node, by address, with accelerators."""
    found = [each for each in nodes if each["Alive"] and each["Resources"].get("GPU", 0) > 0]
    return min(found, key=lambda each: str(each["NodeManagerAddress"]))["NodeID"] if found else None


def _end_with_parent() -> None:
    """End the program if the Ray worker is killed, as Ray does when the Ray job has ended."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)


def _parse(arguments: list[str]) -> tuple[argparse.Namespace, list[str]]:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--config", required=True, help="the config of ROLL")
    parser.add_argument("--checkpoints", help="folder with the checkpoints of all attempts, to resume from the latest")
    end = arguments.index("--") if "--" in arguments else len(arguments)
    options = parser.parse_args(arguments[:end])
    command = arguments[end + 1 :]
    if not command:
        parser.error("a program is required after --")
    return options, command


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
