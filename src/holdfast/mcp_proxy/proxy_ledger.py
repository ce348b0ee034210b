"""The record of the calls that go through the proxy.

A connection is a session, which begins with its first call. An operation is a call by the name of the server,
its tool and its arguments, and is claimed in the store like a global one: so an open call of another
connection is found whatever has become of that. What is not as for a global one: when the outcome was
delivered, the claim is given back, and the same call is a new one.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, Final, TypeAlias

import anyio
from msgspec import UNSET, Struct

from ..content.encode import Given
from ..core.effects import Effect, Question
from ..core.entries import CallRef
from ..core.fold import Facts
from ..drivers.contract import ClaimChange
from ..engine.journal import Journal
from ..errors import HoldfastError, LeaseHeld, NotFound
from ..ids import SessionId, fresh_session_id
from ..limits import LEASE_POLL_S, MCP_INBOX_POLL_S
from ..messages import Json
from ..session.effect_claims import (
    Claim,
    amend_own,
    change_claim,
    effect_key,
    find_claim,
    find_row,
    read_result,
)
from ..session.session import Session
from ..store.store import Store
from ..system.aio import run_to_end
from ..tools.canonical import canonical, digest
from ..tools.claims import Busy, Mine, OperationClaims, Theirs
from ..tools.declaration import AnyTool, Hook
from ..tools.dispatch import CallRequest
from ..tools.outcome import Result, as_text
from ..tools.registry import Registry
from ..tools.schema import BadArguments, fingerprint_of
from .answers import Place, as_result, describe_doubt, describe_gone, describe_waiting, error_result
from .proxied_call import ProxiedCall
from .tool_catalogue import ArgumentsAsMade, ProxyTool, RedactedArguments

log = logging.getLogger("holdfast")

ADAPTER: Final = "mcp-proxy"
SERVER_LABEL: Final = "mcp.server"


class ProxyAnswer(Struct, frozen=True):
    """What the client is told: the server's own answer, unless `result` is something else.

    `free` gives the operation back once this was delivered.
    """

    result: dict[str, Json] | None = None
    free: Callable[[], Awaitable[None]] | None = None


Deliver: TypeAlias = Callable[[ProxyAnswer], Awaitable[bool]]
"""Hands an answer to the client. False if the client has not got it."""
Elicit: TypeAlias = Callable[[ProxiedCall, str], Awaitable["bool | dict[str, Json] | None"]]
"""Asks the person at the client: what was said, a result that asks, or None if the client cannot."""
MakeBody: TypeAlias = Callable[[ProxiedCall, ProxyTool], Hook]
"""Makes the body of a call."""
_ASKED_CHARS: Final = 2_000


class _Given(Struct, frozen=True):
    """The operation has an outcome that was not delivered, or is done for good."""

    given: Given
    place: Place
    free: Callable[[], Awaitable[None]]


class _Doubtful(Struct, frozen=True):
    """What became of the operation is not known, or it waits for a person."""

    result: dict[str, Json]


class _Made(Struct, frozen=True):
    """The call was made just now, to settle an earlier one, and the server has answered."""


class ProxyLedger:
    """The calls of one connection to the server called `name`, on record in a store whose URL is `url`.

    `sign`: a digest of what the server is, such as its command.
    """

    def __init__(
        self, store: Store, *, url: str, name: str, sign: str, make_body: MakeBody, elicit: Elicit
    ) -> None:
        self._store, self._url, self._name, self._sign = store, url, name, sign
        self._make_body, self._elicit = make_body, elicit
        self._engine = store._engine
        self._registry = Registry(grace_s=0)
        self._session: Session | None = None
        self._opening = anyio.Lock()
        self._turns: dict[str, tuple[anyio.Lock, int]] = {}
        """The operations that calls of this connection work on, each with the number of those calls."""

    async def aclose(self) -> None:
        """End the session of the connection."""
        session, self._session = self._session, None
        if session is not None:
            await session.__aexit__(None, None, None)

    async def follow_inbox(self) -> None:
        """Take in what people answer about calls of this connection: others look at its journal."""
        while True:
            await anyio.sleep(MCP_INBOX_POLL_S)
            session = self._session
            if session is None or session.is_lost:
                continue
            try:
                if session._writer.channel.posted > session.state.facts.head.taken:
                    await session.take_in()
            except HoldfastError as error:
                log.warning("session %s: answers of people wait in its inbox: %s", session.id, error)

    async def _open(self) -> Session:
        """The session of the connection; another one if its lease was lost."""
        async with self._opening:
            if self._session is not None and self._session.is_lost:
                await self.aclose()
            if self._session is None:
                made = self._store.session(
                    fresh_session_id(f"mcp-{self._name}"),
                    labels={"adapter": ADAPTER, SERVER_LABEL: self._name},
                )
                await run_to_end(made.__aenter__)
                self._session = made
                if not await self._engine.call(self._note_sign):
                    log.warning(
                        "the ledger %r was used last for a server with another command or address. Servers "
                        "of one name share a ledger: if these are two servers, give one of them another "
                        "--name",
                        self._name,
                    )
            return self._session

    def _note_sign(self) -> bool:
        """Whether the server is the one that this ledger was used for last. Blocks."""
        key, sign = f"{ADAPTER}:{self._name}", self._sign
        known = self._engine.driver.find_claim(key)
        if known != sign:
            # If another proxy was quicker, it says so, too.
            self._engine.driver.claim(ClaimChange(key=key, expect=known, record=sign))
        return known in (None, sign)

    # -- a call ----------------------------------------------------------------------------------------

    async def serve(self, call: ProxiedCall, tool: ProxyTool, deliver: Deliver) -> None:
        """Take a call to its outcome, and deliver that."""
        session = await self._open()
        operation = self._find_operation(call, tool)
        if operation is None:
            result = await self._dispatch(session, call, tool, None)
            await deliver(self._answer(session, call, tool, result))
            return
        async with self._turn(operation):
            answer = await self._settle_or_make(session, call, tool, operation)
            if await deliver(answer) and answer.free is not None:
                with anyio.CancelScope(shield=True):
                    await answer.free()

    def _find_operation(self, call: ProxiedCall, tool: ProxyTool) -> str | None:
        """What the call does, for all connections; None if it is only ever itself."""
        try:
            arguments = tool.tool.arguments
            whole: Any = arguments.check(call.arguments)[1]
            if isinstance(arguments, RedactedArguments):
                whole = arguments.check_whole(call.arguments)
        except BadArguments:
            return None
        if tool.tool.changes_the_world and call.key is not None:
            return digest(ADAPTER, self._name, tool.name, "key", call.key)
        if not tool.tool.changes_the_world or tool.scope in ("call", "session"):
            return None
        return digest(ADAPTER, self._name, tool.name, "arguments", canonical(whole))

    @asynccontextmanager
    async def _turn(self, operation: str) -> AsyncIterator[None]:
        """Let the same calls of this connection follow one another, each up to its delivery."""
        lock, count = self._turns.get(operation, (anyio.Lock(), 0))
        self._turns[operation] = lock, count + 1
        try:
            async with lock:
                yield
        finally:
            lock, count = self._turns.pop(operation)
            if count > 1:
                self._turns[operation] = lock, count - 1

    async def _settle_or_make(
        self, session: Session, call: ProxiedCall, tool: ProxyTool, operation: str
    ) -> ProxyAnswer:
        found = await self._claim(session, call, tool, operation)
        if isinstance(found, _Doubtful):
            return ProxyAnswer(found.result)
        if isinstance(found, _Made):
            return ProxyAnswer()
        if isinstance(found, _Given):
            forever = tool.scope == "global" or call.key is not None
            free = None if forever else found.free
            if call.answer is not None:
                return ProxyAnswer(None, free)  # It was made again just now, to settle it.
            status = "replayed"
            return ProxyAnswer(as_result(found.given, tool, place=found.place, status=status), free)
        try:
            while True:
                result = await self._dispatch(session, call, tool, operation)
                if result.status != "waiting":
                    return self._answer(session, call, tool, result, operation)
                call.person_said = None  # It was not asked yet.
                place = Place(self._url, session.id, call.call_id)
                asked = await self._ask_person(session, call, tool, place)
                if asked is not None:
                    return ProxyAnswer(asked.result)
        finally:
            await run_to_end(lambda: self._give_back_unused(session, call, operation, found.generation))

    async def _dispatch(
        self, session: Session, call: ProxiedCall, tool: ProxyTool, operation: str | None
    ) -> Result:
        request = CallRequest(
            CallRef(id=call.call_id),
            tool.tool.name,
            call.arguments,
            tool=tool.tool.with_body(self._make_body(call, tool)),
            operation=operation,
        )
        return await self._registry.dispatch_call(request, session=session)

    def _answer(
        self,
        session: Session,
        call: ProxiedCall,
        tool: ProxyTool,
        result: Result,
        operation: str | None = None,
    ) -> ProxyAnswer:
        """What the client is told of a call that was dispatched here."""
        place = Place(self._url, session.id, call.call_id)
        row = None if operation is None else session.state.facts.effects.find_last(operation)
        if result.status == "completed":
            free = None
            if row is not None and tool.scope != "global" and call.key is None:
                free = self._make_free(session, row)
            if call.answer is not None and _is_success(call):
                return ProxyAnswer(None, free)
            given = Given(text=result.content, value=result.value, parts=result.parts, unkept=result.unkept)
            status = "verified" if result.replay_of is None else "replayed"
            return ProxyAnswer(as_result(given, tool, place=place, status=status), free)
        if call.answer is not None:
            return ProxyAnswer()
        if result.status == "in_doubt":
            tried = session.state.facts.effects.find_call(CallRef(id=call.call_id))
            if tried:
                text = describe_doubt(tool, tried[-1], place, is_new=True)
                return ProxyAnswer(error_result(text, place.as_meta("in_doubt")))
        return ProxyAnswer(error_result(result.content, place.as_meta(result.status)))

    # -- the operation ----------------------------------------------------------------------------------

    async def _claim(
        self, session: Session, call: ProxiedCall, tool: ProxyTool, operation: str
    ) -> Mine | _Given | _Doubtful | _Made:
        """Claim the operation for this connection, or find out what became of it.

        While another connection is at it, this waits.
        """
        claims = OperationClaims(session)
        head = session.state.facts.head
        if head.in_doubt or head.waiting:
            await session.take_in()  # Perhaps a person has answered.
        waited: Claim | None = None
        has_settled = False
        while True:
            claim, _ = await self._engine.call(find_claim, self._engine, effect_key(operation))
            if tool.tool.needs_approval and claim.session is not None and not claim.done:
                asked = await self._follow_question(session, call, tool, operation, claim)
                if isinstance(asked, _Doubtful):
                    return asked
                if asked:
                    continue
            taken = await claims.take(operation, call.call_id, 0)
            if isinstance(taken, Busy) and taken.passing:
                if claim.session not in (None, session.id):
                    if waited is None:
                        log.warning("%r waits for the same call of session %s", tool.name, claim.session)
                    waited = claim
                await anyio.sleep(LEASE_POLL_S)
                continue
            if isinstance(taken, Theirs):
                row = await self._find_row(taken.claim, operation)
                if (other := self._refuse_other(call, tool, row)) is not None:
                    return other
                return self._give_theirs(taken.claim, operation)
            if isinstance(taken, Busy):
                if claim.session is None:
                    continue  # It changed between the two looks.
                row = await self._find_row(claim, operation)
                if row is None:
                    return _Doubtful(error_result(describe_gone(tool, operation, taken.why, self._url)))
                if (other := self._refuse_other(call, tool, row)) is not None:
                    return other
                owner = claim.session
            else:
                if waited is not None and (given := await self._find_awaited(waited, operation)) is not None:
                    await self._free_own(session, operation, taken.generation)
                    return given
                if call.answer is not None:
                    await self._free_own(session, operation, taken.generation)
                    return _Made()
                row = session.state.facts.effects.find_last(operation)
                if row is None or row.generation < taken.generation or row.status not in _OPEN:
                    return taken
                if (other := self._refuse_other(call, tool, row)) is not None:
                    return other
                if row.status == "completed":
                    known = await self._engine.call(read_result, self._engine, session.id, row)
                    place = Place(self._url, session.id, row.call.id)
                    return _Given(known, place, self._make_free(session, row))
                owner = session.id
            if has_settled or not await self._settle(session, owner, call, tool, row):
                place = Place(self._url, owner, row.call.id)
                row = await self._find_row_in(session, owner, operation) or row
                text = describe_doubt(tool, row, place, is_new=False)
                return _Doubtful(error_result(text, place.as_meta("in_doubt")))
            has_settled = True

    # -- approvals ---------------------------------------------------------------------------------------

    async def _follow_question(
        self, session: Session, call: ProxiedCall, tool: ProxyTool, operation: str, claim: Claim
    ) -> _Doubtful | bool:
        """Go on with a call that waits for a person, or was answered since. True if something has changed.

        It goes on where it was asked about: in the session of this connection, or of one that is dead.
        """
        assert claim.session is not None
        is_mine = claim.is_of(session.state.facts.head)
        facts = session.state.facts if is_mine else await self._engine.call(self._read_facts, claim)
        if facts is None or find_row(facts.effects, claim, operation) is not None:
            return False
        question = facts.effects.find_question(CallRef(id=claim.call))
        if question is None:
            return False
        if (other := self._refuse_other(call, tool, question)) is not None:
            return other
        place = Place(self._url, claim.session, claim.call)
        lease = facts.head.lease
        if not is_mine and lease is not None and self._engine.heartbeat.judge(lease.holder).alive:
            return _Doubtful(describe_waiting(tool, place, is_elsewhere=True))
        if question.approved is None:
            return await self._ask_person(session, call, tool, place) or True
        if is_mine:
            call.call_id = claim.call
            return False
        if question.approved is False:
            await self._engine.call(self._free_theirs, claim, operation)
            text = question.answer or f"{tool.name}: a person refused it"
            return _Doubtful(error_result(text, place.as_meta("refused")))
        call.call_id = claim.call
        try:
            async with self._store.session(claim.session, create=False) as opened:
                await self._dispatch(opened, call, tool, operation)
        except LeaseHeld:
            await anyio.sleep(LEASE_POLL_S)  # Another connection was quicker.
        return True

    async def _ask_person(
        self, session: Session, call: ProxiedCall, tool: ProxyTool, place: Place
    ) -> _Doubtful | None:
        """Ask the person at the client, if it can, and record the answer. What to tell the client, if there
        is none yet."""
        shown = as_text(tool.tool.arguments.check(call.arguments)[1])
        text = f"Allow {tool.name} of the server {self._name!r}?\n{shown[:_ASKED_CHARS]}"
        verdict = await self._elicit(call, text)
        if isinstance(verdict, dict):
            return _Doubtful(verdict)
        if verdict is None:
            return _Doubtful(describe_waiting(tool, place))
        by = "the person at the client, who was asked by it"
        if verdict:
            await self._store.approve(place.session, place.call, by=by)
        else:
            await self._store.refuse(place.session, place.call, by=by)
        await session.take_in()
        return None

    def _read_facts(self, claim: Claim) -> Facts | None:
        """The facts of a claim's owner; None if it was deleted. Blocks."""
        assert claim.session is not None
        try:
            facts = Journal(self._engine.driver, claim.session).fold().facts
        except NotFound:
            return None
        return facts if claim.is_of(facts.head) else None

    def _refuse_other(
        self, call: ProxiedCall, tool: ProxyTool, earlier: Effect | Question | None
    ) -> _Doubtful | None:
        """Refuse a key that its client has used before with other arguments."""
        if call.key is None or earlier is None:
            return None
        arguments = tool.tool.arguments
        shown = arguments.check(call.arguments)[1]
        if earlier.fingerprint == fingerprint_of(tool.tool.name, arguments, call.arguments, shown):
            return None
        text = (
            f"{tool.name}: NOT RUN. The key {call.key!r} in _meta was used before, for a call with other "
            "arguments. Use another key for another call."
        )
        return _Doubtful(error_result(text))

    async def _settle(
        self, session: Session, owner: SessionId, call: ProxiedCall, tool: ProxyTool, row: Effect
    ) -> bool:
        """Try to find out what became of a call of this or of a dead connection. False if nothing tells."""
        if tool.tool.verify is None and tool.tool.idempotent_s is None:
            return False
        try:
            if owner == session.id:
                made = self._make_as_made(session, row, call, tool)
                await self._registry.settle_call(session, row, tool=made)
                return True
            async with self._store.session(owner, create=False) as opened:
                known = opened.state.facts.effects.rows.get(row.issued)
                if known is not None and known.status == "in_doubt":
                    made = self._make_as_made(opened, known, call, tool)
                    await self._registry.settle_call(opened, known, tool=made)
        except BadArguments:
            return False  # A person has corrected them, and the tool has changed since.
        except LeaseHeld:
            return False  # Its connection still lives, or a person is just answering.
        except NotFound:
            return True  # It was deleted meanwhile: look again.
        return True

    def _make_as_made(self, session: Session, row: Effect, call: ProxiedCall, tool: ProxyTool) -> AnyTool:
        """The tool with the body of the call, and what the row's call was made with: the same as this one,
        unless a person has corrected it."""
        answer = session.state.facts.effects.find_question(row.call)
        corrected = UNSET if answer is None else answer.new_args
        arguments = call.arguments if corrected is UNSET else corrected
        return tool.tool.with_body(
            self._make_body(call, tool), ArgumentsAsMade(tool.tool.arguments, arguments)
        )

    def _give_theirs(self, claim: Claim, operation: str) -> _Given:
        assert claim.session is not None
        place = Place(self._url, claim.session, claim.call)

        async def free() -> None:
            await self._engine.call(self._free_theirs, claim, operation)

        return _Given(claim.given, place, free)

    async def _find_awaited(self, waited: Claim, operation: str) -> _Given | None:
        """The outcome of the call of another connection that this one has waited for. That one has delivered
        it, so there is nothing to give back."""
        row = await self._find_row(waited, operation)
        if row is None or row.status != "completed" or waited.session is None:
            return None
        try:
            given = await self._engine.call(read_result, self._engine, waited.session, row)
        except NotFound:
            return None
        return _Given(given, Place(self._url, waited.session, row.call.id), _do_nothing)

    async def _find_row(self, claim: Claim, operation: str) -> Effect | None:
        """What the journal of a claim's owner says; None if the owner was deleted, or never began it."""
        return await self._engine.call(self._read_row, claim, operation)

    def _read_row(self, claim: Claim, operation: str) -> Effect | None:
        facts = None if claim.session is None else self._read_facts(claim)
        return None if facts is None else find_row(facts.effects, claim, operation)

    async def _find_row_in(self, session: Session, owner: SessionId, operation: str) -> Effect | None:
        """The last row of an operation, as it is now."""
        if owner == session.id:
            return session.state.facts.effects.find_last(operation)
        try:
            return (await self._store.load(owner)).facts.effects.find_last(operation)
        except NotFound:
            return None

    # -- giving operations back -------------------------------------------------------------------------

    def _make_free(self, session: Session, row: Effect) -> Callable[[], Awaitable[None]]:
        async def free() -> None:
            await self._free_own(session, row.operation, row.generation + 1)

        return free

    async def _free_own(self, session: Session, operation: str, generation: int) -> None:
        head, fence = session.state.facts.head, session.fence
        await self._engine.call(
            amend_own, self._engine, head, fence, operation, lambda claim: claim.freed(generation)
        )

    def _free_theirs(self, claim: Claim, operation: str) -> None:
        """Give back what another connection has done, and this one has delivered. Blocks."""
        row = self._read_row(claim, operation)
        generation = claim.generation if row is None else max(row.generation, claim.generation)
        while True:
            known, record = find_claim(self._engine, effect_key(operation))
            if (known.session, known.uid, known.call) != (claim.session, claim.uid, claim.call):
                return  # Another connection has given it back before.
            if change_claim(self._engine, effect_key(operation), record, known.freed(generation + 1)):
                return

    async def _give_back_unused(
        self, session: Session, call: ProxiedCall, operation: str, generation: int
    ) -> None:
        """Give a claim back that led to no intent and no question: other connections wait for it else."""
        effects = session.state.facts.effects
        row, question = effects.find_last(operation), effects.find_question(CallRef(id=call.call_id))
        is_asked = question is not None and question.approved is not False
        if (row is None or row.generation < generation) and not is_asked and not session.is_lost:
            try:
                await self._free_own(session, operation, generation)
            except HoldfastError as error:
                log.warning("the claim of a call that was not made is left to its session: %s", error)


_OPEN: Final = ("in_doubt", "gave_up", "running", "completed")


async def _do_nothing() -> None:
    """There is nothing to give back."""


def _is_success(call: ProxiedCall) -> bool:
    """Whether the server's own answer is a result, and no error."""
    result = call.answer.result if call.answer is not None else None
    return isinstance(result, dict) and result.get("isError") is not True
