"""The base of every type of the API: camelCase on the wire, frozen in memory, no unknown field."""

from __future__ import annotations

import ast
import inspect
import textwrap
from dataclasses import dataclass
from itertools import pairwise
from typing import Annotated, Any

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    JsonValue,
    StringConstraints,
)
from pydantic.alias_generators import to_camel
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, PydanticCustomError, core_schema


class ApiModel(BaseModel):
    """A block of the API. The text under each attribute is what `kubectl explain` shows."""

    model_config = ConfigDict(
        alias_generator=to_camel,
        populate_by_name=True,
        extra="forbid",
        frozen=True,
        allow_inf_nan=False,  # JSON has no such numbers
    )

    @classmethod
    def __get_pydantic_json_schema__(cls, core: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        """The schema, with the texts under the attributes. (pydantic's own way reads the sources at every start.)"""
        reference = handler(core)
        schema = handler.resolve_ref_schema(reference)
        for name, text in attribute_docstrings(cls).items():
            schema["properties"][cls.model_fields[name].alias]["description"] = text
        return reference

    def to_json(self) -> dict[str, Any]:
        """The block as it stands in a manifest: camelCase keys, JSON types, nothing that is unset (None)."""
        return self.model_dump(mode="json", by_alias=True, exclude_none=True)


def attribute_docstrings(model: type[ApiModel]) -> dict[str, str]:
    """Field -> the text under it, in the class or in those that it comes from."""
    found: dict[str, str] = {}
    for cls in reversed([cls for cls in model.__mro__ if issubclass(cls, ApiModel) and cls is not ApiModel]):
        (definition,) = ast.parse(textwrap.dedent(inspect.getsource(cls))).body
        assert isinstance(definition, ast.ClassDef)
        for field, text in pairwise(definition.body):
            match field, text:
                case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(words))):
                    found[name] = inspect.cleandoc(words)
    return found


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


EnvName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$", max_length=255)]
"""The name of an environment variable."""

ObjectName = Annotated[str, StringConstraints(pattern=r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$", max_length=253)]
"""The name of a Kubernetes object (RFC 1123 subdomain)."""

Positive = Annotated[int, Field(ge=1, le=2**31 - 1)]
"""A count."""

Probability = Annotated[float, Field(gt=0, le=1)]
"""A share that is not nothing."""

JsonObject = Annotated[dict[str, JsonValue], Field(max_length=256)]
"""Any JSON object: the CRD keeps it as it is."""


@dataclass(frozen=True)
class KeyedBy:
    """Marks a list of objects that a field tells apart: no two have the same (x-kubernetes-list-type: map)."""

    key: str

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_after_validator_function(self._check, handler(source))

    def __get_pydantic_json_schema__(self, core: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        keys = {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": [self.key]}
        return {**handler(core), **keys}

    def _check(self, items: list[Any]) -> list[Any]:
        names = [getattr(item, self.key) for item in items]
        for index, name in enumerate(names):
            if name in names[:index]:
                raise PydanticCustomError("duplicate_key", "is given twice", {"index": index, "name": name})
        return items
