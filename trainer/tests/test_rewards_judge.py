"""A judge, as a real HTTP server: scores, concurrency, retries, failures, and an API key that stays secret."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from scoring import score_batch

from rlt_api.blocks.rewards import JUDGE_PROMPT, Reward
from rlt_trainer.data.prompt import Prompt
from rlt_trainer.errors import TrainingError
from rlt_trainer.rewards import judge
from rlt_trainer.rewards.judge import format_task, parse_retry_after, render_prompt
from rlt_trainer.rewards.outcome import Failure
from rlt_trainer.rewards.scorer import Scorer

KEY = "sk-no-such-key-0123456789"
PROMPT = Prompt(0, (1,), "What is 3 + 4?", "7", "7", "test")


class Server(ThreadingHTTPServer):
    """A judge. `answer` maps the body of a request to a status, headers and a body."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.answer: Callable[[dict[str, Any]], tuple[int, dict[str, str], str]] = lambda body: say("SCORE: 0.5")
        self.requests: list[tuple[str, str | None, dict[str, Any]]] = []
        self.url = f"http://127.0.0.1:{self.server_port}/v1"


class Handler(BaseHTTPRequestHandler):
    """Passes requests to Server.answer."""

    def do_POST(self) -> None:
        assert isinstance(self.server, Server)
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.requests.append((self.path, self.headers["Authorization"], body))
        status, headers, text = self.server.answer(body)
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(text.encode()))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, format: str, *arguments: Any) -> None:
        pass


def say(content: Any) -> tuple[int, dict[str, str], str]:
    return 200, {}, json.dumps({"choices": [{"message": {"role": "assistant", "content": content}}]})


@pytest.fixture
def server() -> Iterator[Server]:
    with Server() as made:
        threading.Thread(target=made.serve_forever, args=(0.01,), daemon=True).start()
        yield made
        made.shutdown()


@pytest.fixture(autouse=True)
def _no_delay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(judge, "FIRST_DELAY_S", 0.0)


def build(server: Server, *, concurrency: int = 4, options: dict[str, Any] | None = None, **fields: Any) -> Scorer:
    block = {"baseUrl": server.url, "model": "grader", **fields}
    return Scorer([Reward.model_validate({"judge": block, "concurrency": concurrency, "options": options or {}})])


def grade(scorer: Scorer, text: str = "7") -> Any:
    with scorer:
        return scorer.open_batch().start(text, PROMPT).result()["grader"]


def test_the_score_is_the_last_match_in_the_answer(server: Server) -> None:
    server.answer = lambda body: say("Not SCORE: 0, it is correct.\n**Score:** 0.75")
    assert grade(build(server, options={"temperature": 0, "max_tokens": 64})) == 0.75
    ((path, key, body),) = server.requests
    assert (path, key) == ("/v1/chat/completions", None)
    message = {"role": "user", "content": render_prompt(JUDGE_PROMPT, "7", PROMPT)}
    assert body == {"model": "grader", "temperature": 0, "max_tokens": 64, "messages": [message]}


def test_placeholders_are_replaced_once_and_other_braces_stay() -> None:
    rendered = render_prompt('{"a": {prompt}} {response} {ground_truth} {other}', "{prompt}", PROMPT)
    assert rendered == '{"a": What is 3 + 4?} {prompt} 7 {other}'


def test_a_conversation_is_shown_with_its_roles() -> None:
    system = {"role": "system", "content": "Add."}
    user = {"role": "user", "content": "3 + 4"}
    one, two = (Prompt(0, (1,), "<|user|>", "7", "7", "", messages=each) for each in ([user], [system, user]))
    assert (format_task(one), format_task(two)) == ("3 + 4", "system: Add.\n\nuser: 3 + 4")


def test_requests_run_at_the_same_time_up_to_the_concurrency(server: Server) -> None:
    meeting = threading.Barrier(3)
    running = threading.Semaphore(3)
    most = []

    def answer(body: dict[str, Any]) -> tuple[int, dict[str, str], str]:
        most.append(running.acquire(blocking=False))
        meeting.wait(60)  # the request is answered when three run
        running.release()
        meeting.wait(60)
        return say("SCORE: 1")

    server.answer = answer
    with build(server, concurrency=3) as scorer:
        assert score_batch(scorer, ["7"] * 6, [PROMPT] * 6).total.tolist() == [1.0] * 6
    assert most == [True] * 6


def test_a_response_is_scored_while_another_one_waits(server: Server) -> None:
    """The first response has its score before the second one gets its answer."""
    first_is_scored = threading.Event()
    server.answer = lambda body: say(f"SCORE: {float('slow' not in str(body) or first_is_scored.wait(60))}")
    with build(server) as scorer:
        batch = scorer.open_batch()
        slow = batch.start("slow", PROMPT)
        fast = batch.start("fast", PROMPT)
        assert fast.result() == {"grader": 1.0}
        first_is_scored.set()
        assert slow.result() == {"grader": 1.0}


