"""Write the schema of the chart's values: `python tools/values_schema.py`. With `--check`, fail if it is out of date.

It is generated from values.yaml: types from the values, descriptions from the comments above them.

A comment line `# @schema {…}` adds JSON-schema keywords to the value's. An object without such a line accepts
only its own keys; a key with a non-empty value is required.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import yaml

CHART = Path(__file__).parent.parent / "charts/rlt-operator"
Schema = dict[str, Any]
MARK = "@schema "
TYPES = {
    "tag:yaml.org,2002:str": "string",
    "tag:yaml.org,2002:int": "integer",
    "tag:yaml.org,2002:float": "number",
    "tag:yaml.org,2002:bool": "boolean",
}


def main() -> None:
    file = CHART / "values.schema.json"
    text = json.dumps(build_values_schema((CHART / "values.yaml").read_text()), indent=1) + "\n"
    if file.exists() and file.read_text() == text:
        return
    name = file.relative_to(CHART.parent.parent)
    if "--check" in sys.argv[1:]:
        sys.exit(f"out of date: {name}\nRun `make generate` and commit the changes.")
    file.write_text(text)
    print(f"wrote {name}")


def build_values_schema(text: str) -> Schema:
    """Build the schema (draft 7, for Helm 3) from the text of a values.yaml."""
    root = yaml.compose(text, Loader=yaml.SafeLoader)
    assert isinstance(root, yaml.MappingNode)
    schema = _object(root, text.splitlines())
    schema["properties"] = {"global": {"type": "object"}, **schema["properties"]}
    return {"$schema": "http://json-schema.org/draft-07/schema#", "title": "Values of rlt-operator", **schema}


def _object(node: yaml.MappingNode, lines: list[str]) -> Schema:
    properties = {}
    required = []
    for key, value in node.value:
        description, keywords = _comment(lines, key.start_mark.line)
        properties[key.value] = {
            **_schema(value, lines, keywords),
            **({"description": description} if description else {}),
        }
        if value.value not in ("", []):
            required.append(key.value)
    return {"type": "object", "additionalProperties": False, "required": required, "properties": properties}


def _schema(value: yaml.Node, lines: list[str], keywords: Schema) -> Schema:
    if isinstance(value, yaml.MappingNode):
        return _object(value, lines) if value.value and not keywords else {"type": "object", **keywords}
    if isinstance(value, yaml.SequenceNode):
        assert "items" in keywords, f"line {value.start_mark.line + 1}: a list needs @schema with items"
        return {"type": "array", **keywords}
    return {"type": TYPES[value.tag], **keywords}


def _comment(lines: list[str], line: int) -> tuple[str, Schema]:
    """Return the comment right above a line: its text, and the keywords of its @schema line."""
    sentences: list[str] = []
    keywords: Schema = {}
    while line > 0 and lines[line - 1].strip().startswith("#"):
        line -= 1
        text = lines[line].strip().removeprefix("#").strip()
        if text.startswith(MARK):
            keywords = json.loads(text.removeprefix(MARK))
        else:
            sentences.insert(0, text)
    return " ".join(sentences), keywords


if __name__ == "__main__":
    main()
