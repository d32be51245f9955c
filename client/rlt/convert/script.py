"""Launch scripts and command lines of verl, OpenRLHF, slime and other programs, also with #SBATCH lines."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from rlt.convert.command import build_command
from rlt.convert.containers import apply_image, apply_options, list_step_options
from rlt.convert.devices import (
    OWN_MACHINE,
    Demand,
    count_visible,
    find_demand,
    find_started,
    starts_own_processes,
)
from rlt.convert.draft import ConvertError, Draft
from rlt.convert.environment import PATHS, PLUMBING, apply_environment
from rlt.convert.launch import SHELLS, Launch, list_launches, list_submissions
from rlt.convert.preparation import AFTER, apply_others, get_target, is_preparation
from rlt.convert.settings import add_defaults, apply_settings, complete_suite
from rlt.convert.shell import Script, read_script
from rlt.convert.slurm import LONG, Option, apply_directives, build_variables, count_gpus, read_directives
from rlt.convert.text import is_known, mark_plain, reveal, show
from rlt.convert.verl_job import build_verl_job
from rlt_api.frameworks.arguments import Program
from rlt_api.frameworks.known_programs import find_program
from rlt_api.frameworks.mapping import load_mapping
from rlt_api.frameworks.roll.script import find_roll_script

__all__ = ["apply_devices", "build_command", "convert_script"]

WORKERS = "cluster.workers[]"
TRAINERS = re.compile(r"python[\d.]*|torchrun|accelerate|deepspeed|trl|swift|xtuner|llamafactory-cli|axolotl")
KNOWN = re.compile(
    r"--actor-num-gpus-per-node|--rollout-num-gpus|(^|\s)trainer\.placement\.|(^|[\s/])run_(grpo|dpo|ppo|sft|distillation)\w*\.py"
    r"|(^|\s)(\S*/)?trl (sft|dpo|grpo|rloo|kto|reward)\b|(^|\s)-m skyrl|accelerate launch"
)
"""Command lines of trainings, apart from verl's and OpenRLHF's."""
PRIME = re.compile(r"(rl|sft|orchestrator|trainer)")
"""The programs of prime-rl, which uv starts."""
MAX_FOLLOWED = 24
"""Maximum number of parts with unknown conditions in which the training is looked for."""
AMD = re.compile(
    r"(?<![A-Z_])(HIP|ROCR)_VISIBLE_DEVICES=[\"']?\d|/dev/kfd|--rocm\b|\brocm/|:[\w.-]{0,80}rocm"
    r"|module (load|add) [^\n]{0,80}rocm"
)
"""What only machines with AMD devices have in a script."""
NPU = re.compile(r"ASCEND_RT_VISIBLE_DEVICES=|/dev/davinci|trainer\.device=[\"']?npu")
NO_PROGRAM = "the script ends without a training program"


def convert_script(text: str, to: str) -> Draft:
    """Convert a script or a command line. `to`: command, builtin or verl. Raises ConvertError."""
    try:
        return _convert_script(text, to)
    except RecursionError:
        message = (
            "line 1: its commands, quotes or substitutions are too deep in each other: pass the training command alone."
        )
        raise ConvertError(message) from None


def _convert_script(text: str, to: str) -> Draft:
    draft = Draft()
    directives = read_directives(text)
    script = read_script(text, build_variables(directives))
    launches = list_launches(script)
    training = _find_training(launches)
    if training is None:
        script, launches, training = _follow(text, directives, script, launches)
    if training is None:
        raise ConvertError(_describe_missing(text, script, launches))
    directives = {**directives, **_list_submitted(launches, training)}
    if not directives:
        directives = list_step_options(training)
    apply_directives(draft, directives)
    containers = [each for each in launches if each.image and each is not training and not each.inner]
    for each in [*containers, training]:
        apply_image(draft, each)
        if each is training or (each.words[:1] and each.words[0] not in SHELLS):
            apply_options(draft, each)
    _apply_working_directory(draft, training)
    _apply_variables(draft, script, launches, containers, training)
    words = tuple(mark_plain(each) for each in training.words)
    program = find_program(words)
    if program:
        draft.name = draft.name or reveal(str(program.values.get("trainer.experiment_name", "")))
    demand = apply_devices(draft, program, words, find_size(launches, training))
    _note_directives(draft, directives, demand)
    _set_vendor(draft, text, {**training.exported, **training.environment})
    others = [(each, index < launches.index(training)) for index, each in enumerate(launches) if each is not training]
    _note_loop(draft, training, others)
    apply_others(draft, [each for each in others if each[0] not in containers or not each[0].inner], to)
    if training.command.redirects:
        draft.leave_out(f"the output {training.command.redirects}", "rlt logs has it", training.line)
    if training.command.background:
        draft.leave_out("& after the training", "the operator starts the program, and waits for its end", training.line)
    for what, why, line in script.notes:
        draft.leave_out(what, why, line or None)
    _set_framework(draft, training, program, script, to)
    return draft


def _set_framework(draft: Draft, training: Launch, program: Program | None, script: Script, to: str) -> None:
    if to != "command":
        _note_program(draft, training, program)
    if to == "builtin":
        _build_builtin(draft, program, training)
        return
    if to == "verl":
        if program is None or program.name != "verl" or program.own_config:
            name = show(" ".join(training.words[:3]))
            why = "it reads its own config" if program and program.own_config else "it is not verl's main_ppo"
            raise ConvertError(f"line {training.line}: {name}: {why}: use --to command.")
        prepare = draft.get("framework.prepare")
        draft.spec.pop("framework", None)
        build_verl_job(draft, program, training.line)
        if prepare:
            draft.put("framework.prepare", prepare)
        return
    if starts_own_processes(training.plain):
        draft.leave_out(" ".join(training.plain[:2]), OWN_MACHINE, training.line)
    command = build_command(draft, training.words, training.line, sources=script.scope.unknown)
    draft.put("framework", {"type": "command", **draft.spec.get("framework", {}), "command": command})


def _note_program(draft: Draft, training: Launch, program: Program | None) -> None:
    """What fields and overrides replace: the program, and arguments that others replace."""
    start = next((index for index, word in enumerate(training.plain) if "=" in word), len(training.words))
    text = show(" ".join(training.words[:start]))
    draft.leave_out(text, "the operator starts the program of spec.framework.type", training.line)
    for each in program.arguments if program else ():
        if program and program.given.get(each.key) is not each:
            draft.leave_out(f"{each.key}={show(each.value)}", "a later argument replaces it", training.line)


def _follow(
    text: str, directives: Mapping[str, Option], script: Script, launches: list[Launch]
) -> tuple[Script, list[Launch], Launch | None]:
    """Read the script again with each part that depends on the machine, until one has the training."""
    candidates = [each for each in script.skipped if "depends on" in each.why or "a loop" in each.why]
    followed: list[tuple[int, int]] = []
    for part in candidates[:MAX_FOLLOWED]:
        place = (part.node.line, part.node.start)
        inner = read_script(text, build_variables(directives), followed=[*followed, place])
        found = list_launches(inner)
        training = _find_training(found)
        if training is not None:
            return inner, found, training
        deeper = [each for each in inner.skipped if each.node.line >= part.node.line and each not in script.skipped]
        for each in deeper[:MAX_FOLLOWED]:
            places = [*followed, place, (each.node.line, each.node.start)]
            second = read_script(text, build_variables(directives), followed=places)
            found = list_launches(second)
            training = _find_training(found)
            if training is not None:
                return second, found, training
    return script, launches, None


def _find_training(launches: list[Launch]) -> Launch | None:
    """The last known program, otherwise the last Python program that is neither a preparation nor an evaluation. Of the
    values of a loop, the first one. One in the background only if there is no other."""
    programs = [each for each in launches if not each.inner and each.words]
    known = [each for each in programs if find_program(each.plain) or find_roll_script(each.plain)]
    others = [each for each in programs if _is_known(each) and not AFTER.search(get_target(each.plain))]
    python = [each for each in programs if _is_python(each)]
    for found in (known, others, python):
        foreground = [each for each in found if not each.command.background]
        if not found:
            continue
        last = (foreground or found)[-1]
        if last.command.loop is not None:
            line = last.command.line
            return next(each for each in found if each.command.line == line and each.command.loop)
        return last
    return None


def _is_known(launch: Launch) -> bool:
    words = launch.plain
    starts = TRAINERS.fullmatch(words[0].rpartition("/")[2]) is not None
    is_prime = PRIME.fullmatch(words[0]) is not None and any(each.name == "uv run" for each in launch.wrappers)
    return is_prime or (starts and KNOWN.search(" ".join(words)) is not None)


def _is_python(launch: Launch) -> bool:
    words = launch.plain
    if (
        not TRAINERS.fullmatch(words[0].rpartition("/")[2])
        or len(words) < 2
        or words[1] in ("-c", "-V", "--version", "env", "config")
    ):
        return False
    target = get_target(words)
    return bool(target) and not is_preparation(words) and not AFTER.search(target)


def _describe_missing(text: str, script: Script, launches: list[Launch]) -> str:
    programs = ", ".join(dict.fromkeys(show(each.words[0]) for each in launches if each.words)) or "no command"
    lines = len(text.splitlines())
    called = []
    for each in launches:
        words = [reveal(word) for word in each.words]
        name = words[0].rpartition("/")[2] if words else ""
        paths = [word for word in words[1:] if not word.startswith("-")]
        if name in (*SHELLS, "sbatch", "source", ".") and paths and not each.inner:
            called.append(next((path for path in reversed(paths) if re.search(r"\.\w+$", path)), paths[0]))
        elif words and re.search(r"\.(sh|sbatch|slurm)$", words[0]):
            called.append(words[0])
    names = len(script.variables) + len(script.scope.arrays)
    return (
        f"line {lines}: {NO_PROGRAM}. Understood: {names} variables, and the commands {programs[:300]}. Pass a script "
        f"with the python or torchrun command{f', such as {called[-1]}' if called else ''}."
    )


def _list_submitted(launches: Sequence[Launch], training: Launch) -> dict[str, Option]:
    """The options of the sbatch that submits the training."""
    found = {}
    for each in launches:
        if each.inner and each.words[:1] == ("sbatch",):
            for option, value in list_submissions([reveal(word) for word in each.words]):
                if value and "$" not in value:
                    found[LONG.get(option, option)] = Option(value, each.line, "sbatch")
            container = each.environment.get("CONTAINER") or each.exported.get("CONTAINER")
            training.image = training.image or container
    return found


def _apply_working_directory(draft: Draft, training: Launch) -> None:
    directory = training.directory
    is_submitted = any(each.name == "ray job submit" for each in training.wrappers)
    is_set = draft.get("framework.workingDirectory") is not None and is_submitted
    if directory and not is_set and not draft.get("framework.runtimeEnv.workingDir"):
        draft.put("framework.workingDirectory", directory)


def _apply_variables(
    draft: Draft, script: Script, launches: Sequence[Launch], containers: Sequence[Launch], training: Launch
) -> None:
    """Set the variables that are exported, given to Ray's nodes and containers, or written before the program."""
    environment = dict(training.exported)
    lines = {**dict.fromkeys(training.environment, training.line), **training.lines}
    for each in launches:
        if find_started(each.plain) or each.plain[:2] == ("ray", "start"):
            environment |= {name: value for name, value in each.environment.items() if is_known(value)}
    for each in (*containers, training):
        for name, value in each.environment.items():
            if environment.get(name, value) != value:
                draft.leave_out(
                    f"{name}={show(environment[name])}", f"{each.plain[0]} gets another value", lines.get(name)
                )
        environment |= each.environment
    explicit = training.environment.keys()
    plumbing = {name for name in environment if PLUMBING.search(name)}
    paths = {name for name in environment.keys() - plumbing if PATHS.search(name)}
    for name in sorted(plumbing):
        why = "it belongs to the cluster or the machine of the script"
        draft.leave_out(f"variable {name}={show(environment[name])}", why, lines.get(name))
    for name in sorted(paths):
        value = environment[name]
        if is_known(value) and name not in ("PATH", "LD_LIBRARY_PATH") and (name in explicit or name == "PYTHONPATH"):
            draft.add_variable(name, reveal(value))
            why = "spec.cluster.env has it: the image or the volume must have these folders"
        else:
            why = "it belongs to the cluster or the machine of the script: set it in spec.cluster.env for the image"
        draft.leave_out(f"variable {name}={show(value)}", why, lines.get(name))
    others = {name: value for name, value in environment.items() if name not in plumbing | paths}
    apply_environment(draft, others, lines)


