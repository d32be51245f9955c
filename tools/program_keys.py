"""Write the table with the arguments of a known program: api/rlt_api/frameworks/FOLDER/NAME.toml, from its sources.

    .venv/bin/python tools/program_keys.py slime SLIME@COMMIT MEGATRON@COMMIT sglang-….whl sglang_router-….whl

The sources are commits of checkouts, or wheels: PROGRAMS lists them for each program in their order. They are read as
syntax trees and never run. Only names, kinds of values and choices are kept.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from config_classes import Kind, Place, Resolver, merge
from key_sources import Source, list_files
from parser_options import list_annotated_fields, list_field_options, list_given_names, list_options

FRAMEWORKS = Path(__file__).parents[1] / "api/rlt_api/frameworks"
Keys = dict[str, Kind]
MEGATRON = Resolver(("",), {})
SKIPPED = (
    *("model-path", "model", "config", "trust-remote-code", "random-seed", "enable-memory-saver", "port", "nnodes"),
    *("node-rank", "dist-init-addr", "nccl-init-addr", "gpu-id-step", "base-gpu-id", "nccl-port", "skip-server-warmup"),
    *("enable-return-routed-experts",),
)
"""SGLang's options that slime sets itself (slime/backends/sglang_utils/arguments.py)."""


def read_slime(slime: Source, megatron: Source, sglang: Source, router: Source) -> Mapping[str, Keys]:
    """Read the options of slime, of Megatron, and of SGLang with --sglang- before them."""
    used = {**read_megatron(megatron), **read_sglang(sglang, router, "sglang")}
    return {"all": {**without_choices(used), **list_all_options(slime, "slime/")}}


def read_miles(miles: Source, megatron: Source, sglang: Source, router: Source) -> Mapping[str, Keys]:
    """Read the options of Miles, as slime's, and of its FSDP backend."""
    fsdp = Place(miles, "miles/backends/fsdp_utils/arguments.py", "FSDPArgs")
    fields = {key.replace("_", "-"): kind for key, kind in Resolver(("",), {}).list_keys(fsdp)}
    switches: Keys = {f"no-{key}": "flag" for key, kind in fields.items() if kind == "bool"}
    plain: Keys = {key: "flag" if kind == "bool" else kind for key, kind in fields.items()}
    engines = {**read_sglang(sglang, router, "sglang"), **read_sglang(sglang, router, "eval-sglang")}
    used = without_choices({**read_megatron(megatron), **engines})
    return {"all": {**plain, **switches, **used, **list_all_options(miles, "miles/")}}


def without_choices(keys: Keys) -> Keys:
    """Leave out the choices of packages whose version the image decides."""
    return {key: kind if isinstance(kind, str) else "text" for key, kind in keys.items()}


def list_all_options(source: Source, folder: str) -> Keys:
    """List the options of all modules that have arguments of the training by their name."""
    files = [each for each in list_files(source.location) if each.startswith(folder) and each.endswith(".py")]
    chosen = sorted(each for each in files if each.endswith(("arguments.py", "/args.py")) and "debug_utils" not in each)
    return {name[2:]: kind for each in chosen for name, kind in list_options(source, each)}


def read_megatron(megatron: Source) -> Keys:
    """Read the options of Megatron-LM's training."""
    path = "megatron/training/arguments.py"
    keys: Keys = {name[2:]: kind for name, kind in list_field_options(megatron, path, MEGATRON, negated=True)}
    for file in ("transformer/transformer_config.py", "model_parallel_config.py", "optimizer/optimizer_config.py"):
        keys |= {name[2:]: "text" for name in list_given_names(megatron, f"megatron/core/{file}", "arg_names")}
    for file in sorted(list_files(megatron.location)):
        if file.startswith("megatron/training/config/"):
            keys |= {name[2:]: "text" for name in list_given_names(megatron, file, "arg_names")}
    return keys | {name[2:]: kind for name, kind in list_options(megatron, path)}


def read_sglang(sglang: Source, router: Source, prefix: str) -> Keys:
    """Read the options of SGLang's server with a prefix, and of its router."""
    path = "sglang/srt/server_args.py"
    names = {
        **dict(list_annotated_fields(sglang, path, "ServerArgs")),
        **dict.fromkeys(list_given_names(sglang, path, "aliases"), "text"),
        **dict(list_options(sglang, path)),
    }
    keys: Keys = {f"{prefix}-{name[2:]}": kind for name, kind in names.items() if name[2:] not in SKIPPED}
    routing = list_options(router, "sglang_router/router_args.py", "router-")
    return keys | {name[2:]: kind for name, kind in routing if name.startswith("--router-")}


def read_skyrl(skyrl: Source) -> Mapping[str, Keys]:
    """Read the keys of SkyRL's config, with two earlier ones that from_cli_overrides takes."""
    resolver = Resolver(("", "skyrl-gym/"), {})
    keys = merge(resolver.list_keys(Place(skyrl, "skyrl/train/config/config.py", "SkyRLTrainConfig")))
    return {"all": {**keys, "generator.inference_engine.async_engine": "bool", "trainer.use_sample_packing": "bool"}}


def read_prime_rl(prime: Source) -> Mapping[str, Keys]:
    """Read the keys of prime-rl's entry points."""
    folder = "packages/prime-rl-configs/src/"
    resolver = Resolver((folder, "src/"), {})
    names = {"rl": "RL", "sft": "SFT", "trainer": "Trainer", "orchestrator": "Orchestrator", "inference": "Inference"}
    return {
        entry: merge(resolver.list_keys(Place(prime, f"{folder}prime_rl/configs/{entry}.py", f"{name}Config")))
        for entry, name in names.items()
    }


