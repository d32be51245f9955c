"""Launch scripts and command lines of verl, OpenRLHF, ROLL and other programs, also with #SBATCH lines."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping

from rlt.convert.draft import ConvertError, Draft
from rlt.convert.launch import (
    PYTHON,
    SHELLS,
    Launch,
    apply_container_options,
    apply_environment,
    find_inner_script,
    unwrap,
)
from rlt.convert.settings import add_defaults, apply_settings
from rlt.convert.shell import LITERAL, Script, read_script, reveal
from rlt.convert.slurm import apply_directives, build_variables, read_directives
from rlt.convert.verl_job import build_verl_job
from rlt_api.frameworks.arguments import Program
from rlt_api.frameworks.known_programs import find_program, get_record
from rlt_api.frameworks.mapping import load_mapping

PREPARATION = re.compile(
    r"(preprocess|download|data_preprocess|pip|setup\.py|-m pip|convert|merge|-c$|examples/data|tools/)"
)
"""Words of Python programs that are not the training."""
POSITIONAL = re.compile(r"\$\{?[@*#0-9]\}?|\$\{[@*](:[^}]*)?\}")
PLUMBING = re.compile(
    r"(^|_)(PORT|ADDR|ADDRESS|IP|HOST|NODE|NODES|RANK|NODELIST|PATH)$|^(ip_head|port|SLURM_|RAY_ADDRESS)"
)
"""Variables that start or address a cluster, or name a place on the machine."""
NODES = {"verl": "trainer.nnodes", "openrlhf": "actor_num_nodes"}
DEVICES = {"verl": "trainer.n_gpus_per_node", "openrlhf": "actor_num_gpus_per_node"}
VERL_DEVICES = 8
"""verl's default of trainer.n_gpus_per_node."""
ROLES = ("actor", "ref", "critic", "reward")


def convert_script(text: str, to: str) -> Draft:
    """Convert a script or a command line. `to`: command, builtin or verl. Raises ConvertError."""
    draft = Draft()
    directives = read_directives(text)
    script = read_script(text, build_variables(directives))
    apply_directives(draft, directives)
    launches = list(_list_launches(script))
    launch = _find_training(launches)
    if launch is None:
        programs = ", ".join(dict.fromkeys(each.words[0] for each in launches if each.words)) or "no command"
        lines = len(text.splitlines())
        raise ConvertError(
            f"line {lines}: the script ends without a training program. Understood: {len(script.variables)} variables, "
            f"and the commands {programs[:300]}. Pass a script with the python or torchrun command"
            f"{_name_scripts(launches)}."
        )
    containers = [each for each in launches if each.image]
    for each in containers or [launch]:
        apply_container_options(draft, each)
    words = _drop_positional(draft, launch)
    program = find_program(words)
    environment = {name: script.variables.get(name, "") for name in script.exported}
    for each in (*containers, launch):
        environment |= each.environment
    plumbing = {name for name in environment if PLUMBING.search(name)}
    for name in sorted(plumbing):
        draft.leave_out(
            f"variable {name}", "it belongs to the cluster or the machine of the script", script.exported.get(name)
        )
    apply_environment(draft, {n: v for n, v in environment.items() if n not in plumbing}, script.exported)
    for name, line in script.loops.items():
        draft.leave_out(
            f"loop over {name}", f"its first value, {script.variables[name]}, was used: one job for each", line
        )
    for name, line in script.conditional.items():
        if name in script.exported:
            draft.leave_out(f"variable {name}", "it is set in a condition or a loop: its first value was used", line)
    _note_other_commands(draft, launches)
    if program:
        draft.name = draft.name or str(program.values.get("trainer.experiment_name", ""))
        apply_devices(draft, program)
    else:
        _apply_hydra_devices(draft, words)
    if to == "builtin":
        _build_builtin(draft, program, launch)
    elif to == "verl":
        if program is None or program.name != "verl" or program.own_config:
            name = " ".join(launch.words[:3])
            raise ConvertError(f"line {launch.line}: {name}: it is not verl's main_ppo: use --to command.")
        draft.spec.pop("framework", None)
        build_verl_job(draft, program, launch.line)
    else:
        draft.put(
            "framework",
            {"type": "command", **draft.spec.get("framework", {}), "command": build_command(draft, words, launch.line)},
        )
    return draft


def _list_launches(script: Script, line: int = 0) -> list[Launch]:
    """Every program of the script, also in `bash -c` and containers."""
    found = []
    for command in script.commands:
        launch = unwrap(command)
        launch.line += line
        found.append(launch)
        inner = find_inner_script(launch.words)
        if inner is not None:
            nested = read_script(reveal(inner), script.variables)
            for each in _list_launches(nested, launch.line - 1):
                each.environment = {**launch.environment, **each.environment}
                each.image = each.image or launch.image
                each.options = [*launch.options, *each.options]
                found.append(each)
    return found


def _find_training(launches: list[Launch]) -> Launch | None:
    """The last known program, otherwise the last Python program that is not a preparation."""
    known = [each for each in launches if find_program(each.words) and not find_inner_script(each.words)]
    python = [
        each
        for each in launches
        if each.words
        and PYTHON.fullmatch(each.words[0])
        and not PREPARATION.search(" ".join(each.words[1:3]))
        and len(each.words) > 1
    ]
    return (known or python or [None])[-1]  # type: ignore[list-item]


def _name_scripts(launches: list[Launch]) -> str:
    """The scripts that the script runs."""
    called = [word for each in launches if each.words[:1] and each.words[0] in SHELLS for word in each.words[1:2]]
    return f", such as {called[-1]}" if called else ""


