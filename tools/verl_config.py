"""Print the PPO config of the installed verl as JSON, dotted key -> default, with Hydra alone, without importing verl.

check_verl_mapping.py creates its environment.
"""

from __future__ import annotations

import json
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from hydra import compose, initialize_config_dir
from omegaconf import DictConfig, OmegaConf


def find_keys(node: Any, path: str = "") -> Iterator[str]:
    """Yield the keys of all values that are not non-empty mappings."""
    if isinstance(node, dict) and node:
        for name, child in node.items():
            yield from find_keys(child, f"{path}.{name}" if path else name)
    else:
        yield path


def read_default(config: DictConfig, key: str) -> Any:
    """Return the default with references resolved; "???" for a required value."""
    *above, last = key.split(".")
    block = OmegaConf.select(config, ".".join(above)) if above else config
    if OmegaConf.is_missing(block, last):
        return "???"
    found = block[last]
    return OmegaConf.to_container(found) if OmegaConf.is_config(found) else found


def main() -> None:
    folder = Path(sysconfig.get_path("purelib")) / "verl/trainer/config"
    with initialize_config_dir(str(folder), version_base=None):
        config = compose("ppo_trainer")
    print(json.dumps({key: read_default(config, key) for key in find_keys(OmegaConf.to_container(config))}))


if __name__ == "__main__":
    main()
