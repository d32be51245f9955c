"""Jobs with framework openrlhf: its command line and its overrides.

e2e/tests/test_openrlhf_options.py parses the options with OpenRLHF's own parser.
"""

from __future__ import annotations

import pytest
from job_specs import merged
from openrlhf_jobs import OPENRLHF, TABLE, resolve
from verl_jobs import RUN

from rlt_api.frameworks.openrlhf.settings import build_arguments
from rlt_api.frameworks.warnings import warn_framework
from rlt_api.validation.validate import validate_job


@pytest.mark.parametrize("name", TABLE)
def test_job_is_valid(name: str) -> None:
    assert validate_job("sum", merged(OPENRLHF, TABLE[name])).findings == ()


def test_the_command_of_a_job() -> None:
    arguments = build_arguments(resolve({"training.ppoMiniBatchSize": 16, "framework.overrides": ["--ds.zpg=8"]}), RUN)
    assert arguments[:3] == ["python3", "-m", "openrlhf.cli.train_ppo_ray"]
    assert arguments[-1] == "--ds.zpg=8"
    assert {
        "--train.colocate_all",
        "--actor.num_nodes=2",
        "--actor.num_gpus_per_node=8",
        "--vllm.num_engines=16",
        "--train.batch_size=128",  # 16 prompts x 8 responses
        "--train.micro_batch_size=8",
        "--reward.remote_url=/etc/rlt-functions/rewards/scoring.py",
        "--ckpt.load_enable",
    } <= set(arguments)
    assert not {"--critic.num_nodes=2", "--ds.adam_offload"} & set(arguments)


@pytest.mark.parametrize(
    ("override", "warning"),
    [
        ("--rollout.batch_size=64", "replaces spec.training.trainBatchSize; use that field"),
        ("--rollout.batch_size=128", None),
        ("--actor.adam.lr=0.000001", None),
        ("--actor.adam.lr=5e-6", "replaces spec.training.learningRate; use that field"),
        ("--vllm.enforce_eager", "replaces spec.rollout.enforceEager; use that field"),
        ("--ckpt.load_enable", None),
        ("--data.apply_chat_template=0", "replaces the value of the operator"),
        ("--ckpt.best_metric_key=eval_math_pass1", "replaces spec.checkpoint.keepBest; use that field"),
        ("--eval.dataset=math", None),
        ("--ds.zpg=8", None),
    ],
)
def test_override_gets_a_warning(override: str, warning: str | None) -> None:
    spec = resolve({"framework.overrides": [override]})
    found = [each for each in warn_framework(spec) if each.startswith("spec.framework.overrides")]
    assert found == ([f"spec.framework.overrides[0]: {override}: {warning}"] if warning else [])


@pytest.mark.parametrize(("override", "fix"), [("--ds.zgp=8", "did you mean --ds.zpg?"), ("--foo=1", "remove it")])
def test_an_unknown_option_is_rejected(override: str, fix: str) -> None:
    (found,) = validate_job("sum", merged(OPENRLHF, {"framework.overrides": [override]})).findings
    assert (found.field, found.fix) == ("spec.framework.overrides[0]", fix)
