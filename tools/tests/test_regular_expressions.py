"""No regular expression takes more than linear time in the length of a text that a tenant or a program writes."""

from __future__ import annotations

import re

import pytest

from pumped_strings import find_slow_text
from regular_expressions import PACKAGES, Expression, find_expressions

OWN_TEXTS = {
    "api/rlt_api/frameworks/mapping.py": "descriptions of fields",
    "api/rlt_api/frameworks/roll/keys.py": "names of ROLL's types",
    "cli/rlt_cli/manifest_template.py": "lines of the template",
    "core/rlt_core/knowledge/page.py": "entries of the knowledge base",
    "core/rlt_core/knowledge/pattern.py": "entries of the knowledge base",
}
"""Files whose expressions search texts of this repository alone, and which ones."""
BUILT = {
    "api/rlt_api/frameworks/verl/engines.py": "for keys of verl's config",
    "api/rlt_api/frameworks/framework_rules.py": "for a path of at most 1024 characters",
    "api/rlt_api/frameworks/known_program.py": "the names of programs, without nested repetitions",
    "api/rlt_api/findings/text_values.py": "a pattern of a field, for a text within the field's maximum length",
    "api/rlt_api/rules/context_lengths.py": "whole names of models, with one .* at the end",
    "api/rlt_api/rules/metadata.py": "for a name of at most 253 characters",
    "api/rlt_api/rules/model_names.py": "whole names of models, with one .* at the end",
    "api/rlt_api/rules/rewards.py": "compiled, not used",
    "api/rlt_api/spec/reward_rules.py": "compiled, not used",
    "api/rlt_api/validation/set_aside.py": "the table of the defaults, each with one .* at most",
    "api/rlt_api/validation/template_types.py": "the operator's names of volumes",
    "cli/rlt_cli/field_guide.py": "for rules of the CRD",
    "client/rlt/convert/conditions.py": "a pattern of the user's own script, without nested repetitions",
    "client/rlt/convert/operations.py": "a pattern of the user's own script, with at most three stars",
    "client/rlt/convert/launch.py": "for one option of the user's own command",
    "client/rlt/convert/preparation.py": "the expressions in the same file",
    "client/rlt/convert/assignments.py": "the name of a variable in the user's own script",
    "client/rlt/convert/words.py": "a literal word in a line of the user's own script",
    "client/rlt/local_run.py": "a literal path",
    "core/rlt_core/knowledge/pattern.py": "the entries, for at most 8,000 characters of a line at a time",
    "core/rlt_core/knowledge/scan.py": "a literal word and a number of at most 6 digits",
    "core/rlt_core/knowledge/search.py": "a literal word",
    "core/rlt_core/targets/launch.py": "literal paths",
    "trainer/rlt_trainer/environments/openenv_messages.py": "the job's pattern, in its own pods",
    "trainer/rlt_trainer/rewards/judge.py": "the job's pattern, in its own pods",
    "trainer/rlt_trainer/rewards/rules.py": "the job's pattern, in its own pods",
    "trainer/rlt_trainer/telemetry/peak_flops.py": "for the name of a device",
    "trainer/rlt_trainer/telemetry/run_history.py": "literal text",
}
"""Files with expressions that contain local variables, and why each is linear or harmless."""

FORMER_TOKEN = r"""\b(
    hf_[A-Za-z0-9]{16,} | gh[pousr]_[A-Za-z0-9]{20,} | (AKIA|ASIA)[A-Z0-9]{16}
  | eyJ[\w-]{8,}\.[\w-]{8,}\.[\w-]{4,}
)"""


def get_file(expression: Expression) -> str:
    return expression.place.partition(":")[0]


@pytest.mark.parametrize("package", PACKAGES)
def test_the_expressions_of_a_package_are_linear(package: str) -> None:
    expressions = list(find_expressions(package))
    checked = {each for each in expressions if get_file(each) not in OWN_TEXTS}
    slow = {each.place: find_slow_text(each.pattern, each.method) for each in checked if each.pattern is not None}
    assert {place: text for place, text in slow.items() if text} == {}
    built = {get_file(each) for each in expressions if each.pattern is None}
    assert built == {file for file in BUILT if file.startswith(f"{package}/")}


@pytest.mark.parametrize(
    ("pattern", "method"),
    [
        (re.compile(FORMER_TOKEN, re.VERBOSE), "finditer"),  # quadratic from eyJaaaaaaaa-
        (re.compile(r"[^\n\r]*\r(?!\n)"), "finditer"),  # quadratic from any text of one line
        (re.compile(r"[+]*[a-z]+="), "finditer"),
        (re.compile(r"(.*)(SECRET|PASSWORD).*"), "fullmatch"),  # quadratic before a line break
        (re.compile(r" *\d* *\d* *x"), "match"),
        (re.compile(rb"name: .*?[ \t]*$", re.MULTILINE), "finditer"),
        (re.compile(r"a\s*\s*\s*b"), "match"),  # cubic
        (re.compile(r"(\w+\s?)*$"), "match"),  # exponential
        (re.compile(r"(ab|a|b)*c"), "fullmatch"),
    ],
    ids=lambda each: each.pattern if isinstance(each, re.Pattern) else each,
)
def test_a_slow_expression_is_found(pattern: re.Pattern[str], method: str) -> None:
    assert find_slow_text(pattern, method) is not None


@pytest.mark.parametrize(
    "pattern",
    [
        r"(?<![\w-])eyJ[\w-]{8,}\.[\w-]{8,}",
        r"[a-z]{0,90}-",
        r"(?<![^\n\r])[^\n\r]*\r",
        r"#[^#\n]*!",
        r"(a|tests)\w{0,40}$",  # 28 times the time for 16 repetitions of tests that it takes for 8
    ],
)
def test_a_linear_expression_is_not_reported(pattern: str) -> None:
    assert find_slow_text(re.compile(pattern)) is None
