"""Where models and data are: a folder or file in the pods, objects of a bucket, or a name on the Hugging Face hub."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import PurePosixPath

from rlt_api.blocks.data import Data
from rlt_api.blocks.evaluation import EvaluationData
from rlt_api.findings.finding import Finding, printable, use
from rlt_api.rules.evaluation import list_suite_data
from rlt_api.spec.job_spec import RLTrainingJobSpec
from rlt_api.spec.model_images import IMAGE_SCHEME, is_image_url
from rlt_api.spec.objects import SCHEME, is_object_url

HUB_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,95}(/[A-Za-z0-9_][A-Za-z0-9_.-]{0,95})?")
"""[owner/]name, as huggingface_hub's validate_repo_id accepts it."""
HUB_URL = re.compile(
    r"(?:https://huggingface\.co/|https://hf\.co/|hf://)(?:models/|datasets/)?([^/@]+/[^/@]+)(?:/(?:tree|blob|resolve)/([^/]+)(?:/.*)?)?/?"
)
SUFFIXES = (".parquet", ".jsonl", ".json")
"""Names of the files that the trainer reads (rlt_trainer/data/tables.py)."""
WEIGHT_FILES = (".safetensors", ".bin", ".gguf", ".pt", ".pth", ".ckpt", ".json")
"""Names of files in the folder of a model."""
VOLUME = "put it on a volume of spec.storage, and use its absolute path in the pods"
NO_PATH = "is neither an absolute path in the pods nor a URL s3://BUCKET/KEY"
NO_URL = "is not the URL of objects"
NO_IMAGE = "is not the name of an image"
IMAGE_FIX = "write oci://HOST/NAME[:TAG][@sha256:DIGEST], with a dot or a port in HOST and NAME in lower case"
URL_FIX = "write s3://BUCKET/KEY, with letters, digits and -_.=+@ in the key"


def validate_model_path(spec: RLTrainingJobSpec) -> Iterator[Finding]:
    """model.path, critic.modelPath, distillation.modelPath and rewards[].model must be absolute paths in the pods,
    prefixes of a bucket (s3://bucket/prefix), images (oci://host/name), or names on the Hugging Face hub."""
    critic = spec.algorithm.critic
    distillation = spec.algorithm.distillation
    paths = {
        "spec.model.path": spec.model.path if spec.model else None,
        "spec.algorithm.critic.modelPath": critic.model_path if critic else None,
        "spec.algorithm.distillation.modelPath": distillation.model_path if distillation else None,
        **{f"spec.rewards[{index}].model": reward.model for index, reward in enumerate(spec.rewards)},
    }
    for field, path in paths.items():
        if path is not None and (suffix := PurePosixPath(path).suffix) in WEIGHT_FILES:
            folder = path.rpartition("/")[0]
            has_folder = path.startswith("/") or is_object_url(folder)
            message = f"is a file ({suffix}), and the folder with config.json and the weights is meant"
            fix = f"use {folder}" if has_folder else f"{VOLUME}, or the name on the hub"
            edits = use(field, folder) if has_folder else ()
            yield Finding(field, printable(path), message, fix, rule="model-path", edits=edits)
            continue
        if path is None or path.startswith("/") or is_object_url(path) or is_image_url(path) or is_hub_name(path):
            continue
        if path.startswith(IMAGE_SCHEME):
            yield Finding(field, printable(path), NO_IMAGE, IMAGE_FIX, rule="model-path")
            continue
        if path.startswith(SCHEME):
            yield Finding(field, printable(path), NO_URL, URL_FIX, rule="model-path")
            continue
        message = (
            "is neither an absolute path in the pods, nor a prefix of a bucket (s3://), nor an image (oci://), nor a "
            "name on the hub"
        )
        name, revision = find_hub_name(path)
        fix = f"use {name}" if name else f"{VOLUME}, or the name on the hub"
        if name and revision and field == "spec.model.path":
            fix = f"use {name}, and model.revision: {revision}"
        edits = use(field, name) if name else ()
        yield Finding(field, printable(path), message, fix, rule="model-path", edits=edits)


def validate_data_files(spec: RLTrainingJobSpec) -> Iterator[Finding]:
    """files and path of data and of evaluation[].data must be absolute paths in the pods, or keys and prefixes of a
    bucket (s3://bucket/key). Files are Parquet (.parquet) or JSON lines (.jsonl, .json), without patterns."""
    files = dict(list_files(spec))
    rule = "data-files"
    for field, path in files.items():
        suffix = PurePosixPath(path).suffix
        if not path.startswith(("/", SCHEME)):
            yield Finding(field, printable(path), NO_PATH, VOLUME, rule=rule)
        elif "*" in path or "?" in path:
            message = "is a pattern, and only names of files are read"
            yield Finding(field, printable(path), message, "list the files", rule=rule)
        elif suffix not in SUFFIXES:
            message = f"is not a file of type {', '.join(SUFFIXES)}"
            fix = "convert it to Parquet or JSON lines" if suffix else "list the files in it, or add the suffix"
            yield Finding(field, printable(path), message, fix, rule=rule)
        elif path.startswith(SCHEME) and not is_object_url(path):
            yield Finding(field, printable(path), NO_URL, URL_FIX, rule=rule)
    for field, path in list_folders(spec):
        if path.startswith(SCHEME) and not is_object_url(path):
            yield Finding(field, printable(path), NO_URL, URL_FIX, rule=rule)
        elif not path.startswith(("/", SCHEME)):
            yield Finding(field, printable(path), NO_PATH, VOLUME, rule=rule)


def list_files(spec: RLTrainingJobSpec) -> Iterator[tuple[str, str]]:
    """Yield the field and the path of each file in data and in evaluation[].data."""
    for block, data in _list_data(spec):
        for index, path in enumerate(data.files or []):
            yield f"{block}.files[{index}]", path


def list_folders(spec: RLTrainingJobSpec) -> Iterator[tuple[str, str]]:
    """Yield the field and the path of each folder with the published files of a preset."""
    for block, data in _list_data(spec):
        if data.path is not None:
            yield f"{block}.path", data.path


def _list_data(spec: RLTrainingJobSpec) -> Iterator[tuple[str, Data | EvaluationData]]:
    if spec.data is not None:
        yield "spec.data", spec.data
    yield from list_suite_data(spec)


def is_hub_name(text: str) -> bool:
    """Return whether the text is a name on the Hugging Face hub."""
    return bool(HUB_NAME.fullmatch(text)) and ".." not in text and "--" not in text


def find_hub_name(text: str) -> tuple[str | None, str | None]:
    """Return name and revision on the hub, from a URL or NAME@REVISION; None if there is none."""
    if match := HUB_URL.fullmatch(text):
        name = match[1]
        revision = match[2]
    else:
        name, _, revision = re.sub(r"^(?:huggingface\.co|hf\.co)?/?(?:datasets/)?", "", text.strip()).partition("@")
    return (name, revision or None) if is_hub_name(name) else (None, None)


RULES = (validate_model_path, validate_data_files)
