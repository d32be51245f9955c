"""Agents of the tests with a sandbox. Their processes import this module. The programs in the sandbox use the standard
library, or the client of OpenAI."""

from __future__ import annotations

import sys
from contextlib import suppress
from typing import Any

from rlt_trainer.data.prompt import Prompt
from rlt_trainer.sandboxes.user_sandbox import UserSandbox

ASK = """
import json, os, sys, urllib.error, urllib.request
def ask(text, key=os.environ["OPENAI_API_KEY"]):
    body = {"model": "policy", "messages": [{"role": "user", "content": text}]}
    url = os.environ["OPENAI_BASE_URL"] + "/chat/completions"
    request = urllib.request.Request(url, json.dumps(body).encode(), {"Authorization": "Bearer " + key})
    try:
        with urllib.request.urlopen(request) as response:
            return json.load(response)["choices"][0]["message"]["content"]
    except urllib.error.HTTPError as error:
        return f"{error.code} {error.read().decode()}"
"""
"""Begins a program: ask(text, key) is the answer of the policy, or the status and the body of an error."""


def play(prompt: Prompt, sandbox: UserSandbox) -> Any:
    """Run the agent of this module that the prompt names."""
    return globals()[prompt.extra_info["agent"]](prompt, sandbox)


def run_python(sandbox: UserSandbox, program: str, **options: Any) -> Any:
    return sandbox.run(["python3", "-"], stdin=ASK + program, **options)


def solve(prompt: Prompt, sandbox: UserSandbox) -> float:
    """A program writes the policy's answer, and a test in the same sandbox grades it after its end."""
    sandbox.put("task/question.txt", prompt.text)
    sandbox.put("agent.py", f"{ASK}\nopen('answer.txt', 'w').write(ask(open('task/question.txt').read()))".encode())
    ended = sandbox.run(["python3", "agent.py"])
    assert (ended.exit_code, ended.problem) == (0, ""), ended
    assert sandbox.get("missing.txt") is None
    assert sandbox.get("answer.txt") == prompt.ground_truth.encode()
    test = sandbox.run(["sh", "-c", 'test "$(cat answer.txt)" = "$TRUTH"'], variables={"TRUTH": prompt.ground_truth})
    return float(test.exit_code == 0)


def use_openai(prompt: Prompt, sandbox: UserSandbox) -> float:
    """OpenAI's client in the sandbox, with a stream, and another request from the function."""
    program = """
from openai import OpenAI
client = OpenAI()
messages = [{"role": "user", "content": "a"}]
stream = client.chat.completions.create(model="policy", messages=messages, stream=True)
text = "".join(chunk.choices[0].delta.content or "" for chunk in stream if chunk.choices)
messages += [{"role": "assistant", "content": text}, {"role": "user", "content": "b"}]
print(text, client.chat.completions.create(model="policy", messages=messages).choices[0].message.content)
"""
    ended = sandbox.run([sys.executable, "-c", program])
    return float(ended.output == prompt.ground_truth)


def hang(prompt: Prompt, sandbox: UserSandbox) -> float:
    """A program that makes a request and hangs. Its function continues, and rewards it."""
    ended = run_python(sandbox, "ask('a'); import time; time.sleep(3600)", timeout=90)
    return -1.0 if ended.problem == "the program did not end within 90 s" else 1.0


def flood(prompt: Prompt, sandbox: UserSandbox) -> float:
    """Requests without end, until one gets the status 429."""
    program = """
found = []
while not found or found[-1] != "429":
    found.append(ask("a")[:3])
print(len(found))
"""
    ended = run_python(sandbox, program)
    return float(ended.output)


def send_much(prompt: Prompt, sandbox: UserSandbox) -> float:
    """A request with a huge body, and a valid one."""
    ended = run_python(sandbox, "print(ask('x' * 10**7)[:3], ask('a'))")
    return float(ended.output == prompt.ground_truth)


def lose_pod(prompt: Prompt, sandbox: UserSandbox) -> float:
    """The pod ends within a program. The function hides it."""
    with suppress(Exception):
        run_python(sandbox, "ask('a'); ask('b'); import os, signal; os.kill(os.getppid(), signal.SIGKILL)")
    return 1.0


def ask_in_vain(prompt: Prompt, sandbox: UserSandbox) -> float:
    """A request whose engine fails."""
    run_python(sandbox, "ask('a')")
    return 1.0


def mix(prompt: Prompt, sandbox: UserSandbox) -> Any:
    """Run the agent that the text of the prompt names."""
    return globals()[prompt.text](prompt, sandbox)
