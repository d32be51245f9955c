"""The ConfigMaps of user-defined functions are mounted in every pod."""

from __future__ import annotations

from typing import Any

import observed as o

from rlt_core.children.function_files import build_function_mounts


def test_the_config_map_of_each_function_is_mounted_once() -> None:
    tools = [{"function": {"name": "tools:look_up", "configMap": "tools"}}]
    changes: list[dict[str, Any]] = [
        {"rollout": {"multiTurn": {"tools": tools}}},
        {"rollout": {"multiTurn": {"agent": {"name": "mine:solve", "configMap": "mine"}}}},
        {"rollout": {"multiTurn": {"environment": "game:Game", "configMap": "game"}}},
    ]
    function = {"function": {"name": "mine:score", "configMap": "mine"}}
    for each, name in zip(
        [*changes, {**changes[1], "rewards": [function]}], ("tools", "mine", "game", "mine"), strict=True
    ):
        spec = o.job({**o.SPEC, **each}).spec
        assert spec is not None
        assert [mount["mountPath"] for mount in build_function_mounts(spec)] == [f"/etc/rlt-functions/{name}"]
