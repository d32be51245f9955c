"""slime's and Miles' train.py and train_async.py, as programs of command jobs.

Miles is a fork of slime with the same options (slime/utils/arguments.py, miles/utils/arguments.py, August 2026).
"""

from __future__ import annotations

from collections.abc import Iterator

from rlt_api.frameworks.arguments import Program, parse_flags
from rlt_api.frameworks.command.demand import read_number, require_devices, warn_without_resume
from rlt_api.frameworks.command.memory import MemoryArguments
from rlt_api.frameworks.key_table import KeyCheck, read_option
from rlt_api.frameworks.known_program import Call, Demand, KnownProgram, all_of, all_rules, any_of, by_script
from rlt_api.frameworks.slime.trial import shorten
from rlt_api.spec.job_spec import RLTrainingJobSpec

OPTIONS = (
    *("--actor-num-nodes", "--actor-num-gpus-per-node", "--rollout-num-gpus", "--rollout-num-gpus-per-engine"),
    *("--rollout-batch-size", "--hf-checkpoint", "--colocate", "--n-samples-per-prompt"),
)
"""Options by which a script train.py is slime's."""
MILES_OPTIONS = ("--eval-num-gpus", "--multi-lora", "--use-miles-router", "--miles-router-timeout")
SCRIPT = r"train(?:_async)?\.py"
NODES = "actor_num_nodes"
DEVICES = "actor_num_gpus_per_node"
ENGINES = "rollout_num_gpus"
DEFAULT_DEVICES = 8
"""The default of --actor-num-gpus-per-node."""
MODELS = ("hf_checkpoint", "ref_load")
KEYS = ("--actor-num-nodes", "--actor-num-gpus-per-node", "--rollout-num-gpus")


def count_devices(program: Program) -> Demand | None:
    """Count the accelerators as create_placement_groups does (slime/ray/placement_group.py)."""
    values = program.values
    nodes = read_number(program, NODES, 1)
    devices = read_number(program, DEVICES, DEFAULT_DEVICES)
    engines = read_number(program, ENGINES, 0)
    evaluation = read_number(program, "eval_num_gpus", 0)
    if nodes is None or devices is None or engines is None or evaluation is None:
        return None
    actor = nodes * devices
    if values.get("debug_rollout_only"):
        return Demand(engines, keys=KEYS[2:])
    if values.get("debug_train_only") or values.get("rollout_external"):
        return Demand(actor, per_pod=devices, keys=KEYS)
    if values.get("colocate"):
        return Demand(max(actor, engines), per_pod=devices, keys=KEYS)
    return Demand(actor, engines + evaluation, devices, KEYS)


def _read_slime(call: Call) -> Program:
    return Program("slime", tuple(parse_flags(call.words)))


def _read_miles(call: Call) -> Program:
    return Program("miles", tuple(parse_flags(call.words)))


PROMPTS = ("prompt_data",)
SLIME_KEYS = KeyCheck("slime/keys.toml", "ignores it", read_option, abbreviates=True)
MILES_KEYS = KeyCheck("slime/miles_keys.toml", "ends with an error", read_option, abbreviates=True)
WARN_RESUME = warn_without_resume("save", "load", "add --load with the folder of --save")


def warn_slime_keys(program: Program, spec: RLTrainingJobSpec) -> Iterator[str]:
    """Yield the warnings about options that slime does not have. A script train.py may also be Miles': the one that
    the options fit better."""
    yield from min((list(check.warn(program, spec)) for check in (SLIME_KEYS, MILES_KEYS)), key=len)


MEMORY = MemoryArguments(
    count_devices=count_devices,
    models=MODELS[:1],
    share="sglang_mem_fraction_static",
    default_share=None,
    engines="",
    devices_of_engine="rollout_num_gpus_per_engine",
    limit="sglang_context_length",
    lengths=("rollout_max_prompt_len", "rollout_max_response_len"),
    reducing=(
        *("optimizer_cpu_offload", "use_precision_aware_optimizer", "lora_rank", "optimizer", "debug_rollout_only"),
        *("only_train_params_name_list", "freeze_params_name_list", "fp8_param_gather", "fsdp_cpu_offload"),
    ),
)
RESUME = {"--load": "the folder of --save"}
SLIME = KnownProgram(
    name="slime",
    title="slime",
    recognize=by_script(rf"(?:.*/)?{SCRIPT}", *OPTIONS),
    read=_read_slime,
    count_devices=count_devices,
    models=MODELS,
    prompts=PROMPTS,
    checkpoints="save",
    resume=RESUME,
    validate=all_rules(require_devices(count_devices, "slime"), MEMORY.validate),
    warn=all_of(warn_slime_keys, MEMORY.warn, WARN_RESUME),
    shorten=shorten,
)
MILES = KnownProgram(
    name="miles",
    title="Miles",
    recognize=any_of(
        by_script(rf"(?:.*/)?miles/(?:.*/)?{SCRIPT}", *OPTIONS),
        by_script(rf"(?:.*/)?{SCRIPT}", *MILES_OPTIONS),
        by_script(r"(?:.*/)?train_multi_lora_async\.py"),
    ),
    read=_read_miles,
    count_devices=count_devices,
    models=MODELS,
    prompts=PROMPTS,
    checkpoints="save",
    resume=RESUME,
    validate=all_rules(require_devices(count_devices, "Miles"), MEMORY.validate),
    warn=all_of(MILES_KEYS.warn, MEMORY.warn, WARN_RESUME),
    shorten=shorten,
)
