"""Compare api/rlt_api/frameworks/mapping.toml with verl's config: `python tools/check_verl_mapping.py`.

verl's wheel and Hydra are installed into a separate environment in the cache folder, without torch and Ray.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from rlt_api.frameworks.mapping import Setting, find, load_mapping
from rlt_e2e.cluster.stages import exit_with_message
from separate_environment import install


def read_verl_defaults() -> dict[str, Any]:
    """Return every key of verl's ppo_trainer config with its default."""
    script = Path(__file__).with_name("verl_config.py")
    printed = subprocess.run(
        [install("verl-config", "--no-deps"), "-W", "ignore", script], check=True, capture_output=True, text=True
    )
    defaults: dict[str, Any] = json.loads(printed.stdout)
    return defaults


def find_differences(defaults: Mapping[str, Any], settings: Iterable[Setting]) -> Iterator[str]:
    """Yield one line for each difference between the mapping and verl's config."""
    settings = tuple(settings)
    covering = {key: find(key, settings) for key in defaults}
    used = {setting.key for setting in covering.values() if setting}
    for key, setting in covering.items():
        if setting is None:
            yield f"{key} is in verl's config but not in the mapping"
    for setting in settings:
        if setting.in_config and setting.key not in used:
            yield f"{setting.key} is not in verl's config"
        if not setting.in_config and setting.key in used:
            yield f"{setting.key} is in verl's config, but added, removed or renamed in the mapping"
        if setting.renamed and setting.renamed not in defaults:
            yield f"{setting.key} is renamed to {setting.renamed} in the mapping, which is not in verl's config"
        if setting.fields and setting.key in defaults and setting.default != defaults[setting.key]:
            yield f"{setting.key} is {defaults[setting.key]!r} in verl but {setting.default!r} in the mapping"


def main() -> None:
    mapped = load_mapping()
    found = list(find_differences(read_verl_defaults(), mapped.verl))
    if found:
        sys.exit("\n".join(found))
    print(f"api/rlt_api/frameworks/mapping.toml matches verl {mapped.verl_version}")


if __name__ == "__main__":
    with exit_with_message():
        main()
