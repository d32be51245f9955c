"""The staleness of responses, from the versions that they carry."""

from __future__ import annotations

import math

from rlt_trainer.batches.response import Response
from rlt_trainer.driver.generation import compute_staleness


def test_staleness_is_counted_from_the_oldest_weights_of_an_episode() -> None:
    """The weights of step 8 have version 7."""
    fresh = Response((5,), (-1.0,), version=7)
    stale = Response((5,), (-1.0,), version=4)
    agent = Response((5,), (-1.0,), earlier=(stale, Response((), ())), version=6)
    failed = Response((), (), finish_reason="abort")
    *known, unknown = compute_staleness([fresh, stale, agent, failed], 8).tolist()
    assert known == [0, 3, 3]
    assert math.isnan(unknown)
