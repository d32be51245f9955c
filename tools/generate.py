"""Write the generated files: `python tools/generate.py`. With `--check`, fail if one is out of date."""

from __future__ import annotations

import json
import sys
from collections.abc import Set
from pathlib import Path

import yaml

from examples_page import build_examples_page
from monitoring.alert_files import build_rules, build_runbooks
from monitoring.dashboards import build_dashboard_files
from monitoring.metrics_page import build_metrics_page
from rlt_api.frameworks.mapping import build_mapping_page
from rlt_api.model import ApiModel
from rlt_api.schema.crd import build_job_crd, build_runtime_crd
from rlt_api.schema.editor_schema import build_editor_schema
from rlt_api.schema.model_schema import build_schema
from rlt_api.schema.reference import build_api_reference
from rlt_api.spec.job_spec import RLTrainingJobSpec
from rlt_api.spec.runtime import RLRuntimeSpec
from rlt_api.status.job_status import RLTrainingJobStatus
from rlt_cli.reference import build_cli_reference
from rlt_core.fabric.profiles_page import build_profiles_page
from rlt_core.knowledge.page import build_troubleshooting_pages
from run_plots import build_run_plots

ROOT = Path(__file__).parent.parent
TROUBLESHOOTING = ROOT / "docs/troubleshooting"
"""A folder of generated pages alone: a page of a former topic is removed."""
HEADER = "# Generated from api/rlt_api by `make generate`. Do not edit.\n"


class _Dumper(yaml.SafeDumper):
    def ignore_aliases(self, data: object) -> bool:
        return True


def build_files() -> dict[Path, str]:
    """Build the text of each generated file."""
    files = {
        ROOT / "docs/examples.md": build_examples_page(),
        ROOT / "docs/reference/cli.md": build_cli_reference(),
        ROOT / "docs/reference/network-profiles.md": build_profiles_page(),
        ROOT / "docs/observability.md": build_metrics_page((ROOT / "docs/observability.md").read_text()),
        ROOT / "docs/runbooks.md": build_runbooks(),
        ROOT / "charts/rlt-operator/alerts/rules.yaml": build_rules(),
        ROOT / "docs/reference/verl-roll-mapping.md": build_mapping_page(),
    }
    files |= {ROOT / "docs/images" / name: text for name, text in build_run_plots().items()}
    files |= {TROUBLESHOOTING / name: text for name, text in build_troubleshooting_pages().items()}
    files |= {ROOT / "charts/rlt-operator/dashboards" / name: text for name, text in build_dashboard_files().items()}
    for definition, spec in (
        (build_job_crd(), RLTrainingJobSpec),
        (build_runtime_crd(), RLRuntimeSpec),
    ):
        names = definition["spec"]["names"]
        name = names["singular"]
        schema = json.dumps(build_editor_schema(names["kind"], spec), indent=1) + "\n"
        crd = HEADER + yaml.dump(definition, Dumper=_Dumper, sort_keys=False, width=120, allow_unicode=True)
        files |= {
            ROOT / f"crds/{definition['metadata']['name']}.yaml": crd,
            ROOT / f"charts/rlt-operator/crds/{definition['metadata']['name']}.yaml": crd,
            ROOT / f"crds/schema/{name}.json": schema,
            ROOT / f"docs/reference/{name}.md": build_api_reference(definition),
        }
    return files


def build_schema_files() -> dict[Path, str]:
    """Build the schemas that rlt_api reads. They are written first, because the other files depend on them."""
    folder = ROOT / "api/rlt_api/generated"
    models: tuple[type[ApiModel], ...] = (RLTrainingJobSpec, RLTrainingJobStatus, RLRuntimeSpec)
    return {folder / f"{model.__name__}.json": json.dumps(build_schema(model)) + "\n" for model in models}


def main() -> None:
    check = "--check" in sys.argv[1:]
    stale = [path for build in (build_schema_files, build_files) for path in update_files(build(), check=check)]
    stale += remove_pages(
        TROUBLESHOOTING, {TROUBLESHOOTING / name for name in build_troubleshooting_pages()}, check=check
    )
    if check and stale:
        sys.exit("Run `make generate` and commit the changes.")


def update_files(files: dict[Path, str], *, check: bool) -> list[Path]:
    """Write the files that differ, or with `check` only print their names. Returns them."""
    stale = [path for path, text in files.items() if not path.exists() or path.read_text() != text]
    for path in stale:
        if not check:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(files[path])
        print(("out of date: " if check else "wrote ") + str(path.relative_to(ROOT)))
    return stale


def remove_pages(folder: Path, wanted: Set[Path], *, check: bool) -> list[Path]:
    """Remove the pages of a folder that are not generated, or with `check` only print their names. Returns them."""
    stale = sorted(set(folder.glob("*.md")) - wanted)
    for path in stale:
        if not check:
            path.unlink()
        print(("not generated: " if check else "removed ") + str(path.relative_to(folder.parent)))
    return stale


if __name__ == "__main__":
    main()
