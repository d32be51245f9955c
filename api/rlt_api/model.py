"""The base class and the common field types of the API: camelCase in JSON, frozen in memory, no unknown fields."""

from __future__ import annotations

import ast
import difflib
import inspect
import textwrap
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    JsonValue,
    SerializerFunctionWrapHandler,
    StringConstraints,
    ValidationError,
    model_serializer,
)
from pydantic.alias_generators import to_camel
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, PydanticCustomError, core_schema

from rlt_api.errors import InvalidBlockError

if TYPE_CHECKING:  # with a __call__, type checkers would not check the keyword arguments of a block
    from pydantic._internal._model_construction import ModelMetaclass as _BlockType
else:

    class _BlockType(type(BaseModel)):
        """Creates blocks from keyword arguments. Raises InvalidBlockError instead of pydantic's error."""

        def __call__(cls, *arguments, **fields):
            try:
                return super().__call__(*arguments, **fields)
            except ValidationError as error:
                raise _explain_error(error, cls) from error


def _explain_error(error: ValidationError, model: type[BaseModel]) -> InvalidBlockError:
    """The error with the names of the fields in Python."""
    names: dict[int | str | None, str] = {field.alias: name for name, field in model.model_fields.items()}
    lines = []
    for problem in error.errors(include_url=False):
        first, *inner = problem["loc"] or ("",)
        path = "".join(
            f"[{part}]" if isinstance(part, int) else f".{part}" for part in (names.get(first, first), *inner)
        )
        if problem["type"] == "extra_forbidden" and not inner:
            nearest = difflib.get_close_matches(str(first), model.model_fields, n=1)
            fix = f"did you mean {nearest[0]}?" if nearest else f"its fields are {', '.join(model.model_fields)}"
            lines.append(f"{model.__name__}{path}: is not a field; {fix}")
        else:
            value = problem["input"]
            given = f"{repr(value)[:80]} " if isinstance(value, str | int | float) else ""
            lines.append(f"{model.__name__}{path}: {given}{problem['msg'].replace('Input s', 's', 1)}")
    return InvalidBlockError("\n".join(lines), next=f"help({model.__name__})")


class UnreadableFieldError(Exception):
    """A field has no valid value (rlt_api/validation/set_aside.py)."""


class ApiModel(BaseModel, metaclass=_BlockType):
    """A block of the API. The docstring of each attribute is the description that `kubectl explain` shows."""

    model_config = ConfigDict(
        alias_generator=to_camel,
        populate_by_name=True,
        extra="forbid",
        frozen=True,
        allow_inf_nan=False,  # not valid in JSON
    )

    @classmethod
    def __get_pydantic_json_schema__(cls, core: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        """Add the attribute docstrings to the schema. (pydantic's own option reads the sources at every start.)"""
        reference = handler(core)
        schema = handler.resolve_ref_schema(reference)
        for name, text in attribute_docstrings(cls).items():
            schema["properties"][cls.model_fields[name].alias]["description"] = text
        return reference

    def to_json(self) -> dict[str, Any]:
        """Return the block as in a manifest: camelCase keys, JSON types, without unset fields (None)."""
        _require_readable(self)
        return self.model_dump(mode="json", by_alias=True, exclude_none=True)

    if not TYPE_CHECKING:  # with a __getattr__, type checkers would accept any attribute

        def __getattr__(self, name):
            """Python calls this for a missing attribute: a field is missing only if validation has set it aside."""
            if name in type(self).model_fields:
                raise UnreadableFieldError(name)
            return super().__getattr__(name)


def _require_readable(value: object) -> None:
    """Raise UnreadableFieldError if a field below has no value: pydantic would leave it out."""
    if isinstance(value, ApiModel):
        for name in type(value).model_fields:
            _require_readable(getattr(value, name))
    elif isinstance(value, list):
        for each in value:
            _require_readable(each)


class StatusModel(ApiModel):
    """A block of a status. An empty list or object is absent from the JSON, as `omitempty` of Kubernetes types has it,
    so that `kubectl describe` prints no line for it."""

    @model_serializer(mode="wrap")
    def _omit_empty(self, serialize: SerializerFunctionWrapHandler) -> dict[str, Any]:
        return {name: value for name, value in serialize(self).items() if value not in ([], {})}

    def to_json(self) -> dict[str, Any]:
        """Return the block as in a manifest. Each field of a status has a value."""
        return self.model_dump(mode="json", by_alias=True, exclude_none=True)


def attribute_docstrings(model: type[ApiModel]) -> dict[str, str]:
    """Return field -> its docstring, from the class and its base classes."""
    found: dict[str, str] = {}
    for cls in reversed([cls for cls in model.__mro__ if issubclass(cls, ApiModel) and cls.model_fields]):
        (definition,) = ast.parse(textwrap.dedent(inspect.getsource(cls))).body
        assert isinstance(definition, ast.ClassDef)
        for field, text in pairwise(definition.body):
            match field, text:
                case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(docstring))):
                    found[name] = inspect.cleandoc(docstring)
    return found


