"""Jobs with framework verl: the settings of each field, unsupported fields, and overrides.

e2e/tests/test_verl_settings.py composes the settings with verl's own config.
"""

from __future__ import annotations

from typing import Any

import pytest
from job_specs import merged
from verl_jobs import ONLY_0_9, RUN, SEPARATE, TABLE, VERL, resolve

from rlt_api.frameworks.verl.keys import load_keys
from rlt_api.frameworks.verl.overrides import format_override
from rlt_api.frameworks.verl.settings import build_arguments, list_settings
from rlt_api.frameworks.warnings import warn_framework
from rlt_api.validation.validate import validate_job

ACTOR = "actor_rollout_ref.actor"
ASYNCHRONOUS = {
    "actor_rollout_ref.hybrid_engine": False,
    "actor_rollout_ref.model.lora.merge": True,
    "trainer.v1.trainer_mode": "separate_async",
    "trainer.v1.separate_async.parameter_sync_step": 4,
    "trainer.v1.separate_async.num_warmup_batches": 2,
    "trainer.v1.sampler.max_off_policy_threshold": 3,
}


@pytest.mark.parametrize("version", ["0.5", "0.9"])
@pytest.mark.parametrize("name", [*TABLE, *ONLY_0_9])
def test_job_is_valid_or_needs_a_newer_version(name: str, version: str) -> None:
    changes = {**TABLE, **ONLY_0_9}[name]
    found = validate_job("sum", merged(VERL, {"framework.version": version, **changes})).findings
    assert bool(found) == (version == "0.5" and name in ONLY_0_9), list(map(str, found))


def test_the_command_of_a_job() -> None:
    spec = resolve({"framework.overrides": ["trainer.balance_batch=false"], "training.ppoMiniBatchSize": 16})
    arguments = build_arguments(spec, RUN)
    assert arguments[:3] == ["python3", "-m", "verl.trainer.main_ppo"]
    assert arguments[-1] == "trainer.balance_batch=false"
    assert {
        "trainer.nnodes=2",
        "trainer.n_gpus_per_node=8",
        "trainer.default_local_dir=/mnt/rlt/runs/sum-1/checkpoints",
        "hydra.run.dir=/mnt/rlt/runs/sum-1/hydra",
        "trainer.project_name=team",
        "trainer.logger=[console]",
        # 16 prompts x 8 responses / 16 devices
        "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=8",
        "actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu=8",
        "actor_rollout_ref.ref.log_prob_micro_batch_size_per_gpu=8",
    } <= set(arguments)


@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
def test_fsdp_computes_in_the_dtype_of_the_model(dtype: str) -> None:
    changes = {"model.dtype": dtype, "model.path": "Qwen/Qwen2.5-0.5B-Instruct"}
    settings = list_settings(resolve({**changes, "algorithm": {"advEstimator": "gae", "critic": {}}}), RUN)
    parts = ("actor_rollout_ref.actor.fsdp_config", "actor_rollout_ref.ref.fsdp_config", "critic.fsdp")
    found: list[Any] = [settings[f"++{part}.mixed_precision"] for part in parts]
    assert {each["param_dtype"] for each in found} == {dtype}


@pytest.mark.parametrize(("group", "pods"), [("engines", (2, 3)), ("workers", (3, 2))])
def test_each_group_has_its_pods(group: str, pods: tuple[int, int]) -> None:
    changes = {**SEPARATE, "rollout.workerGroup": group}
    settings = list_settings(resolve(changes), RUN)
    assert (settings["trainer.nnodes"], settings["actor_rollout_ref.rollout.nnodes"]) == pods


@pytest.mark.parametrize(("version", "resource"), [("0.9", "CPU"), ("0.5", None)])
def test_the_head_gets_no_storage_of_samples(version: str, resource: str | None) -> None:
    """The head has no CPUs, and TransferQueue's actors need one."""
    settings = list_settings(resolve({}, version), RUN)
    assert settings.get("++transfer_queue.backend.SimpleStorage.required_node_resource") == resource


def test_generation_ahead_is_bounded() -> None:
    """The engines start max_steps batches early, and one step has an update and a weight sync for each mini-batch."""
    settings = list_settings(resolve(ONLY_0_9["asynchronous"]), RUN)
    assert {key: settings.get(key) for key in ASYNCHRONOUS} == ASYNCHRONOUS


