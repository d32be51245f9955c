"""lm-evaluation-harness and Inspect evaluate the model of `rlt serve` with the tasks of docs/harnesses.md, offline."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from model_server import post, serve

from rlt_core.children.model_server import ServedModel
from rlt_e2e.ports import free_port
from separate_environment import install

pytestmark = [pytest.mark.slow, pytest.mark.long]

PAGE = (Path(__file__).parents[2] / "docs/harnesses.md").read_text()
QUESTIONS = [f"{number}+{number}=" for number in range(6)]
WRONG = "no"
TIMEOUT_S = 600.0


@pytest.fixture(scope="module")
def url(tiny_model: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    changes = {"data.maxPromptLength": 100, "data.maxResponseLength": 28}
    with serve("tiny", ServedModel(tiny_model), tmp_path_factory.mktemp("server"), changes) as served:
        yield served


@pytest.fixture(scope="module")
def programs() -> Path:
    """The folder with the programs of both harnesses."""
    return install("harnesses").parent


def find_example(language: str, word: str) -> str:
    """Return the example of the page that has a word."""
    (found,) = (block for block in re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL) if word in block)
    return str(found)


def run(program: Path, *arguments: str, folder: Path, **variables: str) -> None:
    """Run a program that reaches the loopback interface alone."""
    proxy = f"http://127.0.0.1:{free_port()}"  # no process listens on it
    proxies = {"HTTP_PROXY": proxy, "HTTPS_PROXY": proxy, "NO_PROXY": "127.0.0.1", "no_proxy": "127.0.0.1"}
    offline = {"HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", "HF_HOME": str(folder / "huggingface")}
    kept = {name: value for name, value in os.environ.items() if "proxy" not in name.lower() and name != "PYTHONPATH"}
    done = subprocess.run(
        [program, *arguments],
        cwd=folder,
        env={**kept, **proxies, **offline, "HOME": str(folder), **variables},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=TIMEOUT_S,
    )
    assert done.returncode == 0, done.stdout[-5000:]


def write_lines(file: Path, rows: list[dict[str, Any]]) -> None:
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))


def answer(url: str, question: str) -> str:
    """Return the greedy response."""
    messages = [{"role": "user", "content": question}]
    request = {"model": "tiny", "messages": messages, "max_tokens": 16, "temperature": 0}
    return str(post(f"{url}/v1/chat/completions", request)["choices"][0]["message"]["content"])


def write_questions(url: str, folder: Path) -> list[str]:
    """Write questions of which the model answers the first half as expected. Return its answers."""
    answers = [answer(url, question) for question in QUESTIONS]
    half = len(QUESTIONS) // 2
    expected = [*answers[:half], *[WRONG] * half]
    rows = zip(QUESTIONS, expected, strict=True)
    write_lines(folder / "sums.jsonl", [{"question": question, "answer": given} for question, given in rows])
    return answers


def run_lm_eval(programs: Path, folder: Path, task: str, model: str, *arguments: str) -> tuple[Any, list[Any]]:
    """Return the results of a task on the page, and its samples in their order."""
    (folder / f"{task}.yaml").write_text(find_example("yaml", f"task: {task}"))
    given = ["run", "--include_path", ".", "--tasks", task, "--model", model]
    run(programs / "lm-eval", *given, *arguments, "--output_path", "out", "--log_samples", folder=folder)
    (results,) = folder.glob("out/**/results_*.json")
    (samples,) = folder.glob(f"out/**/samples_{task}_*.jsonl")
    lines = [json.loads(line) for line in samples.read_text().strip().split("\n")]
    return json.loads(results.read_text())["results"][task], sorted(lines, key=lambda line: line["doc_id"])


def test_lm_eval_scores_the_responses_of_the_model(url: str, programs: Path, tmp_path: Path) -> None:
    answers = write_questions(url, tmp_path)
    model = f"model=tiny,base_url={url}/v1/chat/completions,num_concurrent=2"
    options = ["local-chat-completions", "--apply_chat_template", "--model_args", model]
    results, samples = run_lm_eval(programs, tmp_path, "sums", *options)
    assert results["exact_match,none"] == 0.5
    assert [sample["resps"][0][0] for sample in samples] == answers


def test_lm_eval_compares_the_log_likelihoods_of_the_model(
    url: str, programs: Path, tiny_model: str, tmp_path: Path
) -> None:
    import torch
    from transformers import AutoModelForCausalLM

    choices = ["a", "bc"]
    rows = [{"question": question, "choices": choices, "label": 0} for question in QUESTIONS]
    write_lines(tmp_path / "choices.jsonl", rows)
    model = f"model=tiny,base_url={url}/v1/completions,tokenizer={tiny_model}"
    results, samples = run_lm_eval(programs, tmp_path, "choices", "local-completions", "--model_args", model)
    policy = AutoModelForCausalLM.from_pretrained(tiny_model, dtype=torch.float32)

    def score(question: str, choice: str) -> float:
        tokens = torch.tensor([list(f"{question}{choice}".encode())])
        with torch.no_grad():
            log_probs = policy(tokens).logits[0, :-1].log_softmax(-1).gather(-1, tokens[0, 1:, None])
        return float(log_probs[-len(choice) :].sum())

    expected = [[score(question, choice) for choice in choices] for question in QUESTIONS]
    found = [[float(likelihood) for likelihood, _ in sample["filtered_resps"]] for sample in samples]
    assert found == [pytest.approx(pair, abs=1e-3) for pair in expected]
    assert results["acc,none"] == pytest.approx(sum(first > second for first, second in expected) / len(expected))


def test_inspect_scores_the_responses_of_the_model(url: str, programs: Path, tmp_path: Path) -> None:
    answers = write_questions(url, tmp_path)
    (tmp_path / "sums.py").write_text(find_example("python", "def sums"))
    options = ["--temperature", "0", "--max-tokens", "16", "--log-format", "json", "--log-dir", "logs"]
    variables = {"RLT_API_KEY": "none", "RLT_BASE_URL": f"{url}/v1"}
    command = ["eval", "sums.py", "--model", "openai-api/rlt/tiny", "--display", "plain", *options]
    run(programs / "inspect", *command, folder=tmp_path, **variables)
    (log,) = (tmp_path / "logs").glob("*.json")
    found = json.loads(log.read_text())
    (score,) = found["results"]["scores"]
    assert (found["status"], score["metrics"]["mean"]["value"]) == ("success", 0.5)
    samples = sorted(found["samples"], key=lambda sample: sample["id"])
    assert [sample["output"]["choices"][0]["message"]["content"] for sample in samples] == answers
