"""Entries for a class of failures: lines with the wordings of several programs, and with any name and number."""

from __future__ import annotations

import random

import pytest
from knowledge.logs import list_codes

PACKAGES = ("torch", "vllm", "flash-attn", "flashinfer-python", "transformers", "nvidia-nccl-cu13", "ray", "xgrammar")
OPTIONS = ("data_parallel_size", "max-model-len", "rope_scaling", "enable_lora", "attn_backend", "kv_cache_dtype")
PATHS = ("/mnt/data/a.pt", "/root/.cache/vllm", "/run/enroot/user-1001", "/scratch/ckpt/step 4/x")
HOSTS = ("head-svc.rl.svc.cluster.local", "huggingface.mirror", "node-12", "10.2.3.4")
PREFIXES = (
    "", "(WorkerDict pid=411, ip=10.0.0.3) ", "[rank3]: ", "2026-01-30 08:57:28,123 ERROR x.py:3 -- ",
    "(EngineCore_DP0 pid=3) ERROR 06-20 21:16:54 [core.py:1195] ",
)  # fmt: skip
VARIANTS = {
    "PackageVersionsDiffer": (
        "RuntimeError: {package} version ({version}) does not match {other} version ({version}.1).",
        "ImportError: {package} requires {other}>={version} but found {other}==0.1.2",
        "ImportError: {package} requires {other} >= {version} but you have 0.1",
        "RuntimeError: {package} {version} is not compatible with {other} 1.2",
        "RuntimeError: {package} v{version} is incompatible with {other} 1.2",
        "RuntimeError: The detected CUDA version ({version}) mismatches the version that was used to compile torch",
        "ImportError: Unsupported {package} version: {version}",
    ),
    "ConfigRejected": (
        "pydantic_core._pydantic_core.ValidationError: 2 validation errors for SchedulerConfig",
        "pydantic.error_wrappers.ValidationError: 1 validation error for EngineSettings",
        "TypeError: ActorConfig.__init__() got an unexpected keyword argument '{option}'",
        "omegaconf.errors.ConfigKeyError: {option}",
        "omegaconf.errors.ValidationError: Value 'x' of type 'str' could not be converted to Integer",
        "dacite.exceptions.UnexpectedDataError: can not match \"{option}\" to any data class field",
    ),
    "ArgumentUnknown": (
        "train.py: error: unrecognized arguments: --{option} 3",
        "main.py: error: argument --{option}: expected one argument",
        "vllm: error: argument --{option}: invalid int value: 'x'",
        "vllm: error: argument --{option}: invalid choice: 'x' (choose from 'a', 'b')",
        "Error: No such option: --{option}",
        "Error: Missing option '--{option}'.",
        "Error: Invalid value for '--{option}': 'x' is not a valid integer.",
        "error: unexpected argument '--{option}' found",
        "ValueError: Some keys are not used by the HfArgumentParser: ['{option}']",
    ),
    "DiskFull": (
        "OSError: [Errno 28] No space left on device: '{path}'",
        "cp: error writing '{path}': No space left on device",
        "write {path}: no space left on device",
        "Error: ENOSPC: no space left on device, write",
        "RuntimeError: Not enough free disk space to download the file to {path}",
    ),
    "PermissionDenied": (
        "PermissionError: [Errno 13] Permission denied: '{path}'",
        "mkdir: cannot create directory '{path}': Permission denied",
        "bash: {path}: Permission denied",
        "open /etc/{option}: permission denied",
        "PermissionError: [Errno 1] Operation not permitted: '{path}'",
        "Error: EACCES: permission denied, open '{path}'",
    ),
    "NoRouteToHost": (
        "OSError: [Errno 113] No route to host",
        "dial tcp {host}:6379: connect: no route to host",
        "dial tcp {host}:443: connect: network is unreachable",
        "OSError: [Errno 101] Network is unreachable",
        "Error: connect EHOSTUNREACH {host}:8000",
    ),
    "NameResolutionFailed": (
        "socket.gaierror: [Errno -2] Name or service not known",
        "socket.gaierror: [Errno -3] Temporary failure in name resolution",
        "dial tcp: lookup {host} on 10.96.0.10:53: no such host",
        "urllib3.exceptions.NameResolutionError: Failed to resolve '{host}'",
        "Error: getaddrinfo ENOTFOUND {host}",
        "curl: (6) Could not resolve host: {host}",
    ),
    "StoreTimeout": (
        "torch.distributed.elastic.rendezvous.api.RendezvousTimeoutError",
        "torch.distributed.elastic.rendezvous.api.RendezvousConnectionError: The connection has failed.",
        "RuntimeError: Unable to meet other processes at the rendezvous store.",
        "torch.distributed.DistStoreError: Timed out after 301 seconds waiting for clients. 1/2 clients joined.",
        "TimeoutError: Rendezvous with key w/1 at {host} timed out",
        "TimeoutError: Timed out waiting for 4 ranks",
    ),
    "KueueQuotaUsed": (
        "couldn't assign flavors to pod set a: insufficient unused quota for nvidia.com/gpu in flavor x, 8 more needed",
        "couldn't assign flavors to pod set a: insufficient unused quota in cohort for cpu in flavor x, 8 more needed",
        "couldn't assign flavors to pod set a: borrowing limit for cpu in flavor x exceeded",
    ),
    "ImageNotFound": (
        'Failed to pull image "{host}/verl:{version}": rpc error: code = NotFound',
        "docker: Error response from daemon: pull access denied for lab/{package}, repository does not exist",
        "docker: Error response from daemon: manifest for a/{package}:{version} not found: manifest unknown: unknown.",
        "Error: initializing source docker://{host}/a: unauthorized: authentication required",
        "slurmstepd: error: pyxis:     [ERROR] URL https://{host}/v2/a/manifests/1 returned error code: 404 Not Found",
        "FATAL:   While making image from oci registry: error fetching image",
        "no matching manifest for linux/arm64/v8 in the manifest list entries",
    ),
    "Preempted": (
        "Normal  Preempted  3s  default-scheduler  Preempted by pod 7f on node {host}",
        "slurmstepd: error: *** STEP 9.0 ON {host} CANCELLED AT 2026-02-03T01:02:03 DUE TO PREEMPTION ***",
        "Normal  TaintManagerEviction  2s  controller  TaintManagerEviction: Marking for deletion Pod rl/w-0",
        "Pod was terminated in response to imminent node shutdown.",
    ),
    "RayObjectStoreTooLarge": (
        "ValueError: The configured object store size (200.0 GB) exceeds the available memory (64.0 GB).",
        "ValueError: The requested object store memory (99 GB) is greater than the total available memory (1 GB)",
    ),
    "PluginNotRegistered": (
        "ValueError: Checkpoint engine {option} not registered",
        "ValueError: Rollout backend {option} is not registered",
        "KeyError: \"Connector '{option}' is not registered\"",
    ),
    "GpuOutOfMemory": (
        "CUDA out of memory",
        "{host}:812:934 [0] NCCL WARN Cuda failure 'out of memory'",
        "{host}:812:934 [0] NCCL WARN Cuda failure 2 'out of memory'",
        "RuntimeError: HIP out of memory. Tried to allocate 2.00 GiB",
        "CUDA_ERROR_OUT_OF_MEMORY: out of memory",
    ),
    "InvalidDeviceOrdinal": ("RuntimeError: HIP error: invalid device ordinal", "CUDA error: invalid device ordinal"),
    "RdmaConnectionFailed": (
        "{host}:812:934 [0] misc/ibvwrap.cc:284 NCCL WARN Call to ibv_modify_qp failed with error No such device",
        "{host}:812:934 [0] NCCL WARN Call to ibv_create_ah failed with error Invalid argument",
        "{host}:812:934 [0] NCCL WARN Call to ibv_modify_qp failed with 110 Connection timed out, on dev mlx5_0:1",
    ),
    "SlurmRejected": (
        "srun: error: Unable to create step for job {version}: Invalid generic resource (gres) specification",
        "salloc: error: Unable to allocate resources: Requested node configuration is not available",
        "sbatch: error: Batch job submission failed: Job violates accounting/QOS policy (job submit limit)",
    ),
    "ContainerRuntimeNoGpu": (
        'docker: Error response from daemon: could not select device driver "nvidia" with capabilities: [[gpu]].',
        "Error: unresolvable CDI devices nvidia.com/gpu=all",
    ),
}  # fmt: skip