def cel(*rules: tuple[str, str]) -> ConfigDict:
    """Build a block's `model_config` with validation rules: pairs of a CEL expression and the message if it is false.

    The API server evaluates them: https://kubernetes.io/docs/reference/using-api/cel/
    """
    validations: list[JsonValue] = [{"rule": rule, "message": message} for rule, message in rules]
    return ConfigDict(json_schema_extra={"x-kubernetes-validations": validations})


QUANTITY = r"^[0-9]+(\.[0-9]+)?(m|k|Ki|M|Mi|G|Gi|T|Ti)?$"
INT_OR_STRING = "x-kubernetes-int-or-string"
MAX_INT64 = 2**63 - 1


@dataclass(frozen=True)
class _IntOrString:
    """Marks a string that may be written as an integer (x-kubernetes-int-or-string), and is read as a string."""

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_before_validator_function(integer_to_text, handler(source))

    def __get_pydantic_json_schema__(self, core: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        return {**handler(core), "type": ["integer", "string"], "minimum": 0, INT_OR_STRING: True}


def integer_to_text(value: Any) -> Any:
    """Return an integer as text, and any other value unchanged: 32 -> "32". The API server has integers of 64 bits."""
    is_integer = isinstance(value, int) and not isinstance(value, bool)
    return str(value) if is_integer and abs(value) <= MAX_INT64 else value


Quantity = Annotated[str, StringConstraints(pattern=QUANTITY, max_length=20), _IntOrString()]
"""A Kubernetes quantity such as 500m, 2 or 8Gi (apimachinery's pkg/api/resource, without exponents)."""

CheckpointStep = Annotated[
    str, StringConstraints(pattern=r"^(latest|0|[1-9][0-9]{0,8})$", max_length=9), _IntOrString()
]
"""The step of a checkpoint, or latest."""

DnsLabel = Annotated[str, StringConstraints(pattern=r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$", max_length=63)]
"""An RFC 1123 label."""

AbsolutePath = Annotated[str, StringConstraints(pattern=r"^/[^\x00]*$", max_length=1024)]
"""An absolute path in the pod."""
PathOrUrl = Annotated[str, StringConstraints(pattern=r"^(/|s3://)[^\x00]*$", max_length=1024)]
"""An absolute path in the pod, or objects of a bucket."""


def quantity_value(quantity: str) -> float:
    """Convert a Kubernetes quantity to a number: "2Gi" -> 2147483648.0, "500m" -> 0.5."""
    binary = {"Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40, "Pi": 2**50, "Ei": 2**60}
    decimal = {"n": 1e-9, "u": 1e-6, "m": 1e-3, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15, "E": 1e18}
    suffixes = {**binary, **decimal}
    for suffix, factor in suffixes.items():
        if quantity.endswith(suffix):
            return float(quantity.removesuffix(suffix)) * factor
    return float(quantity)


EnvName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$", max_length=255)]
"""The name of an environment variable."""

ObjectName = Annotated[str, StringConstraints(pattern=r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$", max_length=253)]
"""The name of a Kubernetes object (RFC 1123 subdomain)."""

Url = Annotated[str, StringConstraints(pattern=r"^https?://[^\s]+$", max_length=1024)]
"""The URL of an HTTP server."""

REGISTRY_URL = (
    r"^oci://([a-z0-9-]+(\.[a-z0-9-]+)+(:[0-9]{1,5})?|[a-z0-9-]+:[0-9]{1,5})"
    r"(/[a-z0-9]+((\.|_|__|-+)[a-z0-9]+)*)+(:[A-Za-z0-9_][A-Za-z0-9._-]{0,127})?"
)
RegistryUrl = Annotated[str, StringConstraints(pattern=f"{REGISTRY_URL}$", max_length=512)]
"""An image in a registry: oci://HOST/NAME[:TAG]. A host without a dot has a port."""

Positive = Annotated[int, Field(ge=1, le=2**31 - 1)]
"""A count."""

Probability = Annotated[float, Field(gt=0, le=1)]
"""A share above 0, up to 1."""

JsonObject = Annotated[dict[str, JsonValue], Field(max_length=256)]
"""Any JSON object (x-kubernetes-preserve-unknown-fields in the CRD)."""


@dataclass(frozen=True)
class KeyedBy:
    """Marks a list whose objects have a unique key field (x-kubernetes-list-type: map)."""

    key: str
    checked: bool = True
    """Whether a duplicate is an error here too. A status is read even if it has one."""

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        if not self.checked:
            return handler(source)
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


@dataclass(frozen=True)
class CutTo:
    """Bounds a string, list or map of a status, whose values come from other programs: what is longer is cut.

    The schema has the bound as maxLength, maxItems or maxProperties.
    """

    length: int
    counted: bool = False
    """Whether the last item of a list that is cut states how many more there are."""

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_after_validator_function(self._cut, handler(source))

    def __get_pydantic_json_schema__(self, core: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        schema = handler(core)
        bound = {"string": "maxLength", "array": "maxItems", "object": "maxProperties"}[schema["type"]]
        return {**schema, bound: self.length}

    def _cut(self, value: Any) -> Any:
        if len(value) <= self.length:
            return value
        if isinstance(value, str):
            return value[: self.length - 1] + "…"
        if self.counted:
            return [*value[: self.length - 1], f"and {len(value) - self.length + 1} more"]
        return dict(list(value.items())[: self.length]) if isinstance(value, dict) else value[: self.length]


@dataclass(frozen=True)
class Within:
    """Bounds a number of a status: what is lower or higher becomes the bound."""

    minimum: int
    maximum: int

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_after_validator_function(self._clamp, handler(source))

    def __get_pydantic_json_schema__(self, core: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        return {**handler(core), "minimum": self.minimum, "maximum": self.maximum}

    def _clamp(self, value: int) -> int:
        return min(max(value, self.minimum), self.maximum)


Count = Annotated[int, Within(0, 2**31 - 1)]
"""A number of objects or steps in a status."""

Generation = Annotated[int, Within(0, 2**53 - 1)]
"""metadata.generation of an object. The bounds of a CRD are floating-point numbers: 2**63 - 1 is not one of them."""

AcceleratorSeconds = Annotated[int, Within(0, 2**53 - 1)]
"""Accelerators times seconds, as an integer: the conventions of the Kubernetes API discourage floating-point numbers in
a status, and sums of integers are exact."""

Word = Annotated[str, CutTo(253)]
"""A name, a constant or a short text in a status."""

Names = Annotated[list[Word], CutTo(32, counted=True)]
"""Names of pods, nodes or other objects in a status."""

FewNames = Annotated[list[Word], CutTo(8, counted=True)]
"""Names in each of many objects in a status."""

Sentence = Annotated[str, CutTo(1024)]
"""A text for people in a list of a status, or a path in the pods."""

Message = Annotated[str, CutTo(4096)]
"""A text for people in a status, with output of other programs."""

Time = Annotated[str, Field(json_schema_extra={"format": "date-time"})]
"""A time (RFC 3339, UTC)."""
