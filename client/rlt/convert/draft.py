"""A job in construction, and what its source has that the job does not."""

from __future__ import annotations

import re
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
    spec: dict[str, Any] = field(default_factory=dict)
    left_out: list[LeftOut] = field(default_factory=list)

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

    def remove(self, path: str) -> bool:
        """Remove a field by its path, with indexes of lists. False if it is not set."""
        node: Any = self.spec
        *parents, last = re.findall(r"\w+", path.removeprefix("spec."))
        for part in parents:
            if isinstance(node, list):
                node = node[int(part)] if part.isdigit() and int(part) < len(node) else None
            else:
                node = node.get(part) if isinstance(node, dict) else None
        if isinstance(node, dict) and last in node:
            del node[last]
            return True
        return False

    def leave_out(self, what: str, why: str, line: int | None = None) -> None:
        """Note a part of the source once."""
        note = LeftOut(what, why, line)
        if all((each.what, each.why) != (what, why) for each in self.left_out):
            self.left_out.append(note)

    def add_variable(self, name: str, value: str) -> None:
        """Set an environment variable of the pods."""
        env = [each for each in self.spec.get("cluster", {}).get("env", []) if each["name"] != name]
        self.put("cluster.env", [*env, {"name": name, "value": value}])

    def build_manifest(self) -> dict[str, Any]:
        """The manifest of the job."""
        name = re.sub(r"[^a-z0-9]+", "-", self.name.lower()).strip("-")
        name = name if name[:1].isalpha() else f"job-{name}" if name else "converted"
        metadata = {"name": name[:MAX_NAME_LENGTH].strip("-")}
        return {"apiVersion": f"{GROUP}/{VERSION}", "kind": KIND, "metadata": metadata, "spec": self.spec}
