"""The files of CONFIG_DIRECTORY in a job's pods, as the kubelet writes them from the projected volume."""

from __future__ import annotations

from base64 import b64decode
from pathlib import Path

from rlt_core.children.config_map import build_config_map, build_config_volume
from rlt_core.children.programs import build_programs
from rlt_core.job import Job


def write_files(job: Job, folder: Path) -> Path:
    """Write them into the folder, all names as links through ..data to another one. Return the folder."""
    assert job.spec
    programs = build_programs(job.namespace)
    config = build_config_map(job, job.spec)
    contents = {key: b64decode(data) for key, data in programs["binaryData"].items()}
    contents |= {key: text.encode() for key, text in config["data"].items()}
    data = folder / "..2026"
    data.mkdir(parents=True)
    (folder / "..data").symlink_to(data.name)
    for source in build_config_volume(job, job.spec)["sources"]:
        for item in source["configMap"]["items"]:
            (data / item["path"]).write_bytes(contents[item["key"]])
            (folder / item["path"]).symlink_to(f"..data/{item['path']}")
    return folder
