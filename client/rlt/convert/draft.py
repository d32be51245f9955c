"""A job in construction, and what its source has that the job does not."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from rlt_api.schema.crd import GROUP, KIND, MAX_NAME_LENGTH, VERSION


class ConvertError(ValueError):
    """A source that cannot be read. The text has the line, what was understood, and what to do."""


@dataclass(frozen=True)
class LeftOut:
    """A part of the source that the job does not have."""

    what: str
    why: str
    line: int | None = None
    """Its line in the source."""

    def __str__(self) -> str:
        return f"{f'line {self.line}: ' if self.line else ''}{self.what}: {self.why}"


@dataclass
class Draft:
    """The spec so far."""

    name: str = ""
    """Its name in the source, if it has one."""
    metadata: dict[str, Any] = field(default_factory=dict)
    """Its namespace, labels and annotations."""
    spec: dict[str, Any] = field(default_factory=dict)
    left_out: list[LeftOut] = field(default_factory=list)
    lines: Mapping[str, int] = field(default_factory=dict)
    """Path of a field in YAML -> its line."""

    def put(self, path: str, value: Any) -> None:
        """Set a field by its path, such as spec.cluster.workers[].replicas: of a list, in its first item."""
        node = self.spec
        *parents, last = path.removeprefix("spec.").split(".")
        for part in parents:
            name = part.removesuffix("[]")
            node = node.setdefault(name, [{}])[0] if part.endswith("[]") else node.setdefault(name, {})
        node[last.removesuffix("[]")] = value

    def get(self, path: str) -> Any:
        """The value of a field. None if it is not set."""
        node: Any = self.spec
        for part in path.removeprefix("spec.").split("."):
            name = part.removesuffix("[]")
            node = node.get(name) if isinstance(node, dict) else None
            node = node[0] if part.endswith("[]") and node else node
        return node

    def leave_out(self, what: str, why: str, line: int | None = None) -> None:
        """Note a part of the source once."""
        note = LeftOut(what, why, line)
        if all((each.what, each.why) != (what, why) for each in self.left_out):
            self.left_out.append(note)

    def find_line(self, path: str) -> int | None:
        """The line of a field in the source, or of the nearest enclosing field."""
        while path and path not in self.lines:
            path = path[: max(path.rfind("."), path.rfind("["), 0)]
        return self.lines.get(path) if path else None

    def add_variable(self, name: str, value: str) -> None:
        """Set an environment variable of the pods."""
        env = [each for each in self.spec.get("cluster", {}).get("env", []) if each["name"] != name]
        self.put("cluster.env", [*env, {"name": name, "value": value}])

    def build_manifest(self) -> dict[str, Any]:
        """The manifest of the job."""
        name = re.sub(r"[^a-z0-9]+", "-", self.name.lower()).strip("-")
        name = name if name[:1].isalpha() else f"job-{name}" if name else "converted"
        metadata = {"name": name[:MAX_NAME_LENGTH].strip("-"), **self.metadata}
        return {"apiVersion": f"{GROUP}/{VERSION}", "kind": KIND, "metadata": metadata, "spec": self.spec}
