"""Failures of providers: whether a retry helps, and whether they are charged."""

import socket
from email.utils import formatdate

import pytest
from pydantic_ai.exceptions import ContentFilterError, ModelHTTPError, UnexpectedModelBehavior, UserError
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart
from pydantic_ai.models.fallback import FallbackModel
from pydantic_ai.models.function import AgentInfo, FunctionModel

import holdfast
from holdfast.errors import ModelError
from tests.agent.hosted_models import ANTHROPIC, EVERY, LOCAL, RESPONSES, ask, opened, wire
from tests.agent.provider_formats import Answer
from tests.agent.provider_server import Cut, FailedStream, Failure, Turn, Wire

__all__ = ["wire"]


@pytest.fixture
def anyio_backend() -> str:
    """Streams that end early leave generators to the event loop, of which trio complains loudly."""
    return "asyncio"


async def failure(name: str, wire: Wire, turn: Turn, *, stream: bool = False) -> ModelError:
    """What comes of it; asked exactly once."""
    wire.say(turn)
    with pytest.raises(ModelError) as caught:
        await ask(opened(name, wire), stream=stream, max_tokens=1000)
    assert len(wire.asked) == 1
    assert caught.value.__cause__ is not None or "broke off" in str(caught.value)
    return caught.value


@pytest.mark.parametrize("name", EVERY)
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("status", [408, 409, 429, 500, 502, 503, 529])
async def test_a_passing_failure_is_worth_another_try(
    name: str, stream: bool, status: int, wire: Wire
) -> None:
    """And costs nothing: the provider did nothing for it."""
    error = await failure(name, wire, Failure(status, "come back later"), stream=stream)
    assert (error.retryable, error.charged, error.status) == (True, False, status)
    assert "come back later" in str(error)


@pytest.mark.parametrize("name", EVERY)
@pytest.mark.parametrize("status", [400, 401, 403, 404, 413, 422])
async def test_a_request_that_is_wrong_stays_wrong(name: str, status: int, wire: Wire) -> None:
    """Asking again would only be refused again."""
    error = await failure(name, wire, Failure(status, kind="invalid_request_error"))
    assert (error.retryable, error.charged, error.status) == (False, False, status)


@pytest.mark.parametrize(("name", "refusal"), [
    (ANTHROPIC, Failure(400, "prompt is too long: 300000 tokens", "invalid_request_error")),
    (RESPONSES, Failure(400, "too many tokens", "context_length_exceeded")),
    (LOCAL, Failure(400, "the maximum context length is 8192 tokens", "BadRequestError")),
    (RESPONSES, Failure(429, "you have no credit left", "insufficient_quota")),
    (ANTHROPIC, Failure(400, "Your credit balance is too low", "invalid_request_error")),
])  # fmt: skip
async def test_too_long_a_context_and_an_empty_account_are_final(
    name: str, refusal: Failure, wire: Wire
) -> None:
    """Whatever status they come with."""
    assert not (await failure(name, wire, refusal)).retryable


@pytest.mark.parametrize("name", EVERY)
@pytest.mark.parametrize(("header", "value", "seconds"), [
    ("Retry-After", "7", 7.0), ("retry-after-ms", "1500", 1.5), ("Retry-After", "soon", None),
])  # fmt: skip
async def test_the_provider_says_when_to_come_back(
    name: str, header: str, value: str, seconds: float | None, wire: Wire
) -> None:
    """In seconds, or in milliseconds as some do; nonsense is no answer."""
    error = await failure(name, wire, Failure(429, headers={header: value}))
    assert error.retry_after_s == seconds


async def test_a_date_to_come_back_at_becomes_seconds(wire: Wire) -> None:
    """The header may name a time of day; one that is past means now."""
    error = await failure(RESPONSES, wire, Failure(503, headers={"Retry-After": formatdate(0, usegmt=True)}))
    assert error.retry_after_s == 0


@pytest.mark.parametrize(("said", "retryable"), [("true", True), ("false", False)])
async def test_the_provider_knows_best_whether_to_try_again(said: str, retryable: bool, wire: Wire) -> None:
    """Its own word counts for more than the status."""
    error = await failure(ANTHROPIC, wire, Failure(500, headers={"x-should-retry": said}))
    assert error.retryable is retryable


