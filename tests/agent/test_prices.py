"""What requests cost, and how large they are thought to be before anybody counted."""

from collections.abc import Sequence

import pytest

import holdfast
from holdfast.agents import Price, Prompt, ToolSpec
from holdfast.agents.prices import estimate_input_tokens, find_cost_usd, find_reserve_usd
from holdfast.messages import Media, Message, Reasoning, Text, ToolCall, ToolResult, foreign
from holdfast.records import Usage

PRICE = Price(
    input_usd_per_mtok=3, output_usd_per_mtok=15, cache_read_usd_per_mtok=0.3, cache_write_usd_per_mtok=3.75
)
A_MILLION = 1_000_000


def test_cached_tokens_have_their_own_price() -> None:
    """They are among the input tokens, and counted once."""
    usage = Usage(
        input_tokens=A_MILLION,
        output_tokens=100_000,
        cache_read_tokens=500_000,
        cache_write_tokens=200_000,
    )
    assert PRICE.cost_usd(usage) == pytest.approx(0.3 * 3 + 0.5 * 0.3 + 0.2 * 3.75 + 0.1 * 15)


def test_without_a_price_of_its_own_the_cache_costs_what_input_costs() -> None:
    """Rather too much than too little."""
    usage = Usage(input_tokens=A_MILLION, cache_read_tokens=A_MILLION)
    assert Price(input_usd_per_mtok=3, output_usd_per_mtok=15).cost_usd(usage) == 3


@pytest.mark.parametrize("usd", [-1, float("nan"), float("inf")])
def test_a_price_is_a_finite_number(usd: float) -> None:
    """A budget could not be kept with another one."""
    with pytest.raises(holdfast.errors.BadInput, match="output_usd_per_mtok"):
        Price(input_usd_per_mtok=1, output_usd_per_mtok=usd)


def test_the_callers_price_counts_before_the_published_one() -> None:
    """Whoever has a contract of their own knows what they pay."""
    usage = Usage(input_tokens=A_MILLION)
    assert find_cost_usd("anthropic:claude-sonnet-5", usage, price=PRICE) == 3


@pytest.mark.parametrize(
    "model",
    ["anthropic:claude-sonnet-5", "openai:gpt-5", "openai-chat:gpt-5", "google:gemini-2.5-pro", "gpt-5"],
)
def test_published_prices_are_found_by_name(model: str) -> None:
    """Without the network, from what the package brings along."""
    usd = find_cost_usd(model, Usage(input_tokens=1000, output_tokens=1000))
    assert usd is not None
    assert 0.001 < usd < 1


@pytest.mark.parametrize(
    "model", ["nobody:nothing", "openai-compatible:llama3:8b", "openai:no-such-model", ""]
)
def test_a_price_that_nobody_published_is_not_known(model: str) -> None:
    """None, and not zero."""
    assert find_cost_usd(model, Usage(input_tokens=1)) is None
    assert find_reserve_usd(model, input_tokens=1, output_tokens=1) is None


@pytest.mark.parametrize("price", [None, PRICE])
def test_a_reservation_is_enough_whatever_the_cache_does(price: Price | None) -> None:
    """No reply of that size costs more than was reserved for it."""
    name = "anthropic:claude-sonnet-5"
    reserved = find_reserve_usd(name, input_tokens=10_000, output_tokens=500, price=price)
    assert reserved is not None
    for read, written in [(0, 0), (10_000, 0), (0, 10_000), (4000, 6000)]:
        usage = Usage(
            input_tokens=10_000, output_tokens=500, cache_read_tokens=read, cache_write_tokens=written
        )
        cost = find_cost_usd(name, usage, price=price)
        assert cost is not None
        assert cost <= reserved


def size(*blocks: holdfast.messages.Block, instructions: str = "", tools: Sequence[ToolSpec] = ()) -> int:
    messages = [Message(role="user", blocks=blocks)]
    return estimate_input_tokens(Prompt(messages=messages, instructions=instructions, tools=tools))


@pytest.mark.parametrize(
    "text",
    [
        "the quick brown fox " * 500,
        "0123456789abcdef" * 500,
        "你好世界" * 500,
        "🙂" * 500,
        "{}[]();" * 500,
    ],
)
def test_an_estimate_is_no_less_than_a_token_for_two_bytes(text: str) -> None:
    """Tokenizers need about four bytes of prose for a token, and hardly ever less than two of anything."""
    assert size(Text(text)) >= len(text.encode()) / 2


def test_everything_that_is_sent_counts() -> None:
    """Instructions, tools, arguments, results, reasoning and its signature, messages of other formats."""
    long = "x" * 2000
    bare = size(Text(""))
    tool = ToolSpec(name="t", description="", schema={"description": long})
    assert size(Text(""), instructions=long) >= bare + 1000
    assert size(Text(""), tools=[tool]) >= bare + 1000
    for block in (
        Reasoning("", {"signature": long}),
        ToolCall(id="c", name="t", args={"text": long}),
        ToolResult(call_id="c", content=long),
        ToolResult(call_id="c", content=(Text(long),)),
        Media(media_type="text/plain", data=long.encode()),
    ):
        assert size(block) >= 1000
    told = foreign({"role": "user", "content": long}, "openai")
    assert estimate_input_tokens(Prompt(messages=[told])) >= 1000


def test_an_image_counts_as_an_image_and_not_as_its_bytes() -> None:
    """Providers charge by its size on the screen, at most some thousands."""
    small = size(Media(media_type="image/png", data=b"x"))
    large = size(Media(media_type="image/png", data=b"x" * 5_000_000))
    linked = size(Media(media_type="image/png", url="http://127.0.0.1/x.png"))
    assert small == large == linked >= 4000
