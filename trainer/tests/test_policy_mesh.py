"""The process groups of the train workers."""

from __future__ import annotations

import pytest
from ranks import join, run_ranks


@pytest.mark.slow
def test_a_collective_ends_at_its_timeout() -> None:
    """Also one of a separate group, as of a mesh, whose default is half an hour."""
    errors, _ = run_ranks(wait_for_a_late_rank, [(0,), (1,)])
    assert ["Timed out waiting 1000ms" in error for error in errors] == [True, True], errors


def wait_for_a_late_rank(rank: int) -> list[str]:
    """The errors of rank 0's collectives, which rank 1 does not join."""
    import torch
    import torch.distributed as dist

    from rlt_trainer.policy.mesh import set_collective_timeout

    join(rank, 2)
    groups = [dist.group.WORLD, dist.new_group([0, 1])]
    store = dist.distributed_c10d._get_default_store()
    if rank:
        store.wait(["done"])
        store.set("seen", "")
        return []
    set_collective_timeout(1)
    errors = []
    for group in groups:
        with pytest.raises(RuntimeError) as raised:
            dist.all_reduce(torch.ones(1), group=group)
        errors.append(str(raised.value))
    store.set("done", "")
    store.wait(["seen"])  # the store is part of this process
    return errors