def build(template: str, pick: random.Random) -> str:
    line = template.format(
        package=pick.choice(PACKAGES),
        other=pick.choice(PACKAGES),
        version=f"{pick.randrange(20)}.{pick.randrange(20)}.{pick.randrange(9)}",
        option=pick.choice(OPTIONS).replace("-", "_"),
        path=pick.choice(PATHS),
        host=pick.choice(HOSTS),
    )
    return pick.choice(PREFIXES) + line


@pytest.mark.parametrize("code", VARIANTS)
def test_each_wording_of_a_class_is_found_first(code: str) -> None:
    pick = random.Random(code)
    for template in VARIANTS[code]:
        for _ in range(4):
            line = build(template, pick)
            assert list_codes(f"start\n{line}\nend\n")[:1] == [code], line


def test_a_workload_that_kueue_admits_later_is_healthy() -> None:
    events = [build(each, random.Random(0)) for each in VARIANTS["KueueQuotaUsed"]]
    admitted = "Normal  Admitted  1s  kueue  Admitted by ClusterQueue gpus, wait time since reservation was 0s"
    assert list_codes("\n".join([*events, admitted])) == []
    assert list_codes("\n".join([admitted, *events])) == ["KueueQuotaUsed"]


HTTP_ERRORS = (
    "requests.exceptions.HTTPError: 504 Server Error: Gateway Time-out for url: {url}",
    "httpx.HTTPStatusError: Server error '503 Service Unavailable' for url '{url}'",
    "aiohttp.client_exceptions.ClientResponseError: 503, message='Service Unavailable', url='{url}'",
)


