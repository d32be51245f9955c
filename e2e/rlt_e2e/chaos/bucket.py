"""A job whose storage is a bucket, without a shared volume: its S3 server is cut off, or its programs are killed in the
middle of an upload."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event
from urllib.parse import urlsplit

from rlt_e2e.chaos.partition import TABLE
from rlt_e2e.chaos.pods import Target, kill_process
from rlt_e2e.cluster import Cluster
from rlt_e2e.cluster.node import run_on_node
from rlt_e2e.cluster.s3_server import PID_FILE, s3_server
from rlt_e2e.jobs import Job, read_job

NAME = "runs"
SECRET = "s3"
CUT_S = 30.0
UPLOAD_TIMEOUT_S = 300.0


@contextmanager
def replace_volume(cluster: Cluster, namespace: str, job: Job, folder: Path) -> Iterator[Path]:
    """Let the job keep its run in a bucket of a server in `folder`. Yields the folder of the bucket's objects."""
    assert cluster.layout
    with s3_server(folder, cluster.layout.machine) as variables:
        objects = folder / "objects" / NAME
        objects.mkdir()
        keys = {name: variables[name] for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")}
        metadata = {"name": SECRET, "namespace": namespace}
        cluster.apply({"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "stringData": keys})
        endpoint = variables["AWS_ENDPOINT_URL_S3"]
        job["spec"]["storage"] = {"bucket": f"s3://{NAME}", "endpoint": endpoint, "secretName": SECRET}
        yield objects


def cut_off(target: Target) -> str:
    """Drop all packets between the pods and the server for CUT_S. Return what happened."""
    port = urlsplit(read_job(target.cluster, target.namespace, target.job)["spec"]["storage"]["endpoint"]).port
    chain = f"type filter hook forward priority filter - 10; tcp dport {port} drop; tcp sport {port} drop"
    nodes = [node.name for node in target.layout.all_nodes()]
    for node in nodes:
        run_on_node(target.layout, node, "nft", f"table ip {TABLE} {{ chain forward {{ {chain}; }}; }}")
    Event().wait(CUT_S)
    for node in nodes:
        run_on_node(target.layout, node, "nft", f"delete table ip {TABLE}")
    return f"the S3 server, for {CUT_S:.0f} s"


def kill_in_upload(target: Target) -> str:
    """SIGKILL to the train workers and the driver when some files of a checkpoint are in the bucket, and its marker is
    not. The server is stopped for this moment. Return what happened."""
    server = int((target.volume.parents[1] / PID_FILE).read_text())
    step = stop_in_upload(target.volume, server)
    try:
        for pod in target.workers():
            kill_process(target.layout, pod, "ray::TrainWorker")
        kill_process(target.layout, target.head(), "/rlt-trainer\0run")
    finally:
        os.kill(server, signal.SIGCONT)
    return f"driver and ranks, while {step.name} was uploaded"


def stop_in_upload(objects: Path, server: int) -> Path:
    """SIGSTOP to the server in the next upload of a checkpoint. Return the folder of the checkpoint's objects.

    Raises TimeoutError.
    """
    deadline = time.monotonic() + UPLOAD_TIMEOUT_S
    while time.monotonic() < deadline:
        if find_unfinished(objects):
            os.kill(server, signal.SIGSTOP)
            if step := find_unfinished(objects):
                return step
            os.kill(server, signal.SIGCONT)  # the marker was put meanwhile
        time.sleep(0.001)
    raise TimeoutError(f"no checkpoint was uploaded to {objects} within {UPLOAD_TIMEOUT_S:.0f} s")


def find_unfinished(objects: Path) -> Path | None:
    """Return the folder of the latest checkpoint if it has a file and no marker."""
    steps = objects.glob("runs/*/checkpoints/step-*")
    latest = max(steps, key=lambda step: int(step.name.removeprefix("step-")), default=None)
    if latest and any(latest.glob("*/*")) and not (latest / "complete").exists():
        return latest
    return None
