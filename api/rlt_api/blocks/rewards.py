"""spec.rewards: scores of the responses."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, StringConstraints

from rlt_api.blocks.functions import PythonFunction
from rlt_api.blocks.model import ModelPath
from rlt_api.blocks.resources import EnvVar, KeyReference
from rlt_api.model import ApiModel, JsonObject, Url, cel

Score = Annotated[float, Field(ge=-1e6, le=1e6)]

JUDGE_PROMPT = """Grade the response to a task.

Task:
{prompt}

Reference answer:
{ground_truth}

Response:
{response}

State the reason in one sentence. Then end with "SCORE: x", where x is a number from 0 (wrong) to 1 (correct)."""
"""The default of judge.prompt."""


class RewardFunction(PythonFunction):
    """A user-defined Python function: verl's custom_reward_function. With rollout.multiTurn.sandbox, its parameter
    sandbox gets the sandbox of the conversation."""

    timeout_seconds: Annotated[float, Field(gt=0, le=3600)] = 10.0
    """Timeout for one response, in seconds. Programs in the sandbox do not count."""


class Judge(ApiModel):
    """A generative reward model: a server with OpenAI's chat completions API, such as `vllm serve`, grades each
    response."""

    model_config = cel(
        (
            "(has(self.minScore) ? self.minScore : 0.0) < (has(self.maxScore) ? self.maxScore : 1.0)",
            "minScore must be less than maxScore",
        ),
        ("!has(self.prompt) || self.prompt.contains('{response}')", "prompt must contain {response}"),
    )

    base_url: Url
    """URL of the server, such as http://judge:8000/v1. Requests go to /chat/completions below it."""
    model: Annotated[str, StringConstraints(min_length=1, max_length=253)]
    """The model of the requests."""
    api_key: KeyReference | None = None
    """The key of a Secret with the API key. Default: requests without a key."""
    prompt: Annotated[str, StringConstraints(min_length=1, max_length=65536)] = JUDGE_PROMPT
    """The user message. {prompt}, {response} and {ground_truth} are replaced, other text in braces is not. Default: it
    asks for a reason and "SCORE: x", where x is from 0 to 1."""
    score_pattern: Annotated[str, StringConstraints(min_length=1, max_length=4096)] = (
        r"(?i)score\W{1,8}(-?[0-9]+(?:\.[0-9]+)?)"
    )
    """A Python regular expression with one group, which matches the score in the answer. The last match counts.
    Default: the number after SCORE."""
    min_score: Score = 0.0
    """The lowest valid score. A lower one counts as a failed reward."""
    max_score: Score = 1.0
    """The highest valid score. A higher one counts as a failed reward."""
    timeout_seconds: Annotated[float, Field(gt=0, le=3600)] = 60.0
    """Timeout for one request, in seconds."""
    max_retries: Annotated[int, Field(ge=0, le=100)] = 5
    """Maximum number of further requests for a response if the server does not answer, answers with status 408, 409,
    429 or 5xx, or if the answer has no valid score. Afterwards it counts as a failed reward. The delay before a
    request doubles from 0.5 s to 30 s. The server's Retry-After has precedence, up to the same limit."""


class Reward(ApiModel):
    """One score of a response. Its source is one of name, function, model and judge. Scores of rules by name are
    between 0 and 1."""

    model_config = cel(
        (
            "[has(self.name), has(self.function), has(self.model), has(self.judge)].exists_one(given, given)",
            "must have exactly one of name, function, model and judge",
        ),
        ("!has(self.options) || !has(self.model)", "options are not for rewards with model"),
        ("!has(self.env) || self.env.size() == 0 || has(self.function)", "env is only for rewards with function"),
        ("!has(self.concurrency) || !has(self.model)", "concurrency is not for rewards with model"),
    )

    name: Annotated[str, StringConstraints(pattern=r"^[a-zA-Z0-9_.:-]+$", max_length=253)] | None = None
    """A rule: exact compares the whole response with the answer; gsm8k the number after ####; math the mathematical
    value of the answer; format requires sections such as <think> and <answer>; length a number of characters or words;
    regex a match of a pattern; characters is the share of positions with the correct character."""
    options: JsonObject = {}
    """Options of the source. Rules: gsm8k has method (strict, flexible); format tags or pattern; length min, max and
    unit (characters, words); regex pattern. A function gets them as keyword arguments: verl's reward_kwargs. For a
    judge they are fields of the request, such as temperature and max_tokens."""
    function: RewardFunction | None = None
    """A user-defined Python function."""
    env: Annotated[list[EnvVar], Field(max_length=64)] = []
    """Environment variables of the function alone. Values of Secrets reach no other reward."""
    model: ModelPath | None = None
    """A reward model, as in model.path: a sequence classifier with one output, whose logit is the score."""
    judge: Judge | None = None
    """A generative reward model behind a URL."""
    concurrency: Annotated[int | None, Field(ge=1, le=4096)] = None
    """Maximum number of responses that are scored at the same time: processes of a function or a rule, requests of a
    judge. Default: one process for each CPU, at most 4; 64 requests."""
    weight: Annotated[float, Field(ge=-1e6, le=1e6)] = 1.0
    """Factor of the score in the sum of all rewards."""
