"""What a spec must fulfil beyond its types: rules over several fields, each with field, value and remedy.

The CRD has the simplest of them as CEL. Here are all, for the operator, the command line and later a webhook.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from rlt_api.crd import MAX_NAME_LENGTH
from rlt_api.model import quantity_value
from rlt_api.spec import RLTrainingJobSpec, WorkerGroup
from rlt_api.training_config import CONFIG_DIRECTORY


@dataclass(frozen=True)
class Finding:
    """One thing that is wrong."""

    field: str
    """Path of the field, such as spec.training.trainBatchSize."""
    value: str
    """Its value."""
    message: str
    """What is wrong with it."""
    fix: str
    """What to do."""

    def __str__(self) -> str:
        return f"{self.field}: {self.value}: {self.message}; {self.fix}"


def findings(name: str, spec: RLTrainingJobSpec) -> list[Finding]:
    """Everything wrong with the spec of the job called `name`; empty if nothing is."""
    return [*_name(name), *(finding for rule in RULES for finding in rule(spec))]


def ranks(group: WorkerGroup) -> int:
    """Processes that train: one for each accelerator, or one for each pod without any."""
    return group.replicas * (group.accelerator.count if group.accelerator else 1)


def _name(name: str) -> Iterator[Finding]:
    if len(name) > MAX_NAME_LENGTH:
        yield Finding(
            "metadata.name",
            name,
            f"has {len(name)} characters, and {MAX_NAME_LENGTH} are allowed: pods and services add to it",
            "choose a shorter one",
        )
    if not re.fullmatch(r"[a-z]([-a-z0-9]*[a-z0-9])?", name):  # the head's service is named after it: RFC 1035
        yield Finding(
            "metadata.name",
            name,
            "must start with a letter and hold lower-case letters, digits and - only",
            "choose another one",
        )


def _framework(spec: RLTrainingJobSpec) -> Iterator[Finding]:
    if spec.framework.type == "command":
        if not spec.framework.command:
            yield Finding("spec.framework.command", "none", "type command needs it", "give program and arguments")
        for field in ("model", "data", "training", "rewards"):
            if getattr(spec, field):
                yield Finding(f"spec.{field}", "given", "a command does not read it", "leave it out")
        return
    if spec.framework.command is not None:
        yield Finding(
            "spec.framework.command", "given", "type builtin runs no command", "leave it out, or type: command"
        )
    for field in ("model", "data", "training"):
        if getattr(spec, field) is None:
            yield Finding(f"spec.{field}", "none", "framework builtin needs it", f"add spec.{field}")


def _model(spec: RLTrainingJobSpec) -> Iterator[Finding]:
    if spec.model is None:
        return
    if (spec.model.path is None) == (spec.model.from_seed is None):
        given = "none" if spec.model.path is None else "both"
        yield Finding("spec.model", given, "exactly one of path and fromSeed is needed", "give one of them")
    seeded = spec.model.from_seed
    if seeded and seeded.hidden_size % seeded.num_attention_heads:
        yield Finding(
            "spec.model.fromSeed.hiddenSize",
            str(seeded.hidden_size),
            f"is not divisible by numAttentionHeads {seeded.num_attention_heads}",
            "change one of them",
        )
    if seeded and seeded.num_attention_heads % seeded.num_key_value_heads:
        yield Finding(
            "spec.model.fromSeed.numKeyValueHeads",
            str(seeded.num_key_value_heads),
            f"does not divide numAttentionHeads {seeded.num_attention_heads}",
            "change one of them",
        )


def _data(spec: RLTrainingJobSpec) -> Iterator[Finding]:
    if spec.data and spec.data.preset == "gsm8k" and spec.data.path is None:
        yield Finding(
            "spec.data.path", "none", "preset gsm8k needs it", "give the folder with train.jsonl and test.jsonl"
        )
    if spec.data and spec.data.preset == "arithmetic" and spec.data.path is not None:
        yield Finding("spec.data.path", spec.data.path, "preset arithmetic reads no files", "leave it out")


def _batches(spec: RLTrainingJobSpec) -> Iterator[Finding]:
    if spec.training is None:
        return
    mini = spec.training.ppo_mini_batch_size or spec.training.train_batch_size
    field = "ppoMiniBatchSize" if spec.training.ppo_mini_batch_size else "trainBatchSize"
    if spec.training.train_batch_size % mini:
        yield Finding(
            "spec.training.ppoMiniBatchSize",
            str(mini),
            f"does not divide trainBatchSize {spec.training.train_batch_size}",
            "change one of them",
        )
    processes = ranks(spec.cluster.workers[0])
    if mini % processes:
        yield Finding(
            f"spec.training.{field}",
            str(mini),
            f"prompts cannot be shared equally by {processes} training processes (replicas x accelerators)",
            f"use a multiple of {processes}",
        )
    warmup = spec.training.warmup
    if warmup and warmup.batch_size % processes:
        yield Finding(
            "spec.training.warmup.batchSize",
            str(warmup.batch_size),
            f"examples cannot be shared equally by {processes} training processes (replicas x accelerators)",
            f"use a multiple of {processes}",
        )


def _memory(spec: RLTrainingJobSpec) -> Iterator[Finding]:
    pods = [("spec.cluster.head.resources", spec.cluster.head.resources)]
    pods += [(f"spec.cluster.workers[{i}].resources", group.resources) for i, group in enumerate(spec.cluster.workers)]
    for field, resources in pods:
        for name in ("cpu", "memory"):
            if quantity_value(getattr(resources, name)) == 0:
                yield Finding(f"{field}.{name}", "0", "is nothing", "give what the pod needs")
        shared = resources.shared_memory
        if shared and quantity_value(shared) >= quantity_value(resources.memory):
            yield Finding(
                f"{field}.sharedMemory",
                shared,
                f"is part of memory {resources.memory} and leaves nothing of it",
                "make it smaller, or memory larger",
            )


def _storage(spec: RLTrainingJobSpec) -> Iterator[Finding]:
    if spec.storage is None:
        if spec.checkpoint.save_freq > 0 and spec.cluster.workers[0].replicas > 1:
            yield Finding(
                "spec.storage",
                "none",
                f"checkpoint.saveFreq {spec.checkpoint.save_freq} needs a volume that all pods share",
                "give storage.claimName, or saveFreq: -1",
            )
        return
    path = spec.storage.mount_path.rstrip("/")
    for taken in (CONFIG_DIRECTORY, "/dev", "/proc", "/sys"):
        if path == taken or path.startswith(f"{taken}/") or taken.startswith(f"{path}/"):
            yield Finding("spec.storage.mountPath", spec.storage.mount_path, f"hides {taken}", "mount it elsewhere")
            return


Rule = Callable[[RLTrainingJobSpec], Iterator[Finding]]

RULES: list[Rule] = [_framework, _model, _data, _batches, _memory, _storage]
