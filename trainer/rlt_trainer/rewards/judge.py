"""A judge: a server with OpenAI's chat completions API that grades responses.

API: https://platform.openai.com/docs/api-reference/chat/create
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Mapping
from typing import Any

import aiohttp

from rlt_api.blocks.rewards import Judge
from rlt_api.findings.masking import mask_text
from rlt_trainer.data.prompt import Prompt
from rlt_trainer.rewards.outcome import Failure, Outcome, Reason
from rlt_trainer.sandboxes.user_sandbox import Exchange

FIRST_DELAY_S = 0.5
MAX_DELAY_S = 30.0
"""Delay before the first retry of a request, and its maximum. It doubles with each retry."""
RETRIED_STATUS = (408, 409, 429)
"""Status codes below 500 after which a request is sent again, as the openai package does."""
SHOWN_CHARACTERS = 200
"""Number of characters of an answer in messages."""
FIXES = {
    "unavailable": "Check baseUrl, that the server runs, and that the pods can connect to it.",
    "timed_out": "Check baseUrl, or raise timeoutSeconds.",
    "rejected": "Check baseUrl, model, apiKey and options.",
    "no_score": "Change prompt, scorePattern, minScore or maxScore.",
}
"""Reason of a failure -> what to do."""

_PLACEHOLDER = re.compile(r"\{(prompt|response|ground_truth)\}")


class JudgeSource:
    """Sends one request for each response. All calls must come from the same event loop."""

    takes_sandbox = False

    def __init__(self, judge: Judge, options: Mapping[str, Any], *, api_key: str | None, field: str) -> None:
        """`options` are fields of the request. `field` is the path of the judge in messages."""
        self._judge = judge
        self._options = options
        self._api_key = api_key
        self._field = field
        self._pattern = re.compile(judge.score_pattern)
        self._session: aiohttp.ClientSession | None = None
        if api_key and not (api_key.isascii() and api_key.isprintable()):
            raise ValueError(
                f"{field}.apiKey: the key contains characters not allowed in an HTTP header. Correct the Secret."
            )

    async def score_one(self, text: str, prompt: Prompt, exchange: Exchange | None = None) -> Outcome:
        """Return the score of one response. Requests are repeated up to judge.maxRetries times."""
        message = render_prompt(self._judge.prompt, text, prompt)
        body = {**self._options, "model": self._judge.model, "messages": [{"role": "user", "content": message}]}
        delay = FIRST_DELAY_S
        for attempt in range(1 + self._judge.max_retries):
            outcome, retry_after = await self._request(body)
            if isinstance(outcome, float) or outcome.reason == "rejected" or attempt == self._judge.max_retries:
                break
            await asyncio.sleep(min(delay if retry_after is None else retry_after, MAX_DELAY_S))
            delay *= 2
        return outcome

    async def validate(self, prompt: Prompt) -> None:
        """Score the solution of a prompt. Raises ValueError with the reason if there is no score."""
        outcome = await self.score_one(prompt.solution, prompt)
        if isinstance(outcome, Failure):
            raise ValueError(f"{self._field}: {outcome.message}. {FIXES[outcome.reason]}")

    async def close(self) -> None:
        """Close the connections."""
        if self._session is not None:
            await self._session.close()

    async def _request(self, body: Mapping[str, Any]) -> tuple[Outcome, float | None]:
        """Send one request. Return the outcome, and the seconds of the server's Retry-After."""
        url = f"{self._judge.base_url.rstrip('/')}/chat/completions"
        try:
            async with self._open_session().post(url, json=body, allow_redirects=False) as answer:
                status = answer.status
                text = await answer.text(errors="replace")
        except TimeoutError:
            return self._fail("timed_out", f"{url} did not answer within {self._judge.timeout_seconds:g} s"), None
        except aiohttp.ClientError as error:
            return self._fail("unavailable", f"{url}: {type(error).__name__}: {error}"), None
        if status == 200:
            return self._parse(text), None
        reason: Reason = "unavailable" if status in RETRIED_STATUS or status >= 500 else "rejected"
        message = f"{url} answered with status {status}: {text[:SHOWN_CHARACTERS]}"
        return self._fail(reason, message), parse_retry_after(answer.headers.get("retry-after"))

    def _open_session(self) -> aiohttp.ClientSession:
        """Open the connections in the event loop of the first call."""
        if self._session is None:
            self._session = aiohttp.ClientSession(
                headers={"Authorization": f"Bearer {self._api_key}"} if self._api_key else {},
                timeout=aiohttp.ClientTimeout(total=self._judge.timeout_seconds),
                connector=aiohttp.TCPConnector(limit=0),  # rewards[].concurrency is the limit
                trust_env=True,
            )
        return self._session

    def _parse(self, text: str) -> Outcome:
        """Find the score in the body of an answer."""
        try:
            content = json.loads(text)["choices"][0]["message"]["content"]
            found = self._pattern.findall(content)
            score = float(found[-1])
        except (ValueError, LookupError, TypeError):
            return self._fail("no_score", f"the answer has no score: {text[-SHOWN_CHARACTERS:]}")
        if not self._judge.min_score <= score <= self._judge.max_score:
            bounds = f"{self._judge.min_score:g} to {self._judge.max_score:g}"
            return self._fail("no_score", f"the score {score:g} is not in the range {bounds}")
        return score

    def _fail(self, reason: Reason, message: str) -> Failure:
        return Failure(reason, mask_text(message, [self._api_key] if self._api_key else []))


def render_prompt(template: str, response: str, prompt: Prompt) -> str:
    """Replace {prompt}, {response} and {ground_truth} in the template, each occurrence once."""
    values = {"prompt": format_task(prompt), "response": response, "ground_truth": prompt.ground_truth}
    return _PLACEHOLDER.sub(lambda match: values[match[1]], template)


def format_task(prompt: Prompt) -> str:
    """Return a prompt as plain text: one message as its content, several with their roles."""
    messages = prompt.messages
    if messages is None:
        return prompt.text
    if len(messages) == 1:
        return messages[0]["content"]
    return "\n\n".join(f"{message['role']}: {message['content']}" for message in messages)


def parse_retry_after(value: str | None) -> float | None:
    """Return the seconds of a Retry-After header. None if it is missing, or a date."""
    try:
        return max(0.0, float(value)) if value else None
    except ValueError:
        return None
