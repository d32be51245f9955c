"""spec.evaluateOnly: evaluation of models without train workers."""

from __future__ import annotations

from collections.abc import Iterator

from rlt_api.findings.finding import Finding, remove
from rlt_api.findings.kinds import conflicts, effect_only_with, replaceable, required
from rlt_api.rules.choices import TYPE
from rlt_api.rules.layout import COLOCATED
from rlt_api.spec.job_spec import RLTrainingJobSpec
from rlt_api.spec.worker_groups import has_engines

FIELD = "spec.evaluateOnly"
STEPS = f"{FIELD}.steps"
CHECKPOINTS = f"{FIELD}.checkpoints"
RULE = "evaluate-only"


def validate_evaluate_only(spec: RLTrainingJobSpec) -> Iterator[Finding]:
    """evaluateOnly needs rlt's trainer and suites. Its engines are in all worker pods, which do not train: it cannot be
    combined with rollout.mode separate, algorithm.dpo, reward models, a resume and preflight.level full."""
    if spec.evaluate_only is None:
        return
    if spec.framework.type != "builtin":
        message = f"is not used by type {spec.framework.type}"
        fix = "remove it, or use type: builtin"
        edits = (*remove(FIELD), {TYPE: "builtin"})
        yield Finding(FIELD, "given", message, fix, rule=RULE, involved=(TYPE,), edits=edits)
        return
    if not spec.evaluation:
        fix = "add a suite, such as {name: test}"
        yield required("spec.evaluation", "evaluateOnly", fix, [{"name": "test"}], rule=RULE, involved=(FIELD,))
    if spec.rollout.mode == "separate":
        message = "cannot be combined with evaluateOnly, whose pods all generate"
        field = "spec.rollout.mode"
        fix = "use colocated, and remove workerGroup"
        yield Finding(field, "separate", message, fix, rule=RULE, involved=(FIELD,), edits=COLOCATED)
    others = {
        "spec.algorithm.dpo": not has_engines(spec),
        "spec.checkpoint.resume": spec.checkpoint.resume in ("path", "job"),
    }
    others |= {f"spec.rewards[{index}].model": each.model is not None for index, each in enumerate(spec.rewards)}
    yield from conflicts(FIELD, "given", others, rule=RULE)
    if spec.preflight.level == "full":
        message = "trains a step, which evaluateOnly does not"
        yield replaceable("spec.preflight.level", "full", message, "basic", rule=RULE, involved=(FIELD,))


def validate_evaluated_steps(spec: RLTrainingJobSpec) -> Iterator[Finding]:
    """steps other than 0 need checkpoints, which are on a volume. promoteIf.gainAbove needs step 0, its base."""
    only = spec.evaluate_only
    if only is None:
        return
    steps = only.steps or []
    if only.checkpoints is None and any(step != "0" for step in steps):
        value = ", ".join(steps)
        instead = "add checkpoints, the folder checkpoints in the directory of a run"
        yield effect_only_with(STEPS, "checkpoints", value=value, instead=instead, rule=RULE, involved=(CHECKPOINTS,))
    if only.checkpoints is not None and spec.storage.bucket is not None:
        message = "needs a shared volume: with storage.bucket, the engines of other pods cannot read what it exports"
        fix = "use storage.claimName, or remove it to evaluate spec.model"
        involved = ("spec.storage.bucket", STEPS)
        edits = ({CHECKPOINTS: None, STEPS: None},)
        yield Finding(CHECKPOINTS, only.checkpoints, message, fix, rule=RULE, involved=involved, edits=edits)
    for index, suite in enumerate(spec.evaluation):
        gate = suite.promote_if
        if gate is not None and gate.gain_above is not None and (only.checkpoints is None or "0" not in steps):
            field = f"spec.evaluation[{index}].promoteIf"
            message = "needs steps with 0, its base, and another one"
            fix = "remove promoteIf, or add 0 to evaluateOnly.steps"
            involved = (STEPS, CHECKPOINTS)
            value = f"{gate.gain_above:g}"
            yield Finding(f"{field}.gainAbove", value, message, fix, rule=RULE, involved=involved, edits=remove(field))


RULES = (validate_evaluate_only, validate_evaluated_steps)
