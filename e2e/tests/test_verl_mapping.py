"""The mapping from verl's settings to ours agrees with verl's own config, and the check would tell."""

from __future__ import annotations

from dataclasses import replace

import pytest

from check_verl_mapping import problems, verl_defaults
from rlt_api.mapping import find, mapping

VERL = mapping().verl
LEARNING_RATE = "actor_rollout_ref.actor.optim.lr"


@pytest.mark.slow
def test_the_mapping_agrees_with_verls_config() -> None:
    defaults = verl_defaults()
    assert len(defaults) > 800
    assert list(problems(defaults, VERL)) == []


def test_a_key_that_the_mapping_lacks_is_told() -> None:
    (found,) = problems({"trainer.new_key": 1}, [])
    assert found == "trainer.new_key is in verl's config and not in the mapping"


def test_a_key_that_verl_lacks_is_told() -> None:
    setting = find(LEARNING_RATE, VERL)
    assert setting
    (found,) = problems({}, [setting])
    assert found == f"{LEARNING_RATE} is not in verl's config"


def test_another_default_is_told() -> None:
    setting = find(LEARNING_RATE, VERL)
    assert setting
    (found,) = problems({LEARNING_RATE: 1e-6}, [replace(setting, default=1e-5)])
    assert found == f"{LEARNING_RATE} is 1e-06 in verl, 1e-05 in the mapping"


def test_a_key_that_came_back_is_told() -> None:
    proxy = find("trainer.wandb_proxy", VERL)
    assert proxy
    (found,) = problems({proxy.key: None}, [proxy])
    assert found == "trainer.wandb_proxy is in verl's config, and the mapping says that it is not"


def test_a_new_name_that_is_none_is_told() -> None:
    renamed = find("ray_init.num_cpus", VERL)
    assert renamed
    (found,) = problems({}, [renamed])
    assert found == "ray_init.num_cpus is said to be ray_kwargs.ray_init.num_cpus now, which is not in verl's config"