def test_overrides_that_contradict_the_pods_are_rejected() -> None:
    spec = merged(VERL, {"framework.overrides": ["trainer.nnodes=4", "trainer.n_gpus_per_node=8", "oops", "-cn x"]})
    found = [(each.field, each.value) for each in validate_job("sum", spec).findings]
    assert found == [
        ("spec.framework.overrides[2]", "oops"),
        ("spec.framework.overrides[3]", "-cn x"),
        ("spec.framework.overrides[0]", "trainer.nnodes=4"),
    ]


@pytest.mark.parametrize(
    ("override", "warning"),
    [
        ("data.train_batch_size=64", "replaces spec.training.trainBatchSize; use that field"),
        ("data.train_batch_size=128", None),
        ("trainer.default_local_dir=/x", "replaces spec.storage.claimName; use that field"),
        ("trainer.balance_batch=false", None),
        ("++trainer.own=1", None),
    ],
)
def test_override_gets_a_warning(override: str, warning: str | None) -> None:
    found = list(warn_framework(resolve({"framework.overrides": [override]})))
    assert found == ([f"spec.framework.overrides[0]: {override}: {warning}"] if warning else [])


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["trainer.ballance_batch=false"], "is not a key of verl 0.9.1; did you mean trainer.balance_batch?"),
        (["foo.bar=1"], "is not a key of verl 0.9.1; remove it, or put a + before it if a plugin reads it"),
        (["+trainer.balance_batch=false"], "Hydra cannot add a key that verl's config contains; remove the +"),
        (["trainer.wandb_proxy=http://p:1"], "is not in the config of verl 0.9.1, which reads it; put a + before it"),
        ([f"{ACTOR}.fsdp_config.sharding_strategy=FULL_SHARD"], "verl 0.9.1 does not have it: FULL_SHARD corresponds"),
        ([f"{ACTOR}.megatron.tensor_model_parallel_size=2"], "is a key of model_engine=megatron, and the engine is dp"),
        (["model_engine=megatron", f"{ACTOR}.fsdp_config.fsdp_size=2"], "is a key of model_engine=dp"),
        (["model_engine=megatron", f"{ACTOR}.megatron.tensor_model_parallel_size=3"], "does not divide the 16 acceler"),
        (["model_engine=megatron", f"{ACTOR}.megatron.tensor_model_parallel_size=2"], None),
        (["+trainer.my_tag=abc", "++trainer.own=1", "hydra.run.dir=/x", "~critic.optim"], None),
    ],
)
def test_override_that_verl_does_not_take_is_rejected(overrides: list[str], message: str | None) -> None:
    found = [str(each) for each in validate_job("sum", merged(VERL, {"framework.overrides": overrides})).findings]
    assert len(found) == (message is not None), found
    assert message is None or message in found[0]


def test_megatron_gets_the_keys_that_its_config_has() -> None:
    changes = {
        "framework.overrides": ["model_engine=megatron"],
        "training": {"fsdp": {"paramOffload": True, "optimizerOffload": True}, "lrSchedule": {"type": "cosine"}},
    }
    settings = list_settings(resolve(changes), RUN)
    keys = load_keys("megatron")
    assert {key for key in settings if key not in keys and key[0] not in "+h"} == set()
    assert not [key for key in settings if "fsdp" in key or key.endswith("strategy")]
    expected = {"megatron.param_offload": True, "megatron.optimizer_offload": True, "optim.lr_decay_style": "cosine"}
    assert {f"{ACTOR}.{key}": value for key, value in expected.items()}.items() <= settings.items()


@pytest.mark.parametrize("name", TABLE)
def test_settings_are_keys_of_the_config(name: str) -> None:
    keys = load_keys("dp")
    assert {key for key in list_settings(resolve(TABLE[name]), RUN) if key not in keys and key[0] not in "+h"} == set()


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (True, "k=true"),
        (None, "k=null"),
        (1e-6, "k=1e-06"),
        ("plain/path.x", "k=plain/path.x"),
        ("true", "k='true'"),
        ("1e5", "k='1e5'"),
        ("it's", r"k='it\'s'"),
        ("end\\", "k='end\\\\'"),
        ("${x}", r"k='\${x}'"),
        (["a", "b c"], "k=[a,'b c']"),
        ({"a": {"b": 1}}, "k={a:{b:1}}"),
    ],
)
def test_values_are_formatted_for_hydra(value: Any, text: str) -> None:
    assert format_override("k", value) == text
