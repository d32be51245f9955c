"""Conversion of scripts, configs and manifests: fields, notes, errors, and the output as YAML."""

from __future__ import annotations

import contextlib
import os
import subprocess
from pathlib import Path

import pytest
from conversion import Conversion
from conversions import CONVERSIONS, UNREADABLE
from hypothesis import given, settings
from hypothesis import strategies as st

from rlt import Job
from rlt.convert.convert import Target, convert
from rlt.convert.draft import ConvertError, Draft
from rlt.convert.shell import read_script, reveal
from rlt.convert.slurm import parse_time

ROOT = Path(__file__).parents[2]
SEEDS = os.environ.get("RLT_SEEDS")
NEEDS_SEEDS = pytest.mark.skipif(not SEEDS, reason="RLT_SEEDS is not set to the folder with verl-multinode.txt")


@pytest.mark.parametrize("case", CONVERSIONS, ids=lambda case: case.name)
def test_fields_are_set_and_the_rest_is_named(case: Conversion) -> None:
    converted = convert(case.source, "source", case.to)
    draft = Draft(spec=converted.manifest["spec"])
    assert {path: draft.get(path) for path in case.fields} == case.fields
    notes = [text for note in converted.left_out for text in (str(note), f"{note.what}: {note.why}")]
    for beginning in case.left_out:
        assert any(note.startswith(beginning) for note in notes), notes
    if case.last:
        assert tuple(draft.get("framework.command")[-len(case.last) :]) == case.last


@pytest.mark.parametrize("case", CONVERSIONS, ids=lambda case: case.name)
def test_the_output_is_valid_but_for_what_the_source_cannot_give(case: Conversion) -> None:
    written = convert(case.source, "source", case.to).to_yaml("source")
    assert written.startswith("# Converted from source by rlt convert.\n")
    fields = {finding.field for finding in Job.from_yaml(written).validate()}
    assert fields <= {
        "spec.cluster.image",
        "spec.cluster.workers[0].resources",
        "spec.cluster.workers[0].resources.cpu",
        "spec.cluster.workers[0].resources.memory",
        "spec.cluster.workers[0].accelerator.count",
        "spec.rewards",
        "spec.data",
        "spec.model",
        "spec.observability.wandb.apiKey",
        "spec.training.totalSteps",
        "spec.training.trainBatchSize",
    }


@pytest.mark.parametrize("source", UNREADABLE)
def test_an_unreadable_source_is_an_error_with_its_line(source: str) -> None:
    with pytest.raises(ConvertError) as raised:
        convert(source, "source")
    assert str(raised.value).startswith(UNREADABLE[source])


@pytest.mark.parametrize(
    ("source", "file"),
    [
        ("# Copyright\n\nfrom trl import GRPOConfig\n\nfor x in range(3):\n    print(x)\n", "script"),
        ('"""Train a model."""\nimport os\n', "script"),
        ("import torch\n", "script"),
        ("print('a')\n", "train.py"),
    ],
)
def test_a_python_program_is_not_read_as_a_shell_script(source: str, file: str) -> None:
    with pytest.raises(ConvertError, match=f"line 1: it is a Python program.*`echo 'python3 {file}' | rlt convert -`"):
        convert(source, file)


def test_a_binary_file_is_an_error() -> None:
    with pytest.raises(ConvertError, match="line 1: it is a binary file"):
        convert("\x7fELF\0\0", "train")


def test_a_manifest_has_no_settings_for_the_builtin_trainer() -> None:
    with pytest.raises(ConvertError, match="RayCluster has no settings of a training: use --to command"):
        convert("kind: RayCluster", "source", "builtin")


@pytest.mark.parametrize("source", ["python3 train.py a=1", "actor_rollout_ref: {a: 1}", "kind: RayJob"])
def test_only_verl_commands_become_verl_jobs(source: str) -> None:
    with pytest.raises(ConvertError, match="use --to command"):
        convert(source, "source", "verl")


SCRIPTS = (
    "A=1; B=\"$A 2\"; show $A \"$B\" '$A' \"\\$A\" a\\ b",
    "A=(x 'y z' \"w\")\nshow \"${A[@]}\" end",
    "X=${UNSET:-d}; Y=; show $X ${Y:-e} ${Y-f}g ${X:+set}",
    "N=8; show $((N * 2 + 1)) $(( (N + 4) / 5 ))",
    "show a\\\nb c \\\n d # comment\n",
    "show a#b 'c # d' \"e\nf\"",
    "A=x; A+=y; show $A; ",
    "D=${U:-\"${V:-/v}/data\"}; F=${U:-\"${D}/f.parquet\"}; show \"$F\"",
    "A=2; B=3; show $(((A + B) * 2)) $(($A*${B}))",
    "export A=1 B=2; show $A$B \"${A}_${B}\"",
    "O='--a 1 --b 2'; show $O \"$O\" x$O.y",
    "f() { show \"$1\" $2 \"$@\"; }; f a 'b c'",
    "for x in a b; do A+=(--x $x); done; show \"${A[@]}\"",
    ": \"${X:=/m}\"; show $X",
    "M=/m/Q-7B.bin; show ${M##*/} ${M%.bin} ${M/Q/R} ${M,,} ${M:0:2} $(basename $M) $(dirname \"$M\")",
    "A=(a b c); show ${#A[@]} ${A[1]} \"${A[@]:1}\" \"${A[*]}\"",
    "show $(seq 2 2 6) $((7/2)) ${U:-a b} \"${U:-a b}\"",
    "while [[ $# -gt 0 ]]; do M=$2; shift; done; if [ -z \"$M\" ]; then M=d; fi; show $M",
    "case 1 in 0) X=a ;; 1|2) X=b ;; *) X=c ;; esac; show $X",
    "[ -n \"$Q\" ] && Z=1; Z=${Z:-2}; show $Z",
    "X=$(cat <<EOF\na b\nEOF\n); show \"$X\"",
    "read -r -d '' C <<EOF\nrun $((1+1))\nEOF\nshow \"$C\"",
    "show $@ \"$@\" \"$1\" e$1",
    "if [[ \"$A\" == x* || 1 -gt 2 ]]; then B=1; elif (( 3 > 2 )); then B=2; fi; show $B",
    "A=(\n  a # it's (\n  'b c'\n); show \"${A[@]}\"",
)  # fmt: skip


