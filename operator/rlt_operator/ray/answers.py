"""What a head may answer. Heads belong to tenants: each field has a type and a bound, and the rest is invalid."""

from __future__ import annotations

from typing import Annotated, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from rlt_api.model import CutTo, Word
from rlt_core.ray_http import MAX_RESPONSE_BYTES, UnreachableError
from rlt_operator.observation import RayJob, RayJobStatus

MAX_TIME_MS = 7_258_118_400_000
"""The year 2200."""
MAX_DESCRIPTION_LENGTH = 300

Model = TypeVar("Model", bound=BaseModel)
Milliseconds = Annotated[int, Field(ge=0, le=MAX_TIME_MS)]
"""Unix time. Ray writes 0 or null for a job that has not started."""


class JobAnswer(BaseModel):
    """Ray's JobDetails (ray/dashboard/modules/job/pydantic_models.py, Ray 2.60). Other fields are not read."""

    model_config = ConfigDict(strict=True)

    status: RayJobStatus
    message: Annotated[str, CutTo(MAX_RESPONSE_BYTES)] | None = None
    start_time: Milliseconds | None = None
    end_time: Milliseconds | None = None
    driver_node_id: Word | None = None

    def to_job(self) -> RayJob:
        """The Ray job, as the operator observes it."""
        return RayJob(
            status=self.status,
            message=self.message or "",
            start_ms=self.start_time,
            end_ms=self.end_time,
            node_id=self.driver_node_id,
        )


def parse_answer(model: type[Model], what: str, text: str) -> Model:
    """Parse the answer to the request `what`. Raises UnreachableError, which names the first field that is invalid."""
    try:
        return model.model_validate_json(text, extra="ignore")
    except ValidationError as error:
        raise UnreachableError(describe_invalid(what, error)) from error


def describe_invalid(what: str, error: ValidationError) -> str:
    """The first field that is invalid, and what it must be."""
    first = error.errors(include_url=False, include_input=False, include_context=False)[0]
    field = ".".join(str(part)[:64] for part in first["loc"])
    invalid = f"{field}: {first['msg']}" if field else first["msg"]
    return f"the answer to {what} is invalid: {invalid}"[:MAX_DESCRIPTION_LENGTH]
