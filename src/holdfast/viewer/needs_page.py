"""What waits for a person in the whole store, and the forms that answer it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import BaseRoute, Route

from ..cli.advice import answer_commands, continue_call
from ..cli.answers import parse_result
from ..cli.entry_text import list_notes
from ..cli.json_views import shape_waiting
from ..core.entries import Verdict
from ..core.head import Head
from ..drawing.markup import Child, Html, el, join
from ..drawing.status import draw_status
from ..errors import BadInput, NotFound
from ..formatting import count, cut_text, shorten
from ..limits import VIEWER_NEEDS
from ..messages import Json
from ..store.approvals import Waiting
from .addresses import link_to, session_link
from .answers import Need, Needs, PersonsAnswer, check_corrected, find_answers, find_need
from .context import Viewer, viewer_of
from .layout import (
    command,
    draw_badge,
    facts,
    form,
    fragment,
    hidden_fields,
    json_text,
    live,
    message_page,
    moment,
    page,
    pager,
    read_page_number,
    scrolling,
)
from .security import read_form

_NOTE_CHARS: Final = 400
_VERDICTS: Final[tuple[tuple[Verdict, str, str], ...]] = (
    ("landed", "It landed", "It happened. What it gave is its result, for the model."),
    ("not_landed", "It did not land", "It did not happen, and may be run again."),
    ("gave_up", "Give up", "It cannot be found out. It is never run again, and the model is told so."),
)
_STATES: Final = {
    "posted": "on its way: it is in the inbox of the session, whose holder takes it in",
    "taken": "recorded: it decided",
    "late": "late: it changed nothing, and is recorded",
}


# -- the list ---------------------------------------------------------------------------------------------


async def _needs(request: Request) -> Response:
    found = await _read(request)
    part = live(link_to(request, "/needs/list", page=read_page_number(request) or None), found, id="needs")
    return page(request, "Needs you", el("h1", "Needs you"), part, here="needs")


async def _needs_list(request: Request) -> Response:
    return fragment(request, await _read(request))


async def _needs_count(request: Request) -> Response:
    return fragment(request, draw_badge(await viewer_of(request).listing.get()))


async def _read(request: Request) -> Html:
    viewer, number = viewer_of(request), read_page_number(request)
    needs = await viewer.needs.read(await viewer.listing.get(), number)
    return await _draw_list(request, viewer, needs, number)


async def _draw_list(request: Request, viewer: Viewer, needs: Needs, number: int) -> Html:
    shapes = [shape_waiting(need.waiting) for need in needs.shown]
    who = await viewer.find_visitor(request)
    drawn: list[Child] = []
    if not needs.shown:
        drawn.append(el("p", "Nothing waits for you.", class_="empty"))
    else:
        about = f"{count(len(needs.shown), 'call')} shown, the oldest first."
        answering = (
            "" if viewer.read_only else f" You answer as {who}." if who else " You are not known here."
        )
        drawn.append(el("p", about + answering, class_="note"))
    drawn += [_draw_need(request, viewer, need, shapes) for need in needs.shown]
    drawn += [el("p", f"{session} is damaged: {why}", class_="bad") for session, why in needs.damaged]
    drawn.append(pager(request, "/needs", number, -(-needs.sessions // VIEWER_NEEDS)))
    return join(*drawn)


async def draw_needs_of(request: Request, head: Head, *, held: bool) -> list[Html]:
    """What waits in one session, with the forms that answer it."""
    viewer = viewer_of(request)
    needs = await viewer.needs.read_session(head, held=held)
    shapes = [shape_waiting(need.waiting) for need in needs]
    return [_draw_need(request, viewer, need, shapes) for need in needs]


def _draw_need(
    request: Request,
    viewer: Viewer,
    need: Need,
    shapes: Sequence[Mapping[str, Any]],
    *,
    entered: Mapping[str, str] | None = None,
    wrong: str = "",
) -> Html:
    one, row = need.waiting, need.waiting.effect
    doubt = one.kind == "in_doubt"
    shape = shape_waiting(one)
    place = f"need-{one.session}-{one.entry}"
    own = link_to(request, "/needs/call", session=one.session, entry=one.entry)
    where: Child = one.session
    called = el("code", one.tool)
    if need.head is not None:
        where = el("a", one.session, href=session_link(request, one.session))
        called = el("a", called, href=own, data_row="", id=f"{place}-link")
    said = [
        (
            "session",
            join(where, el("span", f"  {shorten(need.head.title, 80)}", class_="dim") if need.head else None),
        ),
        ("since", moment(one.since)),
        ("why", shape["why"] if row is None else row.why or shape["why"]),
        ("its verify hook said", row.unsure if row is not None else ""),
        ("key", el("code", row.key) if row is not None and row.key not in shape["why"] else ""),
        ("attempt", str(row.attempt) if row is not None and row.attempt > 1 else ""),
        ("side effects", ", ".join(row.side_effects) if row is not None else ""),
        ("call", el("code", one.call)),
        ("entry", f"{one.entry:,}"),
    ]
    notes = list_notes(one.notes)
    parts: list[Child] = [
        el(
            "h2",
            draw_status("in_doubt" if doubt else "waiting", "in doubt" if doubt else "to approve"),
            " ",
            called,
        ),
        facts(said),
        el("pre", _args_text(one)),
    ]
    if notes:
        parts.append(el("h3", "What it noted, and the requests it made"))
        parts.append(el("ul", *(el("li", shorten(note, _NOTE_CHARS)) for note in notes), class_="notes"))
    parts += [_draw_answer(answer) for answer in need.answers]
    if wrong:
        parts.append(el("p", wrong, class_="said wrong", role="alert"))
    if not viewer.read_only:
        parts.append(_draw_forms(request, one, place, entered or {}))
    commands = answer_commands(shape, shapes, viewer.common.explicit_options).values()
    parts.append(
        el(
            "details",
            el("summary", "The same on the command line"),
            *(command(each) for each in commands),
            id=f"{place}-commands",
        )
    )
    return el("article", *parts, class_="box need", id=place)


def _args_text(one: Waiting) -> str:
    if one.args is None:
        return "(the arguments went with the session)" if one.operation is not None else "(no arguments)"
    return cut_text(json_text(one.args))


# -- forms ------------------------------------------------------------------------------------------------


def _draw_forms(request: Request, one: Waiting, place: str, entered: Mapping[str, str]) -> Html:
    named: dict[str, str | int] = {"session": one.session, "entry": one.entry}
    if one.operation is not None:
        named["operation"] = one.operation
    if one.kind == "approval":
        return join(
            _draw_approve_form(request, one, place, named, entered),
            _draw_refuse_form(request, place, named, entered),
        )
    return _draw_verdict_form(request, one, place, named, entered)


def _draw_approve_form(
    request: Request, one: Waiting, place: str, named: Mapping[str, str | int], entered: Mapping[str, str]
) -> Html:
    args = json_text(one.args)
    given = entered.get("args", args)
    hints = _describe_schema(one.schema)
    correct = el(
        "details",
        el("summary", "Correct the arguments first"),
        el("label", "Arguments, as a JSON object", for_=f"{place}-args"),
        el(
            "textarea",
            given,
            name="args",
            id=f"{place}-args",
            rows=min(20, given.count("\n") + 2),
            spellcheck="false",
            class_="mono",
        ),
        el("ul", *hints, class_="dim") if hints else None,
        id=f"{place}-correct",
        open="" if given != args else None,
    )
    return form(
        request,
        "/needs/answer",
        hidden_fields({**named, "answer": "approve"}),
        correct,
        _text_field(place, "note", "Note, for the record", entered),
        el("button", "Approve", type="submit", class_="good"),
        class_="answer",
    )


def _draw_refuse_form(
    request: Request, place: str, named: Mapping[str, str | int], entered: Mapping[str, str]
) -> Html:
    return form(
        request,
        "/needs/answer",
        hidden_fields({**named, "answer": "refuse"}),
        _text_field(place, "reason", "Reason, which the model is told", entered),
        el("button", "Refuse", type="submit", class_="bad"),
        class_="answer",
    )


def _draw_verdict_form(
    request: Request, one: Waiting, place: str, named: Mapping[str, str | int], entered: Mapping[str, str]
) -> Html:
    choices = [
        el(
            "label",
            el(
                "input",
                type="radio",
                name="answer",
                value=verdict,
                required="",
                checked="" if entered.get("answer") == verdict else None,
            ),
            el("span", el("strong", title), " ", el("span", about, class_="dim")),
            class_="choice",
        )
        for verdict, title, about in _VERDICTS
        if one.operation is None or verdict != "gave_up"  # An operation stays blocked until it is known.
    ]
    result = entered.get("result", "")
    return form(
        request,
        "/needs/answer",
        hidden_fields(named),
        el("fieldset", el("legend", "Look at the service. What became of the call?"), *choices),
        el("label", "Result, if it landed: JSON, or plain text", for_=f"{place}-result"),
        el(
            "textarea",
            result,
            name="result",
            id=f"{place}-result",
            rows="2",
            spellcheck="false",
            class_="mono",
        ),
        _text_field(place, "note", "How you know", entered),
        el("button", "Record", type="submit"),
        class_="answer",
    )


def _text_field(place: str, name: str, about: str, entered: Mapping[str, str]) -> Html:
    field = f"{place}-{name}"
    return join(
        el("label", about, for_=field),
        el("input", type="text", name=name, id=field, value=entered.get(name, ""), autocomplete="off"),
    )


def _describe_schema(schema: Json) -> list[Html]:
    """What the recorded schema says about each argument, a line each."""
    properties = schema.get("properties") if isinstance(schema, dict) else None
    if not isinstance(schema, dict) or not isinstance(properties, dict):
        return []
    required = schema.get("required")
    needed = set(required) if isinstance(required, list) else set()
    lines: list[Html] = []
    for name, about in properties.items():
        known = about if isinstance(about, dict) else {}
        words = [str(known[key]) for key in ("type", "description") if isinstance(known.get(key), str)]
        words += ["needed"] if name in needed else []
        lines.append(el("li", el("code", name), shorten(f": {', '.join(words)}", 300) if words else ""))
    return lines


# -- answering --------------------------------------------------------------------------------------------


async def _answer(request: Request) -> Response:
    viewer, given = viewer_of(request), read_form(request)
    who = await viewer.find_visitor(request)
    if who is None:
        return message_page(
            request,
            "Not possible",
            "It is not known who you are, and an answer is recorded with a name.",
            403,
        )
    operation = given.get("operation", "")
    if operation:
        return await _answer_operation(request, viewer, given, operation, who)
    session, entry = given.get("session", ""), _read_number(given.get("entry", ""))
    waiting = await find_need(viewer.store, session, entry)
    if waiting is not None:
        try:
            await _record(viewer, waiting, given, who)
        except NotFound:
            pass  # Another person answered in this moment: the page of the call says who.
        except BadInput as wrong:
            return await _draw_again(request, viewer, waiting, given, str(wrong))
        viewer.listing.forget()
    return RedirectResponse(link_to(request, "/needs/call", session=session, entry=entry), 303)


def _read_number(said: str) -> int:
    if not (said.isascii() and said.isdecimal() and len(said) < 16):
        raise HTTPException(400, "The number of the entry is wrong.")
    return int(said)


async def _record(viewer: Viewer, waiting: Waiting, given: Mapping[str, str], who: str) -> None:
    """Give the answer to the store; `BadInput` says what is wrong with it."""
    store, session, entry = viewer.store, waiting.session, waiting.entry
    answer, note = given.get("answer", ""), given.get("note", "")
    if waiting.kind == "approval" and answer == "approve":
        args = _read_corrected(waiting, given.get("args"))
        await store.approve(session, entry, by=who, args=args, note=note)
    elif waiting.kind == "approval" and answer == "refuse":
        await store.refuse(session, entry, by=who, reason=given.get("reason", ""))
    elif waiting.kind == "in_doubt" and (verdict := _find_verdict(answer)) is not None:
        result = _read_result(given.get("result", ""))
        await store.resolve(session, entry, verdict, by=who, note=note, result=result)
    else:
        raise BadInput("choose one of the answers")


def _find_verdict(said: str) -> Verdict | None:
    return next((verdict for verdict, _, _ in _VERDICTS if verdict == said), None)


def _read_corrected(waiting: Waiting, said: str | None) -> Json:
    """Arguments that differ from those of the call; None if they are the same."""
    if said is None or said.strip() == json_text(waiting.args).strip():
        return None
    try:
        args: Json = msgspec.json.decode(said)
    except (msgspec.DecodeError, RecursionError) as error:
        raise BadInput(f"the arguments are not JSON: {error}") from error
    if args == waiting.args:
        return None
    check_corrected(waiting, args)
    return args


def _read_result(said: str) -> Json:
    return parse_result(said) if said.strip() else None


async def _answer_operation(
    request: Request, viewer: Viewer, given: Mapping[str, str], operation: str, who: str
) -> Response:
    """Answer for a call of a deleted session."""
    verdict = _find_verdict(given.get("answer", ""))
    if verdict is None or verdict == "gave_up":
        raise BadInput("choose one of the answers")
    settled = await viewer.store.resolve_operation(
        operation,
        verdict,
        by=who,
        note=given.get("note", ""),
        result=_read_result(given.get("result", "")),
    )
    viewer.listing.forget()
    late = "Another person answered first: this changed nothing."
    said = "Your answer is recorded with the operation." if settled == "settled" else late
    return message_page(request, "Answered", said, 200)


async def _draw_again(
    request: Request, viewer: Viewer, waiting: Waiting, given: Mapping[str, str], wrong: str
) -> Response:
    """The form as it was sent, with what is wrong in it."""
    head = await viewer.store.head(waiting.session)
    need = Need(waiting=waiting, head=head, held=await viewer.store.is_held(head), answers=())
    drawn = _draw_need(request, viewer, need, [shape_waiting(waiting)], entered=given, wrong=wrong)
    title = el("h1", "Your answer was not taken")
    return page(request, "Your answer was not taken", title, drawn, here="needs", status=422)


# -- one call ---------------------------------------------------------------------------------------------


async def _call(request: Request) -> Response:
    session, entry = _named_call(request)
    part = live(
        link_to(request, "/needs/call-part", session=session, entry=entry),
        await _draw_call(request),
        id="call",
    )
    return page(request, "A call", el("h1", "A call of ", session), part, here="needs")


async def _call_part(request: Request) -> Response:
    return fragment(request, await _draw_call(request))


def _named_call(request: Request) -> tuple[str, int]:
    given = request.query_params
    return given.get("session", ""), _read_number(given.get("entry", ""))


async def _draw_call(request: Request) -> Html:
    """A call while it waits, and what was answered, by whom, and who was first."""
    viewer, (session, entry) = viewer_of(request), _named_call(request)
    store = viewer.store
    head = await store.head(session)
    held = await store.is_held(head)
    waiting, answers = await find_need(store, session, entry), await find_answers(store, session, entry)
    if waiting is not None:
        need = Need(waiting=waiting, head=head, held=held, answers=answers)
        return _draw_need(request, viewer, need, [shape_waiting(waiting)])
    drawn: list[Child] = [el("p", el("a", session, href=session_link(request, session)))]
    if not answers:
        drawn.append(el("p", f"Nothing at entry {entry:,} of this session waits for a person."))
        return join(*drawn)
    first = answers[0]
    at = (" ", moment(first.at)) if first.at is not None else ()
    drawn.append(el("p", el("strong", first.by), f" answered first: {first.said}", *at, class_="first"))
    drawn.append(_draw_answers(answers))
    if not held:
        runs = [run async for run in store.runs(session=session)]
        then = continue_call(head, runs, viewer.common, options=viewer.common.explicit_options)
        drawn += [el("p", "To go on, unless a worker does:", class_="note"), command(then)]
    return join(*drawn)


def _draw_answers(answers: Sequence[PersonsAnswer]) -> Html:
    rows = [
        el(
            "tr",
            el("td", answer.by),
            el("td", answer.said),
            el("td", moment(answer.at) if answer.at is not None else ""),
            el("td", _STATES[answer.state]),
            el("td", shorten(answer.note, _NOTE_CHARS)),
        )
        for answer in answers
    ]
    names = ("who", "answer", "when", "what became of it", "note")
    head = el("thead", el("tr", *(el("th", name, scope="col") for name in names)))
    return scrolling(el("table", head, el("tbody", *rows)), "Answers")


def _draw_answer(answer: PersonsAnswer) -> Html:
    said = f" answered: {answer.said}; {_STATES[answer.state]}."
    return el("p", el("strong", answer.by), said, class_="answered")


ROUTES: Final[tuple[BaseRoute, ...]] = (
    Route("/needs", _needs),
    Route("/needs/list", _needs_list),
    Route("/needs/count", _needs_count),
    Route("/needs/call", _call),
    Route("/needs/call-part", _call_part),
    Route("/needs/answer", _answer, methods=["POST"]),
)