@pytest.mark.parametrize("script", SCRIPTS)
def test_words_equal_bashs(script: str) -> None:
    printed = subprocess.run(
        ["bash", "-c", f"show() {{ printf '%s\\n--\\n' \"$@\"; }}\n{script}"], capture_output=True, text=True
    )
    (command,) = (each for each in read_script(script).commands if each.words[0] == "show")
    assert [*map(reveal, command.words[1:])] == printed.stdout.removesuffix("\n--\n").split("\n--\n")


@settings(max_examples=60, deadline=None)
@given(text=st.text("ab =$(){}[]'\"`\\\n;|&<>#-:!*/1", max_size=40))
def test_no_text_is_a_crash(text: str) -> None:
    for source in (text, f"python3 train.py {text}", f"{text}\npython3 -m verl.trainer.main_ppo a={text}"):
        with contextlib.suppress(ConvertError):
            convert(source, "source").to_yaml("source")


@pytest.mark.parametrize("opening", ["(", "{ ", "$(", '"$(', "if true; then ", "for x in a; do ", "((", "${a:-"])
def test_deep_nesting_is_an_error(opening: str) -> None:
    with pytest.raises(ConvertError, match="line 1"):
        convert(f"python3 train.py {opening * 3000}" if "$" in opening else opening * 3000, "source")


def test_a_value_that_doubles_is_not_computed() -> None:
    doubling = "A=ab\n" + "A=$A$A\nB=($B $B b)\n" * 60
    converted = convert(f"{doubling}python3 -m verl.trainer.main_ppo x=$A ${{B[@]}}", "source")
    assert any(note.what == "value of A" for note in converted.left_out)


@pytest.mark.parametrize("kind", ["RayCluster", "RayJob", "TrainJob", "PyTorchJob"])
@pytest.mark.parametrize("spec", ["[1]", "{headGroupSpec: {template: {spec: {containers: x}}}, trainer: {env: 1}}", ""])
def test_a_manifest_with_other_types_does_not_crash(kind: str, spec: str) -> None:
    with contextlib.suppress(ConvertError):
        convert(f"kind: {kind}\nmetadata: {{name: a}}\nspec: {spec}", "source").to_yaml("source")


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("30", 1800), ("30:15", 1815), ("2:00:00", 7200), ("1-0", 86400), ("30-00:00:00", 2592000), ("1-2:30", 95400)],
)
def test_times_equal_sbatchs(text: str, seconds: int) -> None:
    assert parse_time(text) == seconds


def test_nothing_is_executed(tmp_path: Path) -> None:
    file = tmp_path / "created"
    convert(f"touch {file}\nA=$(touch {file})\npython3 train.py `touch {file}` $((__import__('os')))", "source")
    assert not file.exists()


@NEEDS_SEEDS
@pytest.mark.parametrize("to", ["command", "builtin"])
def test_the_launch_script_for_amd_converts(to: Target) -> None:
    lines = Path(str(SEEDS), "verl-multinode.txt").read_text().splitlines()
    start = next(index for index, line in enumerate(lines) if line.startswith("#SBATCH"))
    script = "\n".join(line for line in lines[start:] if not line.startswith("```"))
    converted = convert(script, "slurm_script.sh", to)
    spec = converted.manifest["spec"]
    (worker,) = spec["cluster"]["workers"]
    assert worker["accelerator"] == {"count": 8, "resourceName": "amd.com/gpu"}
    assert (worker["replicas"], worker["resources"]) == (2, {"cpu": "56", "memory": "200Gi", "sharedMemory": "128Gi"})
    assert (spec["activeDeadlineSeconds"], len(spec["network"]["hcas"])) == (2592000, 8)
    if to == "command":
        assert "trainer.nnodes=2" in spec["framework"]["command"]
        assert Job.from_yaml(converted.to_yaml("slurm_script.sh")).validate() == ()
    else:
        assert spec["training"]["trainBatchSize"] == 1024


@NEEDS_SEEDS
def test_the_command_for_dstack_converts() -> None:
    lines = Path(str(SEEDS), "verl-multinode.txt").read_text().splitlines()
    start = next(index for index, line in enumerate(lines) if "$ ray job submit" in line)
    stop = next(index for index in range(start, len(lines)) if lines[index].startswith("```"))
    converted = convert("\n".join(lines[start:stop]).replace("$ ray", "ray"), "run.sh")
    assert converted.manifest["spec"]["cluster"]["workers"][0]["replicas"] == 2
    assert any("resume_mode=disable: it is an argument of tee" in str(note) for note in converted.left_out)