@pytest.mark.parametrize(
    ("url", "code"),
    [
        ("http://10.0.0.4:8265/api/jobs/", "RayDashboardUnreachable"),
        ("https://ray.example/api/version", "RayDashboardUnreachable"),
        ("http://sandbox:8080/run_code", "SandboxUnavailable"),
        ("http://judge:8000/v1/chat/completions", "SandboxUnavailable"),
    ],
)
def test_an_http_error_is_found_by_its_address(url: str, code: str) -> None:
    for message in HTTP_ERRORS:
        assert list_codes(message.format(url=url))[0] == code, message


@pytest.mark.parametrize(
    "line",
    [
        "hint: if the last state of the pod is OOMKilled, raise the limit of the container",
        "The worker is gone. Check whether its pod was OOMKilled.",
        "Run it again; unless the job printed CUDA out of memory, its batch fits",
        "WARNING: look for ImagePullBackOff in the events of the pod",
        "The worker failed, so look for its reason: OOMKilled, or an eviction",
        "It cannot connect to the head: check if its pod was OOMKilled",
    ],
)
def test_advice_that_names_a_failure_does_not_show_it(line: str) -> None:
    assert list_codes(f"start\n{line}\nend\n") == []


@pytest.mark.parametrize(
    ("line", "code"),
    [
        ("The job retries if it can. Last state of container trainer: OOMKilled", "ContainerOomKilled"),
        ("pod a: OOMKilled; if this repeats, raise the limit so that no pod is OOMKilled", "ContainerOomKilled"),
        ("failed to check if the image exists: write /var/lib/a: no space left on device", "DiskFull"),
        ("Error checking whether the index responds: dial tcp: lookup hub: no such host", "NameResolutionFailed"),
        ("unable to check for a newer checkpoint: [Errno 116] Stale file handle", "StaleFileHandle"),
    ],
)
def test_a_failure_beside_advice_is_found(line: str, code: str) -> None:
    assert list_codes(f"start\n{line}\nend\n")[:1] == [code]
