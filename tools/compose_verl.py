"""Compose lists of overrides with a config of the installed verl, with Hydra alone, without importing verl.

The argument is the name of the config. Standard input: a JSON list of lists of overrides. Standard output: for each,
the composed values of the keys that it sets, by dotted key, or {"error": MESSAGE}.
"""

from __future__ import annotations

import json
import sys
import sysconfig
from pathlib import Path
from typing import Any

from hydra import compose, initialize_config_dir
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import HydraException
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException


def compose_values(name: str, overrides: list[str]) -> dict[str, Any]:
    """Compose one list. Interpolations are resolved over the whole config, as main_ppo does at its start."""
    try:
        config = compose(name, overrides=overrides, return_hydra_config=True)
        hydra = OmegaConf.to_container(config.hydra)  # main_ppo does not get this part
        own = OmegaConf.masked_copy(config, [key for key in config if key != "hydra"])
        resolved = {**OmegaConf.to_container(own, resolve=True), "hydra": hydra}
        keys = [each.key_or_group for each in OverridesParser.create().parse_overrides(overrides)]
        return {key: _select(resolved, key) for key in keys}
    except (HydraException, OmegaConfBaseException) as error:
        return {"error": str(error)}


def _select(config: Any, key: str) -> Any:
    for part in key.split("."):
        config = config[part]
    return config


def main() -> None:
    folder = Path(sysconfig.get_path("purelib")) / "verl/trainer/config"
    with initialize_config_dir(str(folder), version_base=None):
        print(json.dumps([compose_values(sys.argv[1], overrides) for overrides in json.load(sys.stdin)]))


if __name__ == "__main__":
    main()
