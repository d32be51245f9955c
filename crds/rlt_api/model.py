"""The base of every type of the API: camelCase on the wire, frozen in memory, no unknown field."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, JsonValue, StringConstraints
from pydantic.alias_generators import to_camel


class ApiModel(BaseModel):
    """A block of the API. The text under each attribute is what `kubectl explain` shows."""

    model_config = ConfigDict(
        alias_generator=to_camel, populate_by_name=True, extra="forbid", frozen=True, use_attribute_docstrings=True
    )

    def to_json(self) -> dict[str, Any]:
        """The block as it stands in a manifest: camelCase keys, JSON types, nothing that is unset (None)."""
        return self.model_dump(mode="json", by_alias=True, exclude_none=True)


def cel(*rules: tuple[str, str]) -> ConfigDict:
    """Validation rules for a block's `model_config`: pairs of a CEL expression and the message when it is false.

    The API server evaluates them: https://kubernetes.io/docs/reference/using-api/cel/
    """
    validations: list[JsonValue] = [{"rule": rule, "message": message} for rule, message in rules]
    return ConfigDict(json_schema_extra={"x-kubernetes-validations": validations})


Quantity = Annotated[str, StringConstraints(pattern=r"^[0-9]+(\.[0-9]+)?(m|k|Ki|M|Mi|G|Gi|T|Ti)?$", max_length=20)]
"""A Kubernetes quantity such as 500m, 2 or 8Gi (apimachinery's pkg/api/resource, without exponents)."""

DnsLabel = Annotated[str, StringConstraints(pattern=r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$", max_length=63)]
"""An RFC 1123 label."""

AbsolutePath = Annotated[str, StringConstraints(pattern=r"^/[^\x00]*$", max_length=1024)]
"""A path in the pod that starts with a slash."""


def quantity_value(quantity: str) -> float:
    """The value of a Kubernetes quantity as a number: "2Gi" -> 2147483648.0, "500m" -> 0.5."""
    suffixes = {"Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40, "m": 1e-3, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}
    for suffix, factor in suffixes.items():
        if quantity.endswith(suffix):
            return float(quantity.removesuffix(suffix)) * factor
    return float(quantity)
