"""The arguments of known programs, compared with the tables of their sources."""

from __future__ import annotations

import pytest
from job_specs import COMMAND, gpus, merged

from rlt_api.frameworks.key_table import load_table
from rlt_api.spec.job_spec import RLTrainingJobSpec
from rlt_api.validation.warnings import find_warnings

SLIME = "python3 train.py --actor-num-nodes 1 --actor-num-gpus-per-node 8"
MILES = "python3 /root/miles/train.py --actor-num-nodes 1 --actor-num-gpus-per-node 8"
SKYRL = "python3 -m skyrl.train.entrypoints.main_base trainer.placement.policy_num_gpus_per_node=8"
NEMO = "uv run examples/run_grpo.py --config examples/configs/grpo_math_8B.yaml cluster.num_nodes=1"
PRIME = "ray job submit --entrypoint-num-gpus 8 -- uv run rl @ rl.toml"
TRL = "ray job submit --entrypoint-num-gpus 8 -- trl grpo --model_name_or_path Qwen/Qwen3-0.6B"


def warn(line: str) -> list[str]:
    spec = RLTrainingJobSpec.model_validate(merged(COMMAND, {"framework.command": line.split(), **gpus(8, 1)}))
    found = [each for each in find_warnings(spec) if each.startswith("spec.framework.command[")]
    return [each.partition("]: ")[2] for each in found]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (
            f"{SLIME} --rollout-batchsize 32",
            "--rollout-batchsize=32: is not an argument of slime 0.3.1, which ignores it; did you mean "
            "--rollout-batch-size?",
        ),
        (f"{SLIME} --rollout_batch_size 32", "did you mean --rollout-batch-size?"),
        (f"{SLIME} --sglang-mem-fraction-statik 0.7", "did you mean --sglang-mem-fraction-static?"),
        (f"{SLIME} --tensor-model-parallel-sizes 2", "did you mean --tensor-model-parallel-size?"),
        (f"{SLIME} --rollout-batch-size many", "--rollout-batch-size=many: needs an integer"),
        (f"{SLIME} --advantage-estimator grpoo", "use grpo, gspo"),
        (f"{MILES} --lora-rnk 16", "of Miles 0.1.0, which ends with an error; did you mean --lora-rank?"),
        (f"{SKYRL} trainer.epoch=3", "of SkyRL 0.3.0, which ends with an error; did you mean trainer.epochs?"),
        (f"{SKYRL} generator.num_inference_engines=8", "is not an argument of SkyRL 0.3.0"),
        (f"{NEMO} grpo.num_prompts_per_stpe=8", "did you mean grpo.num_prompts_per_step?"),
        (f"{PRIME} --max-step 20", "of prime-rl 0.8.0, which ends with an error; did you mean --max-steps?"),
        (f"{PRIME} --trainer.lr 1e-6", "did you mean --trainer.optim.lr?"),
        (f"{PRIME} --ckpt.interval often", "needs an integer"),
        (f"{TRL} --num_generation 8 --max_prompt_lenght 9", "is not an argument of TRL 1.16.0"),
        (f"{TRL} --use_vlm", "did you mean --use_vllm?"),
        ("trl sft --reward_funcs accuracy_reward", "is not an argument of TRL 1.16.0, which does not use it"),
    ],
)  # fmt: skip
def test_an_unknown_argument_is_named(line: str, expected: str) -> None:
    assert any(expected in each for each in warn(line)), warn(line)


@pytest.mark.parametrize(
    "line",
    [
        f"{SLIME} --hf-checkpoint /mnt/rlt/model --ref-load /mnt/rlt/dist --load /mnt/rlt/out --save /mnt/rlt/out "
        "--swiglu --num-layers 36 --disable-bias-linear --qk-layernorm --normalization RMSNorm --rotary-base 1000000 "
        "--no-check-for-nan-in-loss-and-grad --micro-batch-size 1 --use-dynamic-batch-size --max-tokens-per-gpu 9216 "
        "--sglang-mem-fraction-static 0.7 --sglang-ep-size 8 --sglang-cuda-graph-bs 1 2 4 --router-policy cache_aware "
        "--sequence-parallel --recompute-granularity full --attention-backend flash --colocate --eps-clip-high 0.28",
        f"{SLIME} --train-backend fsdp --lora-rank 32 --lora-alpha 32 --target-modules all-linear",  # Miles
        f"{MILES} --use-miles-router --eval-sglang-mem-fraction-static 0.5 --no-gradient-checkpointing",
        f"{SKYRL} trainer.algorithm.kl_estimator_type=k3 generator.inference_engine.engine_init_kwargs.max_model_len=9 "
        "trainer.policy.megatron_config.transformer_config_kwargs.num_layers=4 data.val_data=[]",
        f"{SKYRL} trainer.override_entrypoint=mine.main trainer.mine.key=1",
        "python3 -m skyrl_train.entrypoints.main_base trainer.placement.policy_num_gpus_per_node=8 "
        "generator.num_inference_engines=8",  # 0.2
        "python3 -m examples.mine.main_mine trainer.placement.policy_num_gpus_per_node=8 trainer.mine=1",
        f"{NEMO} policy.megatron_cfg.enabled=true policy.generation.vllm_cfg.async_engine=true +mine.key=1 env.x.y=2",
        f"{PRIME} --max-steps 20 --ckpt --ckpt.interval 5 --resume --no-trainer.model.compile --run.name a "
        "--inference.vllm.max-num-seqs 256 --orchestrator.model.client.base-url http://x --data @ data.toml",
        f"{TRL} --bf16 --no_use_vllm --num-generations 8 --num_processes 8 --zero_stage 3 --config a.yaml",
        "python3 trl/examples/scripts/mine.py --mine 1",
    ],
)  # fmt: skip
def test_published_arguments_are_known(line: str) -> None:
    assert warn(line) == []


def test_a_table_names_its_sources() -> None:
    table = load_table("slime/miles_keys.toml")
    assert table.version == "Miles 0.1.0"
    assert table.list_keys("all")["rollout-batch-size"] == "int"
    assert table.list_keys("unknown") == {}
