"""The record of a run in a ConfigMap of its job, which outlives the Ray cluster.

The program of the head writes it (rlt_pod.command.run_record), the operator masks and stores it before it releases the
cluster, and clients read it. Heads belong to tenants, and users can change a ConfigMap: each field has a type and a
bound, and the rest is invalid.
"""

from __future__ import annotations

import base64
import binascii
import json
import zlib
from collections.abc import Collection, Mapping
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, JsonValue, ValidationError, model_validator
from pydantic.alias_generators import to_camel

from rlt_api.findings.masking import mask_text
from rlt_core import names
from rlt_core.children.ownership import build_metadata
from rlt_core.job import Job, Manifest
from rlt_pod.command.run_record import (
    MAX_RECORD_BYTES,
    MAX_SPANS,
    MAX_STEPS,
    MAX_TEXT_LENGTH,
    NUM_EXTREMES,
    RECORD_VERSION,
)

RECORD_KEY = "record.json.zlib"
"""Key of the ConfigMap's binaryData."""
MAX_ENCODED_BYTES = 4 * (MAX_RECORD_BYTES // 3 + 1) + 1
"""Maximum size of a record in base64, with the end of its line."""
MAX_UNPACKED_BYTES = 2 * 2**20
"""Maximum size of a record's JSON."""
MAX_STORED_BYTES = 2 * MAX_RECORD_BYTES
"""Maximum size of a stored record: masks may make it larger than the head's. An object has at most 1 MiB."""
MAX_TEXTS = 5000
"""Maximum number of texts in a record. Each is searched for secrets."""

Number = Annotated[float, Field(allow_inf_nan=False)]


class Span(BaseModel):
    """A phase of the step on the driver (rank -1), a rank or an engine. Times are Unix times."""

    model_config = ConfigDict(extra="ignore", strict=True)

    rank: int
    engine: int | None = None
    phase: str
    thread: int = 0
    start: Number
    end: Number


class RunRecord(BaseModel):
    """The metrics, responses and spans that are kept of a run."""

    model_config = ConfigDict(extra="ignore", strict=True, alias_generator=to_camel)

    version: Annotated[int, Field(ge=RECORD_VERSION, le=RECORD_VERSION)]
    steps: Annotated[list[int], Field(max_length=MAX_STEPS)]
    metrics: dict[str, list[Number | None]]
    """Name -> the values of the steps. None: not recorded, or not finite."""
    rollouts_step: int | None = None
    rollouts: Annotated[list[dict[str, JsonValue]], Field(max_length=2 * NUM_EXTREMES)] = []
    """The best and the worst responses of the step, the best first."""
    spans_step: int | None = None
    spans: Annotated[list[Span], Field(max_length=MAX_SPANS)] = []
    notes: Annotated[list[str], Field(max_length=10)] = []
    """What is left out."""

    @model_validator(mode="after")
    def _check_columns(self) -> RunRecord:
        if any(len(values) != len(self.steps) for values in self.metrics.values()):
            raise ValueError("a metric has another number of values than there are steps")
        return self

    def list_steps(self, since: int = 0) -> list[dict[str, float | None]]:
        """The metrics of each step after `since`, as the lines of metrics.jsonl."""
        columns = [(name, values) for name, values in self.metrics.items() if name != "step"]
        return [
            {"step": step, **{name: values[row] for name, values in columns}}
            for row, step in enumerate(self.steps)
            if step > since
        ]


def decode_record(text: str | bytes) -> RunRecord:
    """Read a record in base64. Raises ValueError."""
    try:
        packed = base64.b64decode(text)
        reader = zlib.decompressobj()
        unpacked = reader.decompress(packed, MAX_UNPACKED_BYTES)
        if not reader.eof:
            raise ValueError(f"it is incomplete, or larger than {MAX_UNPACKED_BYTES} bytes")
        found = json.loads(unpacked, parse_constant=lambda _: None)
        return RunRecord.model_validate(found)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False, include_context=False)[0]
        raise ValueError(f"{'.'.join(str(part)[:64] for part in first['loc'])}: {first['msg']}"[:300]) from None
    except (binascii.Error, zlib.error, RecursionError) as error:
        raise ValueError(f"it is not a compressed JSON object: {error}") from None


def mask_record(text: str, secrets: Collection[str]) -> bytes:
    """The compressed record in the text, valid, bounded and with its secrets masked. Raises ValueError."""
    masked = _Masking(secrets).mask(decode_record(text).model_dump(by_alias=True, exclude_none=True))
    for step, values in (("rolloutsStep", "rollouts"), ("spansStep", "spans")):
        if not masked.get(values):
            masked.pop(step, None)
    packed = zlib.compress(json.dumps(masked, separators=(",", ":")).encode())
    if len(packed) > MAX_STORED_BYTES:
        raise ValueError(f"it has {len(packed)} bytes, more than {MAX_STORED_BYTES}")
    return packed


def build_record_map(job: Job, packed: bytes) -> Manifest:
    """Build the ConfigMap with the compressed record. It lacks the label of the objects that the operator watches."""
    metadata = {**build_metadata(job, names.run_record(job.name)), "labels": {names.JOB_LABEL: job.name}}
    data = {RECORD_KEY: base64.b64encode(packed).decode()}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "binaryData": data}


def read_record_map(manifest: Mapping[str, Any], job_uid: str) -> RunRecord | None:
    """The record in a ConfigMap. None if it is of another job, or has none. Raises ValueError if it cannot be read."""
    owners = [each.get("uid") for each in manifest["metadata"].get("ownerReferences", []) if each.get("controller")]
    text = (manifest.get("binaryData") or {}).get(RECORD_KEY)
    return decode_record(text) if text and owners == [job_uid] else None


class _Masking:
    """Masks the texts of a record, also the names in it. Counts them."""

    def __init__(self, secrets: Collection[str]) -> None:
        self._secrets = secrets
        self._count = 0

    def mask(self, value: Any) -> Any:
        """The value with its texts cut and masked. Raises ValueError if there are too many."""
        if isinstance(value, str):
            self._count += 1
            if self._count > MAX_TEXTS:
                raise ValueError(f"it has more than {MAX_TEXTS} texts")
            return mask_text(value[: MAX_TEXT_LENGTH + 50], self._secrets)
        if isinstance(value, dict):
            return {self.mask(key): self.mask(each) for key, each in value.items()}
        return [self.mask(each) for each in value] if isinstance(value, list) else value
