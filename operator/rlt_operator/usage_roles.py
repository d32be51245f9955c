"""The accelerator seconds of a job by role, from status.usage and the spec. Pure.

The status has no roles. Of jobs with both roles, the rollout accelerators generate and evaluate, and the others update.
All other parts are divided by their number, and the idle part so that each role has its share of the training.
"""

from __future__ import annotations

from collections.abc import Mapping

from rlt_api.frameworks.replaceable_pods import find_replaceable_group
from rlt_api.spec.job_spec import RLTrainingJobSpec
from rlt_api.spec.worker_groups import has_engines, trains

TRAINER = "trainer"
ROLLOUT = "rollout"
WORK = {"generate": ROLLOUT, "evaluate": ROLLOUT, "update": TRAINER}
"""Phase -> the role that it belongs to, in jobs with both."""


def count_by_role(spec: RLTrainingJobSpec) -> dict[str, int]:
    """Number of accelerators by role: trainer, rollout, colocated if the same ones do both, or unknown.

    The role is unknown if the program does not report what its parts do: of all frameworks but rlt's trainer with
    rollout.mode separate, and of commands.
    """
    counts = {
        group.name: group.replicas * group.accelerator.count for group in spec.cluster.workers if group.accelerator
    }
    total = sum(counts.values())
    if spec.framework.type == "command":
        return {"unknown": total}
    if group := find_replaceable_group(spec):
        rollout = counts.get(group.name, 0)
        return {TRAINER: total - rollout, ROLLOUT: rollout}
    if spec.rollout.mode == "separate":
        return {"unknown": total}
    if not has_engines(spec):
        return {TRAINER: total}
    return {"colocated" if trains(spec) else ROLLOUT: total}


def divide_by_role(by: Mapping[str, int], accelerators: Mapping[str, int]) -> dict[tuple[str, str], float]:
    """Divide the parts of a usage: (role, phase) -> accelerator seconds. The sum of each phase stays the same.

    `accelerators`: their number by role. A phase that a role never has is left out.
    """
    total = sum(accelerators.values())
    if len(accelerators) == 1 or total == 0:
        return {(role, phase): float(seconds) for role in [*accelerators][:1] for phase, seconds in by.items()}
    share = accelerators[TRAINER] / total
    reported = by["idle"] + sum(by[phase] for phase in WORK)
    waited = min(max(0.0, share * reported - by["update"]), by["idle"])
    found: dict[tuple[str, str], float] = {}
    for phase, seconds in by.items():
        if role := WORK.get(phase):
            found[role, phase] = float(seconds)
        else:
            trainer = waited if phase == "idle" else share * seconds
            found[TRAINER, phase] = trainer
            found[ROLLOUT, phase] = seconds - trainer
    return found