def apply_devices(draft: Draft, program: Program | None, words: Sequence[str] = (), size: int | None = None) -> Demand:
    """Nodes and devices per node, by the program's own arguments. `size`: devices per node that the script shows."""
    given = draft.get(f"{WORKERS}.replicas")
    count = draft.get(f"{WORKERS}.accelerator.count")
    size = count or size
    demand = find_demand(words, program, size, given)
    what = demand.what
    if demand.nodes:
        draft.put(f"{WORKERS}.replicas", demand.nodes)
    if given and demand.nodes and given != demand.nodes:
        why = f"the program uses {demand.nodes}"
        draft.leave_out(f"{given} nodes of Slurm", why)
    devices = demand.devices or size
    if devices:
        draft.put(f"{WORKERS}.accelerator.count", devices)
    if demand.resource:
        draft.put(f"{WORKERS}.accelerator.resourceName", demand.resource)
    if what:
        nodes = demand.nodes or given or 1
        draft.leave_out("devices of the roles", f"{what}: {nodes} pods with {devices} each")
    if not demand.nodes and not given:
        draft.leave_out("the number of nodes", "it is not in the script: set spec.cluster.workers[].replicas")
    return demand


def find_size(launches: Sequence[Launch], training: Launch) -> int | None:
    """Devices of a node, as the script's other options show them."""
    visible = training.environment.get("CUDA_VISIBLE_DEVICES") or training.exported.get("CUDA_VISIBLE_DEVICES") or ""
    started = [count for each in launches if (count := find_started(tuple(map(reveal, each.words))))]
    options = [(option, reveal(value)) for _, option, value in training.options]
    asked = [count for option, value in options if option in ("--gpus", "--gres") if (count := count_gpus(value))]
    return max(started, default=None) or next(iter(asked), None) or count_visible(reveal(visible))


