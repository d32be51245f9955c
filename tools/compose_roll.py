"""Read configs as ROLL's entry does, with Hydra and OmegaConf alone (examples/start_rlvr_pipeline.py, ROLL 0.3.0).

Arguments: folders, relative to this file. Standard output: a JSON list with the resolved content of roll.yaml in each.
"""

from __future__ import annotations

import json
import sys

from hydra import compose, initialize
from omegaconf import OmegaConf


def read_config(folder: str) -> object:
    """Read roll.yaml in a folder."""
    with initialize(config_path=folder, version_base=None):
        return OmegaConf.to_container(compose("roll"), resolve=True)


if __name__ == "__main__":
    print(json.dumps([read_config(folder) for folder in sys.argv[1:]]))
