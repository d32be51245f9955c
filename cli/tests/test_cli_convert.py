"""rlt convert: output, exit codes and errors. client/tests/test_convert.py has the conversions."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner, Result

from rlt_cli.main import cli

SCRIPT = """\
#SBATCH --nodes=2
#SBATCH --gpus-per-node=8
#SBATCH --cpus-per-task=64
#SBATCH --mem=900G
#SBATCH --partition=batch
srun docker run --rm verl:1 python3 -m verl.trainer.main_ppo trainer.nnodes=2 actor_rollout_ref.actor.optim.lr=1e-6 $@
"""


def convert(source: str, *options: str) -> Result:
    return CliRunner().invoke(cli, ["convert", "-", *options], input=source)


def test_the_output_is_a_valid_job_after_its_comments(tmp_path: Path) -> None:
    done = convert(SCRIPT)
    assert (done.exit_code, done.stderr) == (0, "")
    assert done.stdout.startswith(
        "# Converted from - by rlt convert.\n"
        "# Not carried over:\n"
        "# - line 5: #SBATCH --partition=batch: Slurm's queues do not exist: set spec.scheduling.queueName for Kueue\n"
    )
    (tmp_path / "job.yaml").write_text(done.stdout)
    assert CliRunner().invoke(cli, ["validate", str(tmp_path / "job.yaml")]).exit_code == 0


def test_missing_fields_are_named_and_the_job_is_printed() -> None:
    done = convert("python3 -m verl.trainer.main_ppo trainer.nnodes=2")
    assert done.exit_code == 1
    assert yaml.safe_load(done.stdout)["spec"]["cluster"]["workers"][0]["replicas"] == 2
    assert "fill in: spec.cluster.image: none: is required" in done.stderr


def test_json_and_the_table_have_what_was_left_out() -> None:
    left_out = json.loads(convert(SCRIPT, "-o", "json").stdout)["leftOut"]
    assert left_out[0]["line"] == 5
    table = convert(SCRIPT, "-o", "table").stdout.splitlines()
    assert table[0].split("   ")[0] == "LINE"
    assert len(table) == 1 + len(left_out)


@pytest.mark.parametrize(
    ("source", "options", "error"),
    [
        ("echo hello", (), "error: -: line 1: the script ends without a training program."),
        ("python3 'a", (), "error: -: line 1: the quote ' is not closed"),
        ("python3 train.py", ("--to", "builtin"), "error: -: line 1: python3 train.py: mapping.toml has the settings"),
    ],
)
def test_what_cannot_be_read_is_an_error_and_nothing_is_printed(
    source: str, options: tuple[str, ...], error: str
) -> None:
    done = convert(source, *options)
    assert (done.exit_code, done.stdout) == (1, "")
    assert done.stderr.startswith(error)
    assert done.stderr.splitlines()[-1] == "next: rlt convert --help"


def test_a_missing_file_is_an_error() -> None:
    done = CliRunner().invoke(cli, ["convert", "nothing.sh"])
    assert done.exit_code == 1
    assert done.stderr.splitlines()[-1] == "next: ls -l nothing.sh"


def test_all_missing_fields_are_named_at_once() -> None:
    fields = {
        line.split(": ")[1]
        for line in convert("python3 -m verl.trainer.main_ppo x=1", "--to", "builtin").stderr.splitlines()
        if line.startswith("fill in: ")
    }
    assert fields >= {
        "spec.cluster.image", "spec.cluster.workers[0].resources", "spec.model", "spec.data", "spec.rewards",
    }  # fmt: skip


def test_a_script_without_devices_asks_for_them() -> None:
    done = convert("python train.py", "--image", "registry.example/a:1")
    assert "fill in: spec.cluster.workers[0].accelerator.count: none: is required" in done.stderr
    assert "cluster.image" not in done.stderr


def test_a_runtime_gives_the_image_and_the_pods() -> None:
    done = convert("python3 -m verl.trainer.main_ppo trainer.nnodes=2", "--runtime", "gpu")
    assert done.exit_code == 0
    assert yaml.safe_load(done.stdout)["spec"]["runtimeRef"] == {"name": "gpu"}


def test_a_verl_job_without_an_amount_of_memory_asks_for_it() -> None:
    script = "#SBATCH --cpus-per-task=64\n#SBATCH --mem=0\npython3 -m verl.trainer.main_ppo data.train_files=$F "
    done = convert(f"{script} trainer.total_epochs=3 trainer.total_training_steps=9", "--to", "verl")
    spec = yaml.safe_load(done.stdout)["spec"]
    assert "fill in: spec.cluster.workers[0].resources.memory: none: is required" in done.stderr
    assert spec["training"]["totalSteps"] == 9
    assert "totalEpochs" not in spec["training"]
    assert "files" not in spec.get("data", {})


def test_a_config_beside_the_source_is_read(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / "scripts").mkdir()
    (tmp_path / "configs").mkdir()
    script = tmp_path / "scripts/run.sh"
    script.write_text("trl grpo --config configs/grpo.yaml\n")
    done = CliRunner().invoke(cli, ["convert", str(script)])
    assert "fill in: the file configs/grpo.yaml: the program reads it; put it into /mnt/rlt/config" in done.stderr
    assert done.exit_code == 1
    (tmp_path / "configs/grpo.yaml").write_text("max_steps: 30\n")
    done = CliRunner().invoke(cli, ["convert", str(script)])
    assert "max_steps: 30" in done.stdout
    assert "configs/grpo.yaml" not in done.stderr
