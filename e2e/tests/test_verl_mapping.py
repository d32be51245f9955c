"""The mapping of verl's settings matches verl's config, and the check detects differences."""

from __future__ import annotations

from dataclasses import replace

import pytest

from check_verl_mapping import find_differences, read_verl_defaults
from rlt_api.frameworks.mapping import find, load_mapping

VERL = load_mapping().verl
LEARNING_RATE = "actor_rollout_ref.actor.optim.lr"


@pytest.mark.slow
def test_mapping_matches_verls_config() -> None:
    defaults = read_verl_defaults()
    assert len(defaults) > 800
    assert list(find_differences(defaults, VERL)) == []


def test_unmapped_key_is_reported() -> None:
    (found,) = find_differences({"trainer.new_key": 1}, [])
    assert found == "trainer.new_key is in verl's config but not in the mapping"


def test_key_missing_in_verl_is_reported() -> None:
    setting = find(LEARNING_RATE, VERL)
    assert setting
    (found,) = find_differences({}, [setting])
    assert found == f"{LEARNING_RATE} is not in verl's config"


def test_different_default_is_reported() -> None:
    setting = find(LEARNING_RATE, VERL)
    assert setting
    (found,) = find_differences({LEARNING_RATE: 1e-6}, [replace(setting, default=1e-5)])
    assert found == f"{LEARNING_RATE} is 1e-06 in verl but 1e-05 in the mapping"


def test_restored_key_is_reported() -> None:
    proxy = find("trainer.wandb_proxy", VERL)
    assert proxy
    (found,) = find_differences({proxy.key: None}, [proxy])
    assert found == "trainer.wandb_proxy is in verl's config, but added, removed or renamed in the mapping"


def test_unknown_new_name_is_reported() -> None:
    renamed = find("ray_init.num_cpus", VERL)
    assert renamed
    (found,) = find_differences({}, [renamed])
    assert found == (
        "ray_init.num_cpus is renamed to ray_kwargs.ray_init.num_cpus in the mapping, which is not in verl's config"
    )
