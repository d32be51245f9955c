"""Jobs with framework openrlhf: its command line and its overrides.

e2e/tests/test_openrlhf_options.py parses the options with OpenRLHF's own parser.
"""

from __future__ import annotations

import pytest
from job_specs import merged
from openrlhf_jobs import OPENRLHF, TABLE, resolve
from verl_jobs import RUN

from rlt_api.frameworks.openrlhf import build_arguments
from rlt_api.validation import validate_job


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
