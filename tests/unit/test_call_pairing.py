"""Would a provider accept the transcript? If not: which call, and why."""

from random import Random
from typing import TypeAlias

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.messages import AnyMessage, Message, Text, ToolCall, ToolResult, foreign
from holdfast.records import Problem, find_problems

Found: TypeAlias = list[tuple[str, str, int]]


def user(text: str = "go on") -> Message:
    return Message(role="user", blocks=(Text(text),))


def calls(*ids: str, text: str = "") -> Message:
    wishes = tuple(ToolCall(id=id, name=f"tool_{id}") for id in ids)
    return Message(role="assistant", blocks=(*((Text(text),) if text else ()), *wishes))


def results(*ids: str) -> Message:
    return Message(role="tool", blocks=tuple(ToolResult(call_id=id, content="ok") for id in ids))


def found_in(*messages: AnyMessage) -> Found:
    return [(one.kind, one.call_id, one.message) for one in find_problems(messages)]


@pytest.mark.parametrize(
    "messages",
    [
        [],
        [user()],
        [user(), calls("a"), results("a")],
        [user(), calls("a"), results("a"), user(), calls("b"), results("b"), user()],
        [user(), calls("call_0"), results("call_0"), calls("call_0"), results("call_0")],
        [user(), calls("call_0", "call_1"), results("call_0", "call_1"), calls("call_0"), results("call_0")],
        [user(), calls("a", "b", "c"), results("c", "a", "b")],
        [user(), calls("a", "b", "c"), results("c"), results("a"), results("b")],
        [user(), calls("a", "a"), results("a", "a")],
        [user(), calls("a"), results("a"), user("that was no JSON: try again"), calls("b"), results("b")],
        [user(), Message(role="assistant", blocks=(Text("{"),)), user("that was no JSON: try again")],
        [Message(role="assistant", blocks=(ToolCall(id="a", name="f"), ToolResult(call_id="a")))],
    ],
    ids=[
        "nothing",
        "no calls",
        "one call",
        "two turns",
        "ids used again",
        "ids used again after parallel calls",
        "results in another order",
        "results in messages of their own",
        "equal ids in one reply",
        "a retry request after a call",
        "a retry request without a call",
        "a provider that runs tools itself",
    ],
)
def test_what_a_provider_accepts_has_no_problems(messages: list[Message]) -> None:
    """Every call has one result, after it and before the conversation goes on."""
    assert found_in(*messages) == []


@pytest.mark.parametrize(
    ("messages", "problems"),
    [
        ([user(), calls("a")], [("missing", "a", 1)]),
        ([user(), calls("a", "b"), results("b")], [("missing", "a", 1)]),
        ([user(), calls("a"), user()], [("missing", "a", 1)]),
        ([user(), calls("a"), calls("b"), results("b")], [("missing", "a", 1)]),
        ([calls("call_0"), calls("call_0"), results("call_0")], [("missing", "call_0", 0)]),
        ([user(), results("a")], [("orphan", "a", 1)]),
        ([calls("a"), results("a", "b")], [("orphan", "b", 1)]),
        ([calls("a"), results("a"), results("a")], [("duplicate", "a", 2)]),
        ([calls("a"), results("a", "a")], [("duplicate", "a", 1)]),
        ([calls("a"), results("a"), user(), results("a")], [("duplicate", "a", 3)]),
        ([calls("call_0"), results("call_0"), calls("call_0")], [("missing", "call_0", 2)]),
        (
            [calls("call_0"), results("call_0"), calls("call_0"), results("call_0", "call_0")],
            [("duplicate", "call_0", 3)],
        ),
        ([results("a"), calls("a")], [("out_of_order", "a", 0)]),
        ([calls("a"), user("wait"), results("a")], [("out_of_order", "a", 2)]),
        ([calls("a"), calls("b"), results("b", "a")], [("out_of_order", "a", 2)]),
        (
            [calls("a"), user(), results("x"), calls("b"), results("b", "b"), calls("c")],
            [("missing", "a", 0), ("orphan", "x", 2), ("duplicate", "b", 4), ("missing", "c", 5)],
        ),
    ],
    ids=[
        "the last call has none",
        "one of two has none",
        "the user spoke on",
        "the model spoke on",
        "the same id in the next reply is not its result",
        "a result without any call",
        "a result too many",
        "a second result later",
        "a second result at once",
        "a second result after the conversation went on",
        "an earlier result does not count for a later call",
        "a second result for an id used again",
        "the result comes first",
        "the user spoke in between",
        "the model spoke in between",
        "several at once",
    ],
)
def test_what_a_provider_refuses_is_named(messages: list[Message], problems: Found) -> None:
    """Each problem says its kind, the call, and the message where it shows."""
    assert found_in(*messages) == problems


@pytest.mark.parametrize(
    ("messages", "words"),
    [
        ([calls("a")], "call 'a' of tool_a has no result (message 0)"),
        ([results("a")], "call 'a' was never made, but has a result (message 0)"),
        ([calls("a"), results("a", "a")], "call 'a' has a second result (message 1)"),
        (
            [calls("a"), user(), results("a")],
            "call 'a' of tool_a has its result in the wrong place (message 2)",
        ),
    ],
)
def test_a_problem_explains_itself(messages: list[Message], words: str) -> None:
    """A person reads which call it is and what is wrong with it."""
    (problem,) = find_problems(messages)
    assert isinstance(problem, Problem)
    assert str(problem) == words


def test_histories_from_outside_are_checked_like_our_own() -> None:
    """Foreign formats are read for their calls and results."""
    openai = [
        foreign({"role": "assistant", "tool_calls": [{"id": "a", "function": {"name": "f"}}]}, "openai"),
        foreign({"role": "tool", "tool_call_id": "b", "content": ""}, "openai"),
    ]
    assert sorted(found_in(*openai)) == [("missing", "a", 0), ("orphan", "b", 1)]
    anthropic = [
        foreign(
            {"role": "assistant", "content": [{"type": "tool_use", "id": "a", "name": "f"}]}, "anthropic"
        ),
        foreign({"role": "user", "content": [{"type": "tool_result", "tool_use_id": "a"}]}, "anthropic"),
    ]
    assert found_in(*anthropic) == []


turns = st.lists(
    st.lists(st.sampled_from(["call_0", "call_1", "call_2"]), max_size=4), min_size=1, max_size=6
)


@given(turns, st.randoms(use_true_random=False), st.data())
def test_any_conversation_is_valid_until_one_thing_is_wrong(
    replies: list[list[str]], random: Random, data: st.DataObject
) -> None:
    """Whatever ids the provider uses again: answered in full it is fine; with one answer less it is not."""
    messages: list[Message] = [user()]
    for ids in replies:
        messages.append(calls(*ids, text="so"))
        if ids:
            answers = list(ids)
            random.shuffle(answers)
            messages.append(results(*answers))
    assert found_in(*messages) == []
    answered = [place for place, message in enumerate(messages) if message.role == "tool"]
    if answered:
        place = data.draw(st.sampled_from(answered))
        blocks = messages[place].blocks
        kinds = {kind for kind, _, _ in found_in(*messages[:place], *messages[place + 1 :])}
        assert kinds == {"missing"}
        twice = Message(role="tool", blocks=(*blocks, blocks[0]))
        assert {kind for kind, _, _ in found_in(*messages[:place], twice)} == {"duplicate"}
