"""Agents of the tests. Their processes import this module. The clients get nothing but environment variables."""

from __future__ import annotations

import json
import os
import subprocess
import time
from typing import Any

import httpx2
from openai import APIStatusError, AsyncOpenAI, OpenAI
from openai.types.chat import ChatCompletion, ChatCompletionMessageParam, ChatCompletionUserMessageParam
from openai.types.chat.chat_completion import Choice

from rlt_trainer.data.prompt import Prompt

CALCULATOR = {
    "type": "function",
    "function": {
        "name": "calculator",
        "description": "Evaluate an expression.",
        "parameters": {"type": "object", "properties": {"expression": {"type": "string"}}},
    },
}


def play(prompt: Prompt) -> Any:
    """Run the agent of this module that the prompt names."""
    return globals()[prompt.extra_info["agent"]](prompt)


def ask(messages: list[Any], **options: Any) -> Choice:
    completion: ChatCompletion = OpenAI().chat.completions.create(model="policy", messages=messages, **options)
    return completion.choices[0]


def user(text: str) -> ChatCompletionUserMessageParam:
    return {"role": "user", "content": text}


def use_tools(prompt: Prompt) -> float:
    """The loop of OpenAI's documentation: call tools until the model answers. It keeps the messages as they are."""
    messages: list[Any] = [{"role": "developer", "content": "Calculate."}, user(prompt.text)]
    while True:
        choice = ask(messages, tools=[CALCULATOR])
        messages.append(choice.message)
        if choice.finish_reason != "tool_calls":
            return float(choice.message.content == prompt.ground_truth)
        for call in choice.message.tool_calls or ():
            assert call.type == "function"
            expression = json.loads(call.function.arguments)["expression"]
            a, b = expression.split("+")
            messages.append({"role": "tool", "tool_call_id": call.id, "content": str(int(a) + int(b))})


async def chat(prompt: Prompt) -> None:
    """Three turns with the asynchronous client, as a stream. No reward."""
    client = AsyncOpenAI()
    messages: list[ChatCompletionMessageParam] = [user(prompt.text)]
    for _ in range(3):
        stream = await client.chat.completions.create(
            model="policy", messages=messages, stream=True, stream_options={"include_usage": True}
        )
        text = ""
        usage = None
        async for chunk in stream:
            text += chunk.choices[0].delta.content or "" if chunk.choices else ""
            usage = chunk.usage or usage
        assert usage is not None
        messages += [{"role": "assistant", "content": text}, user("o")]


def summarize(prompt: Prompt) -> float:
    """Two turns, a history that is replaced with a summary, and a turn of a sub-agent."""
    first = ask([user(prompt.text)]).message
    ask([user(prompt.text), first, user("more")])
    ask([user("summary")])
    ask([{"role": "system", "content": "sub"}, user("x")])
    return 0.5


def write_letters(prompt: Prompt) -> float:
    """One request, or two with other histories. The reward is the share of lower-case letters."""
    client = OpenAI()
    texts = [prompt.text, "again"][: 1 + int(prompt.ground_truth) % 2]
    answers = [
        client.chat.completions.create(model="policy", messages=[{"role": "user", "content": text}], max_tokens=2)
        for text in texts
    ]
    letters = [letter for answer in answers for letter in answer.choices[0].message.content or ""]
    return sum("a" <= letter <= "z" for letter in letters) / (2 * len(texts))


def retry(prompt: Prompt) -> float:
    """Two requests that continue the same turn."""
    first = ask([user(prompt.text)]).message
    for word in ("left", "right"):
        ask([user(prompt.text), first, user(word)])
    return 1.0


def read_log_probs(prompt: Prompt) -> float:
    """The sum of the log-probabilities."""
    choice = ask([user(prompt.text)], logprobs=True)
    assert choice.logprobs is not None
    assert choice.logprobs.content is not None
    return sum(token.logprob for token in choice.logprobs.content)


def never_end(prompt: Prompt) -> float:
    """Requests without end."""
    messages: list[Any] = [user(prompt.text)]
    while True:
        messages += [ask(messages).message, user("again")]


def send(prompt: Prompt) -> float:
    """Send the request in prompt.text, after a valid one."""
    ask([user("a")])
    try:
        ask(**json.loads(prompt.text))
    except APIStatusError as error:
        raise ValueError(f"{error.status_code} {error.code} {error.param}: {error.body}") from None
    return 1.0


def expect_context_length_exceeded(prompt: Prompt) -> float:
    ask([user("a")])
    try:
        ask(**json.loads(prompt.text))
    except APIStatusError as error:
        return float(error.code == "context_length_exceeded")
    return 0.0


def misuse(prompt: Prompt) -> float:
    """Requests that no episode makes: another model, key, path and proxy."""
    os.environ["HTTP_PROXY"] = "http://127.0.0.1:1"
    ask([user("a")])
    found = [model.id for model in OpenAI().models.list()]
    for make in (
        lambda: OpenAI().chat.completions.create(model="gpt-4o", messages=[user("a")]),
        lambda: OpenAI(api_key="guess").chat.completions.create(model="policy", messages=[user("a")]),
        lambda: OpenAI().embeddings.create(model="policy", input="a"),
    ):
        try:
            make()
        except APIStatusError as error:
            found.append(f"{error.status_code} {error.code}")
    raise ValueError(" ".join(found))


def hang(prompt: Prompt) -> float:
    ask([user(prompt.text)])
    time.sleep(3600)
    return 1.0


class Impatient(httpx2.HTTPTransport):
    """The first request has half a second for its response. Later ones have ten seconds, on a busy machine."""

    read_s = 0.5

    def handle_request(self, request: httpx2.Request) -> httpx2.Response:
        request.extensions["timeout"]["read"] = self.read_s
        self.read_s = 10.0
        return super().handle_request(request)


def give_up(prompt: Prompt) -> float:
    """Send a request again that takes too long, as OpenAI's client does."""
    client = OpenAI(max_retries=5, http_client=httpx2.Client(transport=Impatient()))
    client.chat.completions.create(model="policy", messages=[user(prompt.text)])
    return 1.0


def send_nothing(prompt: Prompt) -> float:
    return 1.0


def return_text(prompt: Prompt) -> str:
    ask([user("a")])
    return "good"


def run_program(prompt: Prompt) -> float:
    """An agent of another environment: the Python and the program in extra_info."""
    command = [prompt.extra_info["python"], "-P", prompt.extra_info["program"], prompt.text]
    variables = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    printed = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env=variables)
    return float(printed.stdout == prompt.ground_truth)