def _note_directives(draft: Draft, directives: Mapping[str, Option], demand: Demand) -> None:
    """Options of Slurm whose field the program's arguments give."""
    names = ["--nodes"] if demand.nodes else []
    names += ["--gpus-per-node", "--gres", "--gpus"] if demand.devices else []
    for name in names:
        if name in directives:
            option = directives[name]
            draft.leave_out(option.describe(name), "the arguments of the program give it", option.line)


def _set_vendor(draft: Draft, text: str, variables: Mapping[str, str]) -> None:
    """The resource of the devices. A count that the script does not give is asked for."""
    resource = draft.get(f"{WORKERS}.accelerator.resourceName")
    content = "\n".join(line for line in text.splitlines() if not line.lstrip().startswith("#"))
    visible = (variables.get(name, "") for name in ("HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES"))
    if any(re.match(r"\d", value) for value in visible) or "rocm" in str(draft.get("cluster.image")):
        resource = "amd.com/gpu"
        draft.put(f"{WORKERS}.accelerator.resourceName", resource)
    if resource is None:
        found = (
            "amd.com/gpu"
            if AMD.search(content)
            else "huawei.com/Ascend910"
            if NPU.search(content)
            else "nvidia.com/gpu"
        )
        draft.put(f"{WORKERS}.accelerator.resourceName", found)


def _note_loop(draft: Draft, training: Launch, others: list[tuple[Launch, bool]]) -> None:
    """Other values of the loop around the training."""
    if training.command.loop is None:
        return
    name, value, line = training.command.loop
    draft.leave_out(f"loop over {name}", f"its first value, {value}, was used: one job for each", line)


def _build_builtin(draft: Draft, program: Program | None, launch: Launch) -> None:
    if program is None or program.name != "verl":
        name = program.name if program else show(" ".join(launch.words[:3]))
        raise ConvertError(
            f"line {launch.line}: {name}: mapping.toml has the settings of verl and ROLL alone: use --to command."
        )
    for each in program.arguments:
        if not each.is_known:
            draft.leave_out(f"{each.key}={show(each.value)}", "its value is not in the script", launch.line)
        elif each.prefix == "~":
            draft.leave_out(f"~{each.key}", "a removed key has no counterpart", launch.line)
    settings = load_mapping().verl
    values = {key: reveal(value) if isinstance(value, str) else value for key, value in program.values.items()}
    apply_settings(draft, add_defaults(values, settings), settings, {})
    complete_suite(draft)
    draft.spec.pop("framework", None)
