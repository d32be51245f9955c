"""Chat templates: their syntax, and a message of a user."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rlt_pod.preflight.facts.chat_template import find_problem, import_jinja, read_template

JINJA = import_jinja()
CHATML = """\
{%- for message in messages %}
<|im_start|>{{ message.role }}
{{ message.content }}<|im_end|>
{%- endfor %}
{%- if add_generation_prompt %}
<|im_start|>assistant
{%- endif %}"""
PARTS = "{% for part in messages[0]['content'] %}{{ part['text'] | upper | replace('WHAT IS', 'What is') }}{% endfor %}"
TAGS = """\
{% for message in messages %}
{% if message.role == 'system' %}{% continue %}{% endif %}
{% generation %}{{ message.content }}{% endgeneration %}
{{ tools | tojson(indent=2) }} {{ strftime_now('%Y') }}
{% endfor %}"""
REJECTION = """\
{% if messages[0].role != 'system' %}
{{ raise_exception('the first message must be of the system') }}
{% endif %}"""


@pytest.mark.parametrize("template", [CHATML, PARTS, TAGS], ids=["text", "parts", "tags of transformers"])
def test_a_template_that_transformers_renders_has_no_problem(template: str) -> None:
    assert find_problem(template, JINJA) is None


@pytest.mark.parametrize(
    ("template", "line", "text", "message", "is_syntax"),
    [
        (CHATML.replace("endfor", "endfo"), 4, "{%- endfo %}", "unknown tag 'endfo'", True),
        (CHATML.replace("content }}", "content }"), 3, "{{ message.content }<|im_end|>", "unexpected '}'", True),
        ("{% for m in messages %}", 1, "{% for m in messages %}", "Unexpected end of template", True),
        ("a\n{{ messages[3].content.x }}", 2, "{{ messages[3].content.x }}", "has no element 3", False),
        (REJECTION, 2, "{{ raise_exception(", "the first message must be of the system", False),
        ("Hello", 1, "Hello", "the message of the user is missing", False),
    ],
)
def test_a_problem_has_its_line(template: str, line: int, text: str, message: str, is_syntax: bool) -> None:
    problem = find_problem(template, JINJA)
    assert problem
    assert (problem.line, problem.is_syntax) == (line, is_syntax)
    assert text in problem.text
    assert message in problem.message


def test_a_template_cannot_reach_the_file_system() -> None:
    problem = find_problem("{{ ''.__class__.__mro__[1].__subclasses__() }}", JINJA)
    assert problem
    assert "unsafe" in problem.message


@pytest.mark.parametrize(
    ("files", "template"),
    [
        ({}, None),
        ({"tokenizer_config.json": {"eos_token": "<|end|>"}}, None),
        ({"tokenizer_config.json": {"chat_template": "{{ messages }}"}}, "{{ messages }}"),
        ({"tokenizer_config.json": {"chat_template": [{"name": "default", "template": "a"}]}}, "a"),
        ({"chat_template.json": {"chat_template": "b"}, "tokenizer_config.json": {"chat_template": "c"}}, "b"),
        ({"chat_template.jinja": "{{ messages }}"}, "{{ messages }}"),
        ({"tokenizer_config.json": "{"}, None),
    ],
)
def test_the_template_of_a_tokenizer_is_read(tmp_path: Path, files: dict[str, Any], template: str | None) -> None:
    for name, content in files.items():
        (tmp_path / name).write_text(content if isinstance(content, str) else json.dumps(content))
    assert read_template(str(tmp_path)) == template