@pytest.mark.parametrize("name", EVERY)
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("where", ["before", "middle"])
async def test_a_cut_connection_may_have_cost_something(
    name: str, stream: bool, where: str, wire: Wire
) -> None:
    """The provider had the request and may have worked for it, so the reservation stays spent."""
    cut = Cut("before") if where == "before" else Cut("middle")
    error = await failure(name, wire, cut, stream=stream)
    assert (error.retryable, error.charged) == (True, True)


@pytest.mark.parametrize("name", EVERY)
async def test_half_a_stream_is_no_reply_even_if_it_ends_politely(name: str, wire: Wire) -> None:
    """A proxy that loses its server ends the stream as if all were well."""
    error = await failure(name, wire, Cut("politely"), stream=True)
    assert (error.retryable, error.charged) == (True, True)


@pytest.mark.parametrize("name", EVERY)
async def test_an_error_in_the_middle_of_a_stream_is_one(name: str, wire: Wire) -> None:
    """It comes after the status that said all is well."""
    error = await failure(name, wire, FailedStream(), stream=True)
    assert (error.retryable, error.charged) == (True, True)
    assert "Overloaded" in str(error)


async def test_a_server_that_is_not_there_costs_nothing() -> None:
    """The request never left; it may come up again."""
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))  # Bound but not listening: refused.
        model = holdfast.agents.open_model(
            "llama3", base_url=f"http://127.0.0.1:{unused.getsockname()[1]}/v1"
        )
        with pytest.raises(ModelError) as caught:
            await ask(model)
    assert (caught.value.retryable, caught.value.charged) == (True, False)


@pytest.mark.parametrize("name", EVERY)
async def test_the_clients_of_providers_try_once(name: str, wire: Wire) -> None:
    """Also where the settings ask for retries: the loop retries, and records each attempt."""
    wire.say(Failure(500))
    with pytest.raises(ModelError):
        await ask(opened(name, wire, max_retries=3))
    assert len(wire.asked) == 1


@pytest.mark.parametrize(("raised", "retryable", "charged"), [
    (UnexpectedModelBehavior("not a reply"), True, True),
    (ContentFilterError("not this"), False, True),
    (UserError("no such setting"), False, False),
    (ConnectionResetError(), True, True),
])  # fmt: skip
async def test_what_else_goes_wrong_is_judged_as_well(
    raised: Exception, retryable: bool, charged: bool
) -> None:
    """Whatever a model of pydantic-ai raises, the loop gets one kind of error."""

    def fail(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        raise raised

    with pytest.raises(ModelError) as caught:
        await ask(holdfast.agents.open_model(FunctionModel(fail)))
    assert (caught.value.retryable, caught.value.charged) == (retryable, charged)
    assert caught.value.__cause__ is raised


async def test_models_that_stand_in_for_each_other_fail_together() -> None:
    """Trying again helps if it may help with one of them, and as soon as one of them is ready."""

    def limited(seconds: str) -> FunctionModel:
        def fail(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
            raise ModelHTTPError(429, "m", headers={"Retry-After": seconds})

        return FunctionModel(fail)

    def refuse(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        raise ModelHTTPError(400, "m")

    with pytest.raises(ModelError) as caught:
        await ask(
            holdfast.agents.open_model(FallbackModel(limited("9"), FunctionModel(refuse), limited("4")))
        )
    assert (caught.value.retryable, caught.value.retry_after_s) == (True, 4)


async def test_an_empty_reply_is_a_reply(wire: Wire) -> None:
    """There is nothing in it, but it came to its end."""
    wire.say(Answer())
    assert (await ask(opened(ANTHROPIC, wire))).message.blocks == ()


async def test_a_bug_of_ours_is_not_taken_for_a_failure_of_the_model() -> None:
    """Only what providers and networks do is translated."""

    def stumble(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        return ModelResponse(parts=[TextPart(str(1 / 0))])

    with pytest.raises(ZeroDivisionError):
        await ask(holdfast.agents.open_model(FunctionModel(stumble)))
