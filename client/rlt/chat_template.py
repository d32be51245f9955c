"""Validation of chat templates in manifests and in local model folders, which the API server does not render."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from rlt_api.findings.finding import Finding, printable
from rlt_api.frameworks.known_programs import find_program
from rlt_pod.preflight.facts.chat_template import TemplateProblem, find_problem, read_template

FIELD = "spec.data.chatTemplate"
VERL_KEY = "actor_rollout_ref.model.custom_chat_template"
FIX = "correct the line, or use the template of the model's tokenizer"


def validate_chat_template(spec: Mapping[str, Any]) -> Iterator[Finding]:
    """The template in a valid spec, or in the arguments of verl, can be parsed and renders a message of a user."""
    for field, template in _list_templates(spec):
        if problem := _find_problem(template):
            value = f"line {problem.line}: {printable(problem.text)}"
            yield Finding(field, value, _describe(problem), FIX, rule="chat-template")


def warn_local_template(spec: Mapping[str, Any]) -> Iterator[str]:
    """The template of the tokenizer, if the folder of the model exists on this machine."""
    path = (spec.get("model") or {}).get("path")
    if not isinstance(path, str) or (spec.get("data") or {}).get("chatTemplate") or not Path(path).is_dir():
        return
    template = read_template(path)
    if template and (problem := _find_problem(template)):
        yield f"spec.model.path: {path}: its chat template, line {problem.line}, {_describe(problem)}; {FIX}"


def _list_templates(spec: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Field -> template."""
    template = (spec.get("data") or {}).get("chatTemplate")
    if isinstance(template, str):
        yield FIELD, template
    program = find_program((spec.get("framework") or {}).get("command") or [])
    argument = program.given.get(VERL_KEY) if program else None
    value = program.values.get(VERL_KEY) if program else None
    if argument and isinstance(value, str):
        yield f"spec.framework.command[{argument.index}]", value


def _find_problem(template: str) -> TemplateProblem | None:
    import jinja2.ext  # a job without a template does not need it
    import jinja2.sandbox

    return find_problem(template, jinja2)


def _describe(problem: TemplateProblem) -> str:
    kind = "is not valid Jinja" if problem.is_syntax else "does not render a message of a user"
    return f"{kind}: {printable(problem.message)}"
