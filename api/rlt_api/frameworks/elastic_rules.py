"""The rules about the number of pods in the group that only generates for rlt's trainer."""

from __future__ import annotations

from collections.abc import Iterator

from rlt_api.blocks.cluster import WorkerGroup
from rlt_api.findings.finding import Finding, remove
from rlt_api.findings.kinds import (
    above,
    below,
    conflicts,
    effect_only_with,
    not_multiple,
    only_for,
    required,
    superfluous,
)
from rlt_api.frameworks.replaceable_pods import find_replaceable_group
from rlt_api.rules.choices import TYPE
from rlt_api.rules.queues import ALWAYS_GANGS, QUEUE, QUEUE_LABELS, SCHEDULER
from rlt_api.spec.job_spec import RLTrainingJobSpec
from rlt_api.spec.objects import is_on_volume, list_objects

ONLY_FOR = "the group of rollout.workerGroup, with rollout.mode separate and framework builtin"
INVOLVED = (TYPE, "spec.rollout.mode", "spec.rollout.workerGroup")
METRIC_RULES = "spec.observability.metricRules"
TENSOR_PARALLEL = "spec.rollout.tensorParallelSize"


def validate_min_replicas(spec: RLTrainingJobSpec) -> Iterator[Finding]:
    """minReplicas is for the group that only generates for rlt's trainer: every other program ends with each of its
    pods. It must not be above replicas, and the pods must make up whole engines."""
    generating = find_replaceable_group(spec)
    rule = "min-replicas"
    for index, group in enumerate(spec.cluster.workers):
        minimum = group.min_replicas
        path = f"spec.cluster.workers[{index}]"
        field = f"{path}.minReplicas"
        if minimum is None:
            continue
        pods = _count_engine_pods(spec, group)
        if group is not generating:
            yield only_for(field, ONLY_FOR, value=minimum, rule=rule, involved=INVOLVED)
        elif minimum > group.replicas:
            yield above(field, minimum, group.replicas, "replicas", rule=rule, involved=(f"{path}.replicas",))
        elif minimum % pods:
            involved = (TENSOR_PARALLEL, f"{path}.accelerator.count")
            yield not_multiple(field, minimum, pods, f"the {pods} pods of each engine", rule=rule, involved=involved)


def validate_max_replicas(spec: RLTrainingJobSpec) -> Iterator[Finding]:
    """maxReplicas is for the same group. It needs minReplicas, must not be below replicas, and an engine must fit in a
    pod: the operator does not know which pods make up an engine. Gangs and the queues of gang schedulers start a fixed
    number of pods, and objects of a bucket are downloaded once, to the pods that exist then."""
    generating = find_replaceable_group(spec)
    rule = "max-replicas"
    for index, group in enumerate(spec.cluster.workers):
        maximum = group.max_replicas
        path = f"spec.cluster.workers[{index}]"
        field = f"{path}.maxReplicas"
        if maximum is None:
            continue
        if group is not generating:
            yield only_for(field, ONLY_FOR, value=maximum, rule=rule, involved=INVOLVED)
            continue
        if group.min_replicas is None:
            fix = "add the number of pods with which the program continues, such as 1"
            yield required(f"{path}.minReplicas", "maxReplicas", fix, 1, rule=rule, involved=(field,))
        if maximum < group.replicas:
            message = f"is below replicas {group.replicas}"
            yield below(field, maximum, group.replicas, message, rule=rule, involved=(f"{path}.replicas",))
        if (pods := _count_engine_pods(spec, group)) > 1:
            message = f"needs an engine in each pod, and each engine of tensorParallelSize has {pods} pods"
            devices = spec.rollout.tensor_parallel_size // pods
            yield superfluous(field, maximum, message, or_set={TENSOR_PARALLEL: devices}, rule=rule)
        scheduling = spec.scheduling
        fixed = {
            QUEUE: scheduling.queue_name is not None and scheduling.scheduler_name in QUEUE_LABELS,
            "spec.scheduling.gang": scheduling.gang,
            SCHEDULER: scheduling.scheduler_name in ALWAYS_GANGS and not (scheduling.queue_name or scheduling.gang),
        }
        yield from conflicts(field, maximum, fixed, rule=rule)
        if list_objects(spec) and not is_on_volume(spec):
            message = "needs a volume for the objects of the bucket: a new pod would lack them"
            fix = "set storage.claimName, or remove it"
            involved = ("spec.storage.claimName",)
            yield Finding(field, str(maximum), message, fix, rule=rule, involved=involved, edits=remove(field))


def validate_autoscale(spec: RLTrainingJobSpec) -> Iterator[Finding]:
    """autoscale needs maxReplicas, and a rule that proposes a number."""
    rules = spec.observability.metric_rules
    for index, group in enumerate(spec.cluster.workers):
        path = f"spec.cluster.workers[{index}]"
        field = f"{path}.autoscale"
        if group.autoscale and group.max_replicas is None:
            fix = f"add the largest number of pods, such as {group.replicas}"
            yield required(f"{path}.maxReplicas", "autoscale", fix, group.replicas, rule="autoscale", involved=(field,))
        elif group.autoscale and rules.generation_bound.action == rules.training_bound.action == "none":
            one = "action of generationBound or trainingBound other than none"
            involved = tuple(f"{METRIC_RULES}.{rule}.action" for rule in ("generationBound", "trainingBound"))
            yield effect_only_with(field, one, value=True, rule="autoscale", involved=involved)


def validate_rollout_replicas(spec: RLTrainingJobSpec) -> Iterator[Finding]:
    """rolloutReplicas needs a group with maxReplicas, and is from its minReplicas to its maxReplicas."""
    wanted = spec.rollout_replicas
    field = "spec.rolloutReplicas"
    rule = "rollout-replicas"
    if wanted is None:
        return
    groups = spec.cluster.workers
    index = next((index for index, group in enumerate(groups) if group is find_replaceable_group(spec)), None)
    if index is None:
        what = "framework builtin with rollout.mode separate"
        yield only_for(field, what, value=wanted, rule=rule, involved=INVOLVED)
        return
    minimum = groups[index].min_replicas
    maximum = groups[index].max_replicas
    involved = (f"spec.cluster.workers[{index}].minReplicas", f"spec.cluster.workers[{index}].maxReplicas")
    if minimum is None or maximum is None:
        other = "minReplicas and maxReplicas of the group of rollout.workerGroup"
        yield effect_only_with(field, other, value=wanted, rule=rule, involved=involved)
    elif wanted > maximum:
        yield above(field, wanted, maximum, f"maxReplicas {maximum}", rule=rule, involved=involved)
    elif wanted < minimum:
        yield below(field, wanted, minimum, f"is below minReplicas {minimum}", rule=rule, involved=involved)


def _count_engine_pods(spec: RLTrainingJobSpec, group: WorkerGroup) -> int:
    devices = group.accelerator.count if group.accelerator else 1
    return max(1, spec.rollout.tensor_parallel_size // devices)


RULES = (validate_min_replicas, validate_max_replicas, validate_autoscale, validate_rollout_replicas)