def _note_other_commands(draft: Draft, launches: list[Launch]) -> None:
    """Files that the script reads, and arguments that a pipe takes from the program."""
    for each in launches:
        if each.words and each.words[0] in ("source", "."):
            draft.leave_out(" ".join(each.words), "the variables of that file are not read", each.line)
        if each.words and each.words[0] == "tee":
            for word in each.words[1:]:
                if "=" in word:
                    draft.leave_out(
                        word, "it is an argument of tee, after the pipe, and not of the training", each.line
                    )


def _drop_positional(draft: Draft, launch: Launch) -> tuple[str, ...]:
    """The words without "$@"."""
    for word in launch.words:
        if POSITIONAL.fullmatch(word):
            draft.leave_out(f'"{word}"', "the job has no arguments of a script: add them to the command", launch.line)
    return tuple(word for word in launch.words if not POSITIONAL.fullmatch(word))


def build_command(draft: Draft, words: tuple[str, ...], line: int | None = None) -> list[str]:
    """The command; through bash if its arguments have variables that the script does not set."""
    unknown = sorted({name for word in words for name in re.findall(r"\$\{?([A-Za-z_]\w*)", word)})
    if not any("$" in word or "`" in word for word in words):
        return [reveal(word) for word in words]
    names = ", ".join(unknown) or "a command substitution"
    draft.leave_out(f"value of {names}", "it is not in the script: set it in spec.cluster.env, or in the command", line)
    quoted = (_quote(word) if "$" in word or "`" in word else shlex.quote(reveal(word)) for word in words)
    return ["bash", "-c", " ".join(quoted)]


def _quote(word: str) -> str:
    """A word in double quotes, which keep its variables and substitutions."""
    escaped = re.sub(r'([\\"])', r"\\\1", word).replace(LITERAL, r"\$")
    return f'"{escaped}"'


def apply_devices(draft: Draft, program: Program) -> None:
    """Nodes and devices per node, by the program's own arguments."""
    values = {key: value for key, value in program.values.items() if isinstance(value, int) and value > 0}
    nodes = values.get(NODES.get(program.name, ""))
    devices = values.get(DEVICES.get(program.name, ""))
    if program.name not in NODES:
        demand = get_record(program).count_devices(program)
        nodes, devices = demand.divide() if demand else (None, None)
    elif program.name == "openrlhf":
        nodes, devices = _count_openrlhf(draft, program, values)
    else:
        nodes = nodes or (None if draft.get("cluster.workers[].replicas") else 1)
        if devices is None and not draft.get("cluster.workers[].accelerator.count"):
            devices = VERL_DEVICES if program.values.get("trainer.device", "cuda") == "cuda" else None
    workers = "cluster.workers[]"
    if nodes:
        given = draft.get(f"{workers}.replicas")
        if given and given != nodes:
            draft.leave_out(
                f"{given} nodes of Slurm", f"the program uses {nodes}: {NODES.get(program.name, program.name)}"
            )
        draft.put(f"{workers}.replicas", nodes)
    if devices:
        draft.put(f"{workers}.accelerator.count", devices)


def _apply_hydra_devices(draft: Draft, words: tuple[str, ...]) -> None:
    """Nodes and devices of a program with verl's arguments, such as a recipe."""
    fields = {"trainer.nnodes": "replicas", "trainer.n_gpus_per_node": "accelerator.count"}
    for word in words:
        key, _, value = word.lstrip("+").partition("=")
        if key in fields and value.isdigit():
            draft.put(f"cluster.workers[].{fields[key]}", int(value))


def _count_openrlhf(draft: Draft, program: Program, values: Mapping[str, int]) -> tuple[int | None, int | None]:
    """OpenRLHF's roles share devices with --colocate_all_models, in 0.11 --train.colocate_all, else they add up.

    The options are from openrlhf/cli/train_ppo_ray.py.
    """
    shared = not program.given.keys().isdisjoint({"colocate_all_models", "train_colocate_all"})
    per_node = values.get("actor_num_gpus_per_node")
    counts = [values.get(f"{role}_num_nodes", 1) * values.get(f"{role}_num_gpus_per_node", 0) for role in ROLES]
    if not shared and not program.given.keys().isdisjoint({"colocate_actor_ref", "train_colocate_actor_ref"}):
        counts[1] = 0
    total = max(counts) if shared else sum(counts)
    engines = values.get("vllm_num_engines", 0) * values.get("vllm_tensor_parallel_size", 1)
    total = max(total, engines) if shared else total + engines
    if not total or not per_node:
        return None, None
    size = min(8, total) if total % 8 else 8
    draft.leave_out("devices of the roles", f"together {total}: {-(-total // size)} pods with {size} each")
    return -(-total // size), size


def _build_builtin(draft: Draft, program: Program | None, launch: Launch) -> None:
    if program is None or program.name != "verl":
        name = program.name if program else " ".join(launch.words[:3])
        raise ConvertError(
            f"line {launch.line}: {name}: mapping.toml has the settings of verl and ROLL alone: use --to command."
        )
    for each in program.arguments:
        if not each.is_known:
            draft.leave_out(f"{each.key}={each.value}", "its value is not in the script", launch.line)
        elif each.prefix == "~":
            draft.leave_out(f"~{each.key}", "a removed key has no counterpart", launch.line)
    settings = load_mapping().verl
    apply_settings(draft, add_defaults(program.values, settings), settings, {})
    draft.spec.get("framework", {}).clear()
    draft.spec.pop("framework", None)
