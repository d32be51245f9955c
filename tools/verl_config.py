"""Prints the PPO config of the installed verl as JSON, dotted key -> default, with Hydra alone: verl is not imported.

Runs in the environment that check_verl_mapping.py makes.
"""

from __future__ import annotations

import json
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from hydra import compose, initialize_config_dir
from omegaconf import DictConfig, OmegaConf


def leaves(node: Any, path: str = "") -> Iterator[str]:
    """Keys of all values that are no mapping with something in it."""
    if isinstance(node, dict) and node:
        for name, child in node.items():
            yield from leaves(child, f"{path}.{name}" if path else name)
    else:
        yield path


def value(config: DictConfig, key: str) -> Any:
    """The value as it is where nothing is overridden, references followed; "???" for one that must be given."""
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
    print(json.dumps({key: value(config, key) for key in leaves(OmegaConf.to_container(config))}))


if __name__ == "__main__":
    main()
