"""The files of `rlt render --target compose|dstack` as the job that they came from.

A Compose file has the files of the job as configs, a task of dstack as here-documents in its command.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from rlt.convert.draft import ConvertError, Draft
from rlt.convert.rendered_scripts import HERE_DOCUMENT, RenderedJob, convert_rendered_job
from rlt_core.targets.container import AMD_DEVICES
from rlt_core.targets.launch import PROGRAM
from rlt_core.targets.shell import END_OF_FILE

Json = dict[str, Any]
CONFIG = PROGRAM.replace(".", "-")
"""Name of the config with the program in a Compose file."""


def is_rendered_place(documents: Sequence[Json]) -> bool:
    """Whether a Compose file or a task of `rlt render --target` is among the documents."""
    return any(_is_compose_file(each) or _is_task(each) for each in documents)


def convert_rendered_place(documents: Sequence[Json]) -> Draft:
    """Convert the file of one job. Raises ConvertError for those of several."""
    jobs = [*_read_jobs(documents)]
    if len(jobs) > 1:
        raise ConvertError(f"line 1: the files of {len(jobs)} jobs: pass those of one.")
    return convert_rendered_job(jobs[0])


def _read_jobs(documents: Sequence[Json]) -> Iterator[RenderedJob]:
    for each in documents:
        if _is_compose_file(each):
            yield _read_compose_file(each)
        elif _is_task(each):
            yield _read_task(each)


def _is_compose_file(document: Json) -> bool:
    services, configs = document.get("services"), document.get("configs")
    return isinstance(services, dict) and services.keys() == {"ray", "job"} and CONFIG in (configs or {})


def _is_task(document: Json) -> bool:
    return document.get("type") == "task" and END_OF_FILE in str(document.get("commands"))


def _read_compose_file(document: Json) -> RenderedJob:
    ray = document["services"]["ray"]
    files = {
        each["target"].rsplit("/", 1)[-1]: document["configs"][each["source"]]["content"].replace("$$", "$")
        for each in ray["configs"]
    }
    is_amd = any(each.startswith(AMD_DEVICES) for each in ray.get("devices", []))
    return RenderedJob(document["name"], ray["image"], ray["volumes"][0]["source"], files, is_amd=is_amd)


def _read_task(document: Json) -> RenderedJob:
    (commands,) = document["commands"]
    storage = document["volumes"][0].partition(":")[0]
    is_amd = document["resources"].get("gpu", {}).get("vendor") == "amd"
    files = dict(HERE_DOCUMENT.findall(commands))
    return RenderedJob(document["name"], document["image"], storage, files, is_amd=is_amd)
