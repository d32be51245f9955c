"""The syntax of a chat template, and a test with one user message, in the environment of transformers.

The environment is from transformers/utils/chat_template_utils.py (5.x): a sandbox with the tags break, continue and
generation, the filter tojson, and the functions raise_exception and strftime_now.
"""

from __future__ import annotations

import json
import time
import traceback
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

MARK = "What is 1 + 1?"
CONTENTS: tuple[Any, ...] = (MARK, [{"type": "text", "text": MARK}])
"""The content of the message: text or, for templates of models with images, a list of parts."""
FILE_NAME = "<template>"
"""Name of the file in tracebacks of Jinja."""


@dataclass(frozen=True)
class TemplateProblem:
    """Why a chat template does not work."""

    line: int
    """Line of the template, from 1."""
    text: str
    """This line."""
    message: str
    is_syntax: bool = True
    """Whether the template cannot be parsed. False: it does not render the message of the test."""


def read_template(folder: str) -> str | None:
    """Read the chat template of the tokenizer in a model folder. None: it has none (transformers,
    tokenization_utils_base.py)."""
    file = Path(folder, "chat_template.jinja")
    try:
        if file.exists():
            return file.read_text(encoding="utf-8")
        for name in ("chat_template.json", "tokenizer_config.json"):
            if Path(folder, name).exists():
                template = _choose(json.loads(Path(folder, name).read_text(encoding="utf-8")).get("chat_template"))
                if template:
                    return template
    except (OSError, ValueError, AttributeError):
        return None
    return None


def import_jinja() -> Any:
    """Import Jinja. Return the package, or None if the image does not have it."""
    try:
        jinja2, _, _ = map(import_module, ("jinja2", "jinja2.ext", "jinja2.sandbox"))
    except ImportError:
        return None
    return jinja2


def find_problem(template: str, jinja2: Any) -> TemplateProblem | None:
    """Parse a template and render it with one user message. `jinja2`: the package. None: it works."""
    environment = _build_environment(jinja2)
    try:
        compiled = environment.from_string(template)
    except jinja2.TemplateSyntaxError as error:
        return TemplateProblem(error.lineno, _get_line(template, error.lineno), str(error.message))
    problems = []
    for content in CONTENTS:
        problem = _render(compiled, template, content)
        if problem is None:
            return None
        problems.append(problem)
    return problems[0]


def _choose(value: Any) -> str | None:
    """A tokenizer can have several templates, by name."""
    if isinstance(value, list):
        named = {each["name"]: each["template"] for each in value}
        return named.get("default") or next(iter(named.values()), None)
    return value if isinstance(value, str) else None


def _render(compiled: Any, template: str, content: Any) -> TemplateProblem | None:
    tokens = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>", "pad_token": "<pad>"}
    message = {"role": "user", "content": content}
    try:
        text = compiled.render(messages=[message], tools=None, documents=None, add_generation_prompt=True, **tokens)
    except Exception as error:  # an expression of the template can raise any
        frames = [each.lineno for each in traceback.extract_tb(error.__traceback__) if each.filename == FILE_NAME]
        line = (frames or [1])[-1] or 1
        return TemplateProblem(line, _get_line(template, line), f"{error or type(error).__name__}", is_syntax=False)
    if MARK not in text:
        return TemplateProblem(1, _get_line(template, 1), "the message of the user is missing", is_syntax=False)
    return None


def _get_line(template: str, line: int) -> str:
    lines = template.splitlines()
    return lines[line - 1].strip() if 0 < line <= len(lines) else ""


def _build_environment(jinja2: Any) -> Any:
    def parse(self: Any, parser: Any) -> Any:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)

    def raise_exception(message: str) -> None:
        raise jinja2.TemplateError(message)

    def to_json(value: Any, **options: Any) -> str:
        return json.dumps(value, **{"ensure_ascii": False, **options})

    # The tag of the parts that the assistant writes. Its class is built here because Jinja may not be installed.
    generation = type("Generation", (jinja2.ext.Extension,), {"tags": {"generation"}, "parse": parse})
    environment = jinja2.sandbox.ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[generation, "jinja2.ext.loopcontrols"]
    )
    environment.filters["tojson"] = to_json
    environment.globals["raise_exception"] = raise_exception
    environment.globals["strftime_now"] = time.strftime
    return environment
