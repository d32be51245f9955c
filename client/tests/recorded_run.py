"""A run with every kind of record, and texts that try to become markup."""

from __future__ import annotations

from typing import Any

from rlt.runs.run import Run

HOSTILE = [
    "<script>alert(1)</script>",
    '"><img src=https://a.b/x onerror=alert(1)>',
    "</pre></style></title><svg/onload=alert(1)>",
    "<!-- <![CDATA[ &amp; &lt; ' javascript:alert(1)",
]
STEPS: list[dict[str, float | None]] = [
    {
        "step": step,
        "critic/rewards/mean": step / 40,
        "reward/exact/mean": 0.5,
        "reward/length/mean": 0.25,
        "actor/kl_loss": None if step == 20 else 0.01 * step,
        "timing_s/gen": 3.0,
        "timing_s/update_actor": 1.0,
        "timing_s/step": 4.0,
        "perf/total_num_tokens": 400.0,
    }
    for step in range(1, 41)
]


def build_run(**changes: Any) -> Run:
    run: dict[str, Any] = {
        "name": "sum",
        "source": "job demo/sum",
        "phase": "Running",
        "sentence": "The Ray job is running.",
        "config": {"training": {"totalSteps": 100, "learningRate": 1e-6}},
        "steps": STEPS,
        "rollouts": [
            {"prompt": "1+1=", "response": "2", "reward": 1.0},
            {"prompt": "1+2=", "response": "4", "reward": 0},
        ],
        "rollouts_step": 40,
        "findings": [
            {
                "code": "KlRunaway",
                "severity": "warning",
                "message": "m",
                "evidence": "e",
                "remedy": "r",
                "source": "https://a.b",
            }
        ],
        "attempts": [
            {
                "number": 1,
                "reason": "ProgramFailed",
                "message": "boom",
                "nodeAtFault": "gpu-7",
                "completionTime": "2026-01-01T00:00:00Z",
            }
        ],
        "notes": ("No rollouts.",),
        "details": {"image": "trainer:1"},
    }
    return Run(**{**run, **changes})


def build_hostile_run(text: str) -> Run:
    """A run with the text everywhere."""
    rollout = {
        "prompt": text,
        "response": text,
        "ground_truth": text,
        "images": [text, "images/1f.png"],
        "reward": text,
        "rewards": {text: 1.0, "b": text},
    }
    steps = [
        {"step": step, f"reward/{text}/mean": 1.0, f"val-core/{text}/mean@1": 0.5, f"timing_s/{text}": 1.0}
        for step in (1, 2)
    ]
    return build_run(
        name=text,
        source=text,
        phase=text,
        sentence=text,
        config={text: {text: [text, {text: text}]}},
        steps=steps,
        rollouts=[rollout, rollout],
        findings=[dict.fromkeys(("code", "severity", "message", "evidence", "remedy", "source", "pod"), text)],
        attempts=[{"number": text, "reason": text, "message": text}],
        notes=(text,),
        details={text: text},
    )