def read_nemo_rl(nemo: Source) -> Mapping[str, Keys]:
    """Read the keys of NeMo-RL's config classes, and of its published configs, which have more."""
    resolver = Resolver(("",), {})
    files = list_files(nemo.location)
    modules = sorted(each for each in files if each.startswith("nemo_rl/algorithms/") and each.endswith(".py"))
    keys = merge(pair for each in modules for pair in resolver.list_keys(Place(nemo, each, "MasterConfig")))
    for file in sorted(files):
        if file.startswith("examples/") and file.endswith(".yaml"):
            given = yaml.safe_load(nemo.read(file))
            for key, kind in list_yaml_keys(given):
                keys.setdefault(key, kind)
    return {"all": keys}


def list_yaml_keys(node: Any, path: str = "") -> Iterator[tuple[str, Kind]]:
    """List the dotted keys of a config."""
    if isinstance(node, dict) and node:
        for name, child in node.items():
            yield from list_yaml_keys(child, f"{path}.{name}" if path else str(name))
    elif path:
        yield path, "open" if isinstance(node, list | dict) else "text"


def read_trl(trl: Source, transformers: Source, accelerate: Source) -> Mapping[str, Keys]:
    """Read the options that the commands of trl have: their dataclasses, and accelerate launch."""
    arguments = Place(transformers, "transformers/training_args.py", "TrainingArguments")
    resolver = Resolver(("",), {"transformers.TrainingArguments": arguments})
    options = list_options(accelerate, "accelerate/commands/launch.py")
    launch = without_choices({name[2:].replace("-", "_"): kind for name, kind in options})
    commands = {"grpo": "GRPO", "rloo": "RLOO", "dpo": "DPO", "kto": "KTO", "sft": "SFT", "reward": "Reward"}
    sections: dict[str, Keys] = {}
    for command, name in commands.items():
        places = [
            Place(trl, f"trl/trainer/{command}_config.py", f"{name}Config"),
            Place(trl, "trl/trainer/model_config.py", "ModelConfig"),
            Place(trl, "trl/scripts/utils.py", "DatasetMixtureConfig"),
            Place(trl, "trl/scripts/utils.py", "ScriptArguments"),
            Place(trl, f"trl/scripts/{command}.py", f"{name}ScriptArguments"),
        ]
        keys: Keys = {key: kind for each in places for key, kind in resolver.list_keys(each)}
        own: Keys = {key: "text" if kind == "open" else kind for key, kind in keys.items()}
        switches: Keys = {f"no_{key}": "bool" for key, kind in own.items() if kind == "bool"}
        sections[command] = {**launch, **own, **switches, "config": "text", "accelerate_config": "text"}
    return sections


SOURCES: Mapping[str, str] = {
    "megatron": "github.com/NVIDIA/Megatron-LM",
    "sglang": "the wheel of sglang",
    "router": "the wheel of sglang-router",
}
PROGRAMS: Mapping[str, tuple[str, str, Callable[..., Mapping[str, Keys]], tuple[str, ...]]] = {
    "slime": (
        *("slime/keys.toml", "slime 0.3.1", read_slime),
        ("github.com/THUDM/slime", *SOURCES.values()),
    ),
    "miles": (
        *("slime/miles_keys.toml", "Miles 0.1.0", read_miles),
        ("github.com/radixark/miles", *SOURCES.values()),
    ),
    "skyrl": ("skyrl/keys.toml", "SkyRL 0.3.0", read_skyrl, ("github.com/NovaSky-AI/SkyRL",)),
    "nemo-rl": ("nemo_rl/keys.toml", "NeMo-RL 0.6.0", read_nemo_rl, ("github.com/NVIDIA-NeMo/RL",)),
    "prime-rl": ("prime_rl/keys.toml", "prime-rl 0.8.0", read_prime_rl, ("github.com/PrimeIntellect-ai/prime-rl",)),
    "trl": (
        *("trl/keys.toml", "TRL 1.16.0", read_trl),
        ("the wheel of trl", "the wheel of transformers", "the wheel of accelerate"),
    ),
}
"""Name -> file of the table, version in messages, reader, and its sources."""


def main(name: str, *locations: str) -> None:
    """Write the table of a program."""
    file, version, read, titles = PROGRAMS[name]
    sources = [Source(each) for each in locations]
    sections = read(*sources)
    sections = {section: without_inner(keys) for section, keys in sections.items()}
    first = next(iter(sections.values()))
    common = {key: kind for key, kind in first.items() if all(each.get(key) == kind for each in sections.values())}
    listed = "; ".join(f"{title} {each.version}" for title, each in zip(titles, sources, strict=True))
    lines = [f"# Generated by tools/program_keys.py from {listed}.", f"version = {json.dumps(version)}"]
    lines += format_section("all", common)
    for section, keys in sections.items():
        if own := {key: kind for key, kind in keys.items() if common.get(key) != kind}:
            lines += format_section(section, own)
    (FRAMEWORKS / file).write_text("\n".join(lines) + "\n")


def without_inner(keys: Keys) -> Keys:
    """Leave out the keys below an open one."""
    above = {key for key, kind in keys.items() if kind == "open"}
    return {key: kind for key, kind in keys.items() if not any(key.startswith(f"{each}.") for each in above)}


def format_section(name: str, keys: Keys) -> list[str]:
    """Format the keys of a section, one a line."""
    return ["", f"[{name}]", *(f"{json.dumps(key)} = {json.dumps(keys[key])}" for key in sorted(keys))]


if __name__ == "__main__":
    main(*sys.argv[1:])
