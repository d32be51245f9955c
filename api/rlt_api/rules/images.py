"""References of images: https://github.com/distribution/reference"""

from __future__ import annotations

import re
from collections.abc import Iterator

from rlt_api.findings.finding import Finding, printable, use
from rlt_api.spec.job_spec import RLTrainingJobSpec

_LABEL = r"[A-Za-z0-9](?:[A-Za-z0-9-]*[A-Za-z0-9])?"
_HOST = rf"(?:{_LABEL}(?:\.{_LABEL})*|\[[0-9a-fA-F:]+\])(?::[0-9]+)?"
_PART = r"[a-z0-9]+(?:(?:[._]|__|-+)[a-z0-9]+)*"
REFERENCE = re.compile(
    rf"(?:{_HOST}/)?{_PART}(?:/{_PART})*(?::\w[\w.-]{{0,127}})?(?:@sha256:[0-9a-f]{{64}})?", re.ASCII
)


def validate_image_reference(spec: RLTrainingJobSpec) -> Iterator[Finding]:
    """cluster.image must be an image reference: [registry/]name[:tag][@sha256:digest], without a scheme."""
    if spec.cluster.image is not None:
        yield from validate_image(spec.cluster.image, "spec.cluster.image")


def validate_image(image: str, field: str) -> Iterator[Finding]:
    """Validate the reference of an image."""
    if REFERENCE.fullmatch(image):
        return
    message = "is not an image reference: [registry/]name[:tag][@sha256:digest], the name in lower case"
    candidate = re.sub(r"^(https?|docker|oci)://", "", image).strip().rstrip(":/")
    name, colon, tag = candidate.rpartition(":") if "/" not in candidate.rpartition(":")[2] else (candidate, "", "")
    candidate = f"{name.lower()}{colon}{tag}" if colon else candidate.lower()
    edits = use(field, candidate) if REFERENCE.fullmatch(candidate) else ()
    fix = f"use {candidate}" if edits else "correct it, such as registry.example/team/trainer:1.0"
    yield Finding(field, printable(image), message, fix, rule="image", edits=edits)


RULES = (validate_image_reference,)
