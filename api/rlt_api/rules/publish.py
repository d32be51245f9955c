"""spec.publish: places where a model can be published, and jobs that have a model to publish."""

from __future__ import annotations

from collections.abc import Iterator

from rlt_api.blocks.publish import Publication
from rlt_api.findings.finding import Edit, Finding, printable, remove, use
from rlt_api.findings.kinds import exactly_one, only_for
from rlt_api.rules.choices import TYPE
from rlt_api.rules.locations import find_hub_name, is_hub_name
from rlt_api.spec.hub_downloads import OFFLINE
from rlt_api.spec.job_spec import RLTrainingJobSpec

FIELD = "spec.publish"
RULE = "publish"
PLACES = ("hub", "bucket", "registry")
READ_ONLY = "spec.storage.modelCache.readOnly"
MAX_NAME = 96
"""Maximum length of a repository's name on the hub (huggingface_hub/utils/_validators.py, 2.4.0)."""


def validate_published_job(spec: RLTrainingJobSpec) -> Iterator[Finding]:
    """publish needs a model that rlt's trainer exports at the end of a training: not with another framework, and not
    with evaluateOnly."""
    if not spec.publish:
        return
    fix = "remove it"
    if spec.framework.type != "builtin":
        message = f"is not used by type {spec.framework.type}: rlt's trainer alone publishes its export"
        yield Finding(FIELD, "given", message, fix, rule=RULE, involved=(TYPE,), edits=remove(FIELD))
    elif spec.evaluate_only is not None:
        message = "cannot be combined with evaluateOnly, which exports no model"
        involved = ("spec.evaluateOnly",)
        yield Finding(FIELD, "given", message, fix, rule=RULE, involved=involved, edits=remove(FIELD))


def validate_publications(spec: RLTrainingJobSpec) -> Iterator[Finding]:
    """Each entry of publish has one of hub, bucket and registry, with an endpoint for a bucket alone. hub is
    owner/name. No two entries have the same place."""
    places: list[str] = []
    for index, each in enumerate(spec.publish):
        field = f"{FIELD}[{index}]"
        given = [name for name in PLACES if getattr(each, name) is not None]
        if len(given) != 1:
            yield exactly_one(field, given, of="hub, bucket and registry", rule=RULE)
            continue
        involved = (f"{field}.{given[0]}",)
        if each.endpoint is not None and each.bucket is None:
            yield only_for(f"{field}.endpoint", "bucket", value=each.endpoint, rule=RULE, involved=involved)
        if each.public and each.hub is None:
            yield only_for(f"{field}.public", "hub", value="true", rule=RULE, involved=involved)
        if each.place in places:
            fix = "remove one of them, or use another place"
            other = f"{FIELD}[{places.index(each.place)}].{given[0]}"
            yield Finding(f"{field}.{given[0]}", each.place, "is given twice", fix, rule=RULE, involved=(other,))
        places.append(each.place)
        yield from _validate_repository(each, field)


def _validate_repository(each: Publication, field: str) -> Iterator[Finding]:
    if each.hub is None:
        return
    owner, _, name = each.hub.partition("/")
    if owner and name and is_hub_name(each.hub) and len(name) <= MAX_NAME and not name.endswith(".git"):
        return
    meant, _ = find_hub_name(each.hub.removesuffix(".git"))
    message = "is not the name of a repository on the Hugging Face hub"
    fix = "use owner/name, with letters, digits, -, _ and ., without -- and .., and at most 96 characters in name"
    edits: tuple[Edit, ...] = ()
    if meant and "/" in meant and meant != each.hub and len(meant.partition("/")[2]) <= MAX_NAME:
        fix = f"use {meant}"
        edits = use(f"{field}.hub", meant)
    yield Finding(f"{field}.hub", printable(each.hub), message, fix, rule=RULE, edits=edits)


def validate_hub_access(spec: RLTrainingJobSpec) -> Iterator[Finding]:
    """publish[].hub needs the hub, which the pods do not use with HF_HUB_OFFLINE. storage.modelCache.readOnly sets
    it."""
    values = {each.name: each.value for each in spec.cluster.env if each.name in OFFLINE}
    cache = spec.storage.model_cache
    cause = next((name for name, value in values.items() if value not in ("", "0")), None)
    involved = ("spec.cluster.env",)
    if cause is None and cache and cache.read_only and "HF_HUB_OFFLINE" not in values:
        cause = "storage.modelCache.readOnly"
        involved = (READ_ONLY,)
    for index, each in enumerate(spec.publish):
        if each.hub is not None and cause:
            message = f"cannot be reached with {cause}, with which the pods do not use the hub (HF_HUB_OFFLINE)"
            fix = "set HF_HUB_OFFLINE to 0 in spec.cluster.env, or use a bucket"
            yield Finding(f"{FIELD}[{index}].hub", each.hub, message, fix, rule=RULE, involved=involved)


def validate_published_prefix(spec: RLTrainingJobSpec) -> Iterator[Finding]:
    """publish[].bucket is not a prefix that contains storage.bucket: it would have the objects of runs."""
    runs = spec.storage.bucket
    for index, each in enumerate(spec.publish):
        if runs is not None and each.bucket is not None and f"{runs}/".startswith(f"{each.bucket}/"):
            message = f"contains storage.bucket {runs}, with the objects of runs"
            fix = f"use a prefix for this model alone, such as {each.bucket}/models/NAME"
            involved = ("spec.storage.bucket",)
            yield Finding(f"{FIELD}[{index}].bucket", each.bucket, message, fix, rule=RULE, involved=involved)


RULES = (validate_published_job, validate_publications, validate_hub_access, validate_published_prefix)
