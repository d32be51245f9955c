"""Writes what is generated from the API's types: `python crds/generate.py`, or `--check` to fail on a difference."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import yaml

from rlt_api.crd import custom_resource_definition
from rlt_api.reference import api_reference
from rlt_api.spec import RLTrainingJobSpec

ROOT = Path(__file__).parent.parent
HEADER = "# Generated from crds/rlt_api by `make generate`. Do not edit.\n"


class _Dumper(yaml.SafeDumper):
    def ignore_aliases(self, data: object) -> bool:
        return True


def generated_files() -> dict[Path, str]:
    """Every generated file with the text that it must have."""
    definition = custom_resource_definition()
    crd = HEADER + yaml.dump(definition, Dumper=_Dumper, sort_keys=False, width=120, allow_unicode=True)
    return {
        ROOT / "crds/rltrainingjobs.rlt.dev.yaml": crd,
        ROOT / "charts/rlt-operator/crds/rltrainingjobs.rlt.dev.yaml": crd,
        ROOT / "crds/schema/rltrainingjob.json": json.dumps(editor_schema(), indent=1) + "\n",
        ROOT / "docs/reference/rltrainingjob.md": api_reference(definition),
    }


def editor_schema() -> dict[str, object]:
    """The JSON schema that editors check an RLTrainingJob against, unknown fields refused."""
    spec = RLTrainingJobSpec.model_json_schema(by_alias=True)
    definitions = spec.pop("$defs")
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "RLTrainingJob",
        "type": "object",
        "required": ["apiVersion", "kind", "metadata", "spec"],
        "properties": {
            "apiVersion": {"const": "rlt.dev/v1alpha1"},
            "kind": {"const": "RLTrainingJob"},
            "metadata": {"type": "object"},
            "spec": spec,
            "status": {"type": "object"},
        },
        "additionalProperties": False,
        "$defs": definitions,
    }


def main() -> None:
    check = "--check" in sys.argv[1:]
    stale = [path for path, text in generated_files().items() if not path.exists() or path.read_text() != text]
    for path in stale:
        if not check:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(generated_files()[path])
        print(("out of date: " if check else "wrote ") + str(path.relative_to(ROOT)))
    if check and stale:
        sys.exit("Run `make generate` and commit what it writes.")


if __name__ == "__main__":
    main()
