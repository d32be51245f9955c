"""The share of a step that the verification of each weight sync takes: whole steps with verified and other syncs."""

from __future__ import annotations

import statistics
import tempfile

from bench_report import Row

from trainer_bench.local_run import run_local
from trainer_bench.step_overhead import FIRST, build_step_config

MAX_SHARE = 0.02
VERIFIED = "training/weight_sync_difference"
"""Only steps with a verified sync have it."""


def measure() -> Row:
    """Verify every other sync. Compare the medians."""
    with tempfile.TemporaryDirectory() as folder:
        steps = run_local(build_step_config(folder, verifyWeightsFreq=2))[FIRST - 1 :]
    verified, other = (
        statistics.median(step["timing_s/update_weights"] for step in steps if (VERIFIED in step) is is_verified)
        for is_verified in (True, False)
    )
    seconds = statistics.median(step["timing_s/step"] for step in steps)
    share = (verified - other) / seconds
    return Row(
        "verification of a weight sync with rollout.verifyWeightsFreq 1, as share of a step",
        f"under {MAX_SHARE:.0%}",
        f"{share:.1%} (syncs of {verified:.3f} and {other:.3f} s, a step of {seconds:.2f} s)",
        share < MAX_SHARE,
        {"metrics": steps},
    )


if __name__ == "__main__":
    print(measure().measured)
