"""An upgrade of the operator with a running job, and back: the attempt continues, and the next one has new programs."""

from __future__ import annotations

from exploration.api_server import WATCHED
from exploration.bounds import STARTS
from exploration.environment import build_world, head_is_lost
from exploration.search import advance, advance_until
from exploration.simulation import simulation
from exploration.world import CONFIG_MAP, RAY_CLUSTER, World

from rlt_core import names


def has_settled(world: World) -> bool:
    """Whether the operator has nothing to do until something happens."""
    return not world.process.woken and not any(world.list_pending(resource) for resource in WATCHED)


def mounted(world: World) -> tuple[str, str, str]:
    """Uid of the RayCluster, name of its programs, and the data of its ConfigMap."""
    cluster = world.server.get(RAY_CLUSTER)
    config_map = world.server.get(CONFIG_MAP)
    assert cluster
    assert config_map
    assert world.programs in world.server.objects
    return cluster["metadata"]["uid"], cluster["metadata"]["labels"][names.PROGRAMS_LABEL], str(config_map["data"])


def test_a_running_job_is_not_restarted_by_an_upgrade_and_a_rollback() -> None:
    with simulation():
        world = advance_until(build_world(), STARTS["running"])
        before = mounted(world)
        for _ in ("upgrade", "rollback"):
            world.upgrade(())
            world = advance_until(advance(world).after, has_settled)
            assert (mounted(world), world.status.phase, world.status.attempts) == (before, "Running", [])


def test_the_attempt_after_an_upgrade_has_the_programs_of_the_new_version() -> None:
    with simulation():
        world = advance_until(build_world(), STARTS["running"])
        uid, programs, data = mounted(world)
        world.upgrade(())
        head_is_lost(world)
        world = advance_until(world, lambda world: bool(world.status.attempts) and STARTS["running"](world))
        after = mounted(world)
        assert after[0] != uid
        assert after[1] != programs
        assert "newer.json" in after[2]
        assert "newer.json" not in data