@pytest.mark.parametrize(
    "bad",
    [
        (429, {"Retry-After": "0"}, "slow down"),
        (503, {}, "starting"),
        (200, {}, "not JSON"),
        say("I cannot grade this."),
        say("SCORE: 11"),
        say(None),
    ],
    ids=["429", "503", "no JSON", "no score", "out of range", "no text"],
)
def test_a_request_is_repeated_until_there_is_a_score(server: Server, bad: tuple[int, dict[str, str], str]) -> None:
    answers = iter([bad, bad, say("SCORE: 1")])
    server.answer = lambda body: next(answers)
    assert grade(build(server, maxRetries=2)) == 1.0


@pytest.mark.parametrize(
    ("answer", "reason", "message", "requests"),
    [
        ((429, {}, "slow down"), "unavailable", "answered with status 429: slow down", 3),
        (say("SCORE: ten"), "no_score", "the answer has no score", 3),
        (say("SCORE: 11"), "no_score", "the score 11 is not in the range 0 to 1", 3),
        ((404, {}, "no model grader"), "rejected", "answered with status 404: no model grader", 1),
        ((302, {"Location": "http://127.0.0.1:1/"}, ""), "rejected", "answered with status 302", 1),
    ],
)
def test_a_response_without_a_score_is_a_counted_failure(
    server: Server, answer: tuple[int, dict[str, str], str], reason: str, message: str, requests: int
) -> None:
    server.answer = lambda body: answer if body["messages"][0]["content"] == "bad" else say("SCORE: 1")
    with build(server, maxRetries=2, prompt="{response}") as scorer:
        scores = score_batch(scorer, ["good", "bad"], [PROMPT] * 2)
        outcome = scorer.open_batch().start("bad", PROMPT).result()["grader"]
    assert scores.total.nan_to_num(-1).tolist() == [1.0, -1.0]
    assert scores.reasons == {f"grader/{reason}": 1}
    assert isinstance(outcome, Failure)
    assert message in outcome.message
    assert len(server.requests) == 1 + 2 * requests


def test_a_judge_that_does_not_answer_times_out(server: Server) -> None:
    end = threading.Event()
    server.answer = lambda body: say(f"SCORE: {float(end.wait(60))}")
    outcome = grade(build(server, maxRetries=0, timeoutSeconds=0.1))
    end.set()
    assert isinstance(outcome, Failure)
    assert (outcome.reason, "did not answer within 0.1 s" in outcome.message) == ("timed_out", True)


def test_the_api_key_is_sent_and_never_shown(
    server: Server, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("RLT_REWARD_0_API_KEY", f"{KEY}\n")
    server.answer = lambda body: (401, {}, f"the key {KEY} is not valid")
    with build(server, apiKey={"name": "judge", "key": "token"}) as scorer:
        with pytest.raises(TrainingError) as failed:
            score_batch(scorer, ["7"], [PROMPT])
        with pytest.raises(ValueError, match=r"rewards\[0\].judge: .* status 401: the key \*\*\*") as rejected:
            scorer.validate_judges(PROMPT)
    assert {key for _, key, _ in server.requests} == {f"Bearer {KEY}"}
    assert KEY not in f"{failed.value}{rejected.value}{caplog.text}"
    assert "Check baseUrl, model, apiKey and options." in str(rejected.value)


def test_a_key_with_a_line_break_is_rejected(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RLT_REWARD_0_API_KEY", f"{KEY}\nX-Other: 1")
    with pytest.raises(
        ValueError, match=r"judge.apiKey: the key contains characters not allowed in an HTTP header"
    ) as error:
        build(server, apiKey={"name": "judge", "key": "token"})
    assert KEY not in str(error.value)


def test_a_missing_key_is_rejected(server: Server) -> None:
    with pytest.raises(ValueError, match=r"rewards\[0\].judge.apiKey: the variable RLT_REWARD_0_API_KEY has no value"):
        build(server, apiKey={"name": "judge", "key": "token"})


def test_an_unreachable_judge_is_rejected_before_the_training(server: Server) -> None:
    with build(server, baseUrl="http://127.0.0.1:1/v1", maxRetries=1) as scorer:
        message = r"rewards\[0\].judge: http://127.0.0.1:1/v1/chat/completions: ClientConnectorError: .* Check baseUrl"
        with pytest.raises(ValueError, match=message):
            scorer.validate_judges(PROMPT)


def test_a_judge_that_grades_the_solution_is_accepted(server: Server) -> None:
    with build(server) as scorer:
        scorer.validate_judges(PROMPT)
    assert len(server.requests) == 1


@pytest.mark.parametrize(
    ("value", "seconds"), [(None, None), ("2.5", 2.5), ("-1", 0.0), ("Wed, 21 Oct 2026 07:28:00 GMT", None)]
)
def test_retry_after_is_a_number_of_seconds(value: str | None, seconds: float | None) -> None:
    assert parse_retry_after(value) == seconds
