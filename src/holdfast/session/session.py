"""The session as applications use it: reading its state, recording, runs, checkpoints."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeVar, overload

from msgspec import Raw

from ..content.model_input import read_all, with_urls, without_lost
from ..core.budget import Budget, BudgetState
from ..core.call_pairing import Problem
from ..core.effects import Effect, Undone
from ..core.entries import (
    BudgetChanged,
    CheckpointDropped,
    LeftBehind,
    Parent,
    PlanChanged,
    ScratchpadSet,
    SessionClosed,
    SessionLabelled,
    SessionStatus,
    Span,
    StateSet,
    StateUnset,
    SummaryChanged,
    TranscriptCompacted,
)
from ..core.fold import Checkpoint
from ..core.plan import Plan
from ..core.session_state import SessionState
from ..core.transcript_items import Item, Messages
from ..drawing.card import draw_closed_card, draw_state_card
from ..errors import BadInput, Closed, HoldfastError, NotFound
from ..formats.sdk_objects import SdkObject, read_given
from ..formats.transcript import MessageFormat, check_format, convert, count_opening
from ..ids import SessionId, check_labels, check_name
from ..messages import AnyMessage, ForeignMessage, Json, Message, as_message, shape_of
from ..system import files
from ..system.clock import boot_s
from .cadence import Cadence, Pace
from .inbox import message_entry
from .lease import take
from .misuse import AsyncOnly
from .resource_lease import Hold, hold
from .rewind import Rewound, Undoer, return_to
from .run import Run
from .writer import SessionWriter

if TYPE_CHECKING:
    from pydantic_ai.messages import ModelMessage

    from ..store.store import Store

log = logging.getLogger("holdfast")
T = TypeVar("T")


class Settler(Protocol):
    """Settles calls in doubt: a `Registry`."""

    async def settle(self, session: Session, *, deps: object, policy: str | None) -> list[Effect]: ...


class _Unopened:
    """Stands for the writer of a session that is not open."""

    def __get__(self, session: Session | None, owner: type) -> _Unopened:
        if session is None:
            return self
        raise Closed(f"session {session.id!r} is not open: use `async with store.session(…) as session`")


class Session(AsyncOnly):
    """A conversation or piece of work, open for reading and recording.

    Use it as `async with store.session(id) as session`. A method that records changes the state at once; the
    entry becomes durable a moment later. `flush`, `checkpoint` (as the cadence asks), and methods that are
    durable on return wait for the disk. If the disk fails, they raise `StoreFailed`; nothing is lost, and the
    next one that waits tries again.
    """

    _USE = "async with store.session(…) as session"
    _USE_BLOCKING = "with store.session(…) as session` in a `with holdfast.blocking.open_store(…) as store"

    def __init__(
        self,
        store: Store,
        id: SessionId,
        *,
        wait_s: float,
        cadence: Cadence,
        labels: Mapping[str, str],
        parent: Parent | None,
        create: bool,
    ) -> None:
        self.id = id
        self.store = store
        """The store that the session belongs to."""
        self._engine = store._engine
        self._wait_s, self._labels, self._parent, self._create = wait_s, labels, parent, create
        self._pace = Pace(cadence, boot_s())

    # -- opening and closing ------------------------------------------------------------------------

    _writer: SessionWriter
    """For holdfast's own layers; there is one while the session is open."""
    if not TYPE_CHECKING:
        _writer = _Unopened()

    async def __aenter__(self) -> Session:
        taken = await take(
            self._engine,
            self.id,
            wait_s=self._wait_s,
            labels=check_labels(self._labels),
            parent=self._parent,
            create=self._create,
        )
        writer = SessionWriter(self._engine, taken, self._pace, before=vars(self).get("_writer"))
        self._writer = writer
        try:
            if writer.channel.posted > writer.state.facts.head.taken:
                await writer.take_in()
        except BaseException:
            await writer.release()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            await self._writer.release()
        except HoldfastError as failure:
            if error is None:
                raise
            log.warning("session %s was not closed cleanly: %s", self.id, failure)

    @property
    def _is_entered(self) -> bool:
        return "_writer" in vars(self)

    def _repr_html_(self) -> str:
        """The session in a notebook: what of it is in memory. Reads nothing, and takes no lease."""
        if not self._is_entered:
            return draw_closed_card(self.id)
        return draw_state_card(self._writer.state)

    @property
    def is_lost(self) -> bool:
        """True if nothing can be written any more: the lease is lost, the session closed or deleted."""
        return self._writer.is_lost

    @property
    def fence(self) -> int:
        """A number that grows with every holder. Hand it to services that can refuse an older one."""
        return self._writer.channel.fence

    async def flush(self) -> None:
        """Wait until everything recorded so far is durable."""
        await self._writer.flush()

    # -- reading ------------------------------------------------------------------------------------

    @property
    def state(self) -> SessionState:
        """The fold over the journal. Read it; only this session changes it."""
        return self._writer.state

    @property
    def transcript(self) -> Messages:
        """The messages, oldest first."""
        return self._writer.state.transcript

    @property
    def plan(self) -> Plan | None:
        """The plan, if there is one."""
        return self._writer.state.facts.plan

    @property
    def summary(self) -> str:
        """The running summary."""
        return self._writer.state.facts.summary

    @property
    def budget(self) -> BudgetState:
        """Caps, and what was spent."""
        return self._writer.state.budget

    @property
    def in_doubt(self) -> list[Effect]:
        """Calls in doubt: issued, and their outcome is unknown."""
        return self._writer.state.in_doubt

    @property
    def version(self) -> int:
        """The version that the present state was built on; 0 before the first checkpoint."""
        return self._writer.state.version

    @property
    def checkpoints(self) -> list[Checkpoint]:
        """The versions that can be loaded, forked from and rewound to, oldest first."""
        return self._writer.state.checkpoints

    @property
    def problems(self) -> tuple[Problem, ...]:
        """Why a provider would reject the transcript; empty if it would not."""
        return self._writer.state.problems

    @property
    def continuable(self) -> bool:
        """True if a provider accepts the transcript: each tool call has its result."""
        return self._writer.state.continuable

    @property
    def status(self) -> SessionStatus:
        """The status of the session: how its last run ended."""
        return self._writer.state.facts.head.status

    @property
    def labels(self) -> Mapping[str, str]:
        """The labels of the session."""
        return dict(self._writer.state.facts.head.labels)

    @property
    def scratchpad(self) -> Path | None:
        """The directory for the files of the session, if one was set."""
        root = self._writer.state.facts.scratchpad
        return Path(root) if root else None

    @property
    def cancel_requested(self) -> str | None:
        """The reason given with `store.cancel`, if the session was asked to stop."""
        return self._writer.state.facts.cancel

    @property
    def keys(self) -> Sequence[str]:
        """The keys of the values set with `set`."""
        return tuple(self._writer.state.facts.values)

    @property
    def left_at_origin(self) -> tuple[LeftBehind, ...]:
        """Of a fork: effects of its origin after the version that the fork started from."""
        return self._writer.state.facts.left_behind

    def left_behind(self, version: int | None = None) -> list[Effect]:
        """List the effects after a version. A rewind to it does not undo them."""
        seq = self._writer.state.get_checkpoint(version).seq if version is not None else 0
        return self._writer.state.facts.effects.since(seq)

    @property
    def system(self) -> str:
        """The text of the system messages that the transcript begins with, for clients that take it apart
        from the messages, as Anthropic's."""
        seen = self._writer.state.transcript
        return "\n\n".join(message.text for message in seen[: count_opening(seen)])

    @overload
    async def messages(
        self, format: Literal["pydantic-ai"], *, links: bool = False, unfinished: bool = False
    ) -> list[ModelMessage]: ...
    @overload
    async def messages(
        self, format: MessageFormat | str, *, links: bool = False, unfinished: bool = False
    ) -> list[Json]: ...
    async def messages(
        self, format: MessageFormat | str, *, links: bool = False, unfinished: bool = False
    ) -> list[Any]:
        """The transcript as a provider's client takes it: `messages=await session.messages("openai")`.

        `openai` (chat completions), `openai-responses` (input items), `anthropic`, `pydantic-ai` (its
        message objects). Messages that were given in this format are returned as they were given, all others
        are converted. `anthropic` leaves out the system messages at the beginning: they are in `system`.
        Media are read from their blobs; with `links`, they are links where the home of the blobs has some.

        A transcript that no provider would accept, because a call has no result, raises `BadInput`. With
        `unfinished`, it is returned all the same.
        """
        check_format(format)
        await self._writer.read_contents()
        if not unfinished and self.problems:
            raise BadInput(
                f"session {self.id!r} cannot be shown to a model: {self.problems[0]}. Run the calls with "
                "registry.dispatch_step(session); if its `waiting` is not empty, end the run until they are "
                "answered"
            )
        seen: Sequence[AnyMessage] = list(self.transcript)
        if links:
            seen = await with_urls(seen)
        await read_all(seen)
        return convert([without_lost(message) for message in seen], format)

    # -- recording ----------------------------------------------------------------------------------

    @overload
    async def add(self, message: str | Message | ForeignMessage | SdkObject | ModelMessage) -> None: ...
    @overload
    async def add(self, message: Json, *, format: str) -> None: ...
    async def add(self, message: Json, *, format: str | None = None) -> None:
        """Add a message. A plain string is a user message. One in another `format` is stored verbatim.

        What a provider's client returned needs no `format`: openai's `ChatCompletion`,
        `ChatCompletionMessage` and `Response`, anthropic's `Message`, pydantic-ai's messages.
        """
        given = read_given(message, format)
        self._writer.record_all([await message_entry(self._engine, given.message)])

    async def set(self, key: str, value: object) -> None:
        """Store a value under a key. A value that cannot be encoded is stored as an `Opaque`."""
        key = check_name("state key", key)
        self._writer.record(StateSet(key=key, value=Raw(await self._engine.pack_value(value))))

    @overload
    def get(self, key: str) -> Any: ...
    @overload
    def get(self, key: str, type: type[T]) -> T: ...
    def get(self, key: str, type: type[T] | None = None) -> Any:
        """Read the value under a key, converted to `type` if one is given. Raises `NotFound`."""
        return self._writer.state.get(key) if type is None else self._writer.state.get(key, type)

    async def unset(self, key: str) -> None:
        """Remove the value under a key, if there is one."""
        if key in self._writer.state.facts.values:
            self._writer.record(StateUnset(key=key))

    async def set_plan(self, plan: Plan | None) -> None:
        """Replace the plan."""
        self._writer.record(PlanChanged(plan=plan))

    async def set_summary(self, summary: str) -> None:
        """Replace the running summary."""
        self._writer.record(SummaryChanged(summary=summary))

    async def set_budget(self, budget: Budget) -> None:
        """Replace the caps. Past spending still counts."""
        self._writer.record(BudgetChanged(budget=budget))

    async def set_scratchpad(self, root: str | Path) -> Path:
        """Create the directory if it is missing, and record its path."""
        path = await self._engine.call(_make_directory, root)
        self._writer.record(ScratchpadSet(root=str(path)))
        return path

    async def label(self, **labels: str | None) -> None:
        """Set labels; None removes one."""
        check_labels({key: value for key, value in labels.items() if value is not None})
        self._writer.record(SessionLabelled(labels=labels))

    async def compact(self, message: str | Message, *, keep: int) -> None:
        """Replace all but the last `keep` messages by a user message. The journal keeps the original.

        A reply and the results of its calls stay together, so one message more may be replaced. More are kept
        if one of those to keep was sent while the model worked.
        """
        found = as_message(message)
        _compaction(self._writer.state, found, keep)  # Checked before a blob is stored.
        content = await self._engine.pack_message(found)
        self._writer.record(_compaction(self._writer.state, found, keep), content=content)

    # -- runs ---------------------------------------------------------------------------------------

    def run(
        self,
        *,
        agent: str | None = None,
        run_id: str | None = None,
        parent: str | Parent | None = None,
        model: str | None = None,
        instructions: str | None = None,
        tools: Mapping[str, str] | None = None,
        config: Json = None,
        resumes: bool = False,
    ) -> Run:
        """Begin a run, one drive of an agent's loop: `async with session.run(agent="planner") as run`.

        Its parent is the run around the caller, in any session, unless `parent` names another. `tools` has a
        digest of each tool's description; it is recorded beside the digest of the instructions. `resumes`
        says that it goes on without a new message.
        """
        return Run(
            self,
            agent=agent,
            run_id=run_id,
            parent=parent,
            model=model,
            instructions=instructions,
            tools=tools or {},
            config=config,
            resumes=resumes,
        )

    # -- checkpoints --------------------------------------------------------------------------------

    async def checkpoint(self, name: str | None = None) -> int:
        """End the step with a checkpoint; its version. Without changes, the last version."""
        version = self._writer.take_checkpoint(name)
        if self._pace.is_due(boot_s()):
            await self.flush()
        return version

    async def drop(self, version: int) -> None:
        """Drop this version. The journal and the other versions are not affected. Durable on return."""
        self._writer.state.get_checkpoint(version)
        self._writer.record(CheckpointDropped(version=version))
        await self.flush()

    async def rewind(
        self,
        *,
        steps: int | None = None,
        version: int | None = None,
        undo: bool = False,
        registry: Undoer | None = None,
        deps: object = None,
    ) -> Rewound:
        """Go back by some steps, or to a version. The journal keeps what is left behind. Durable on return.

        `steps=1` leaves the last step behind, `steps=0` only what came after it. `version` may be one that an
        earlier rewind left behind. Effects are not undone, except with `undo=True`: then the tools of the
        `registry` undo what they can, the last first, and `undone` of the result says what became of each.
        `left_behind(version)` lists those effects beforehand.
        """
        if (steps is None) == (version is None):
            raise BadInput("rewind() needs either steps=… or version=…")
        if undo and registry is None:
            raise BadInput("rewind(undo=True) needs registry=…: its tools know how to undo")
        target = self._writer.state.get_checkpoint(version) if version is not None else self._back(steps or 0)
        undone: Sequence[Undone] = ()
        if undo and registry is not None:
            undone = await registry.undo(self, self.left_behind(target.version), deps=deps)
        await return_to(self, target)
        return Rewound(target.version, tuple(undone))

    async def settle(
        self, registry: Settler, *, deps: object = None, policy: str | None = None
    ) -> list[Effect]:
        """Settle the calls in doubt; returns those that stay in doubt.

        A tool's `verify` is called first; an idempotent tool runs again with the same key. The rest waits for
        a person (`policy="wait"`), or the model is told (`"tell"`).
        """
        return await registry.settle(self, deps=deps, policy=policy)

    def _back(self, steps: int) -> Checkpoint:
        path = self._writer.state.path()
        if not 0 <= steps < len(path):
            raise NotFound(f"session {self.id!r} cannot go back {steps} steps: it has {len(path)} versions")
        return path[-1 - steps]

    async def continue_(self) -> int:
        """Go back to the latest continuable point, which may be the present one; its version."""
        if self._writer.state.continuable:
            return self._writer.state.version
        for one in reversed(self._writer.state.path()):
            if one.continuable:
                await return_to(self, one)
                return one.version
        raise NotFound(f"session {self.id!r} has no continuable version to go on from")

    async def close(self, status: SessionStatus = "completed", reason: str = "") -> None:
        """Set the status. The lease stays until the `async with` block ends. Durable on return."""
        if status not in ("active", "waiting", "completed", "failed", "cancelled"):
            raise BadInput(f"no such status: {status!r}")
        self._writer.record(SessionClosed(status=status, reason=reason))
        await self.flush()

    # -- other processes -------------------------------------------------------------------------------------

    async def take_in(self) -> int:
        """Take in what other processes sent to the inbox; how many items. `flush` does so, too."""
        return await self._writer.take_in()

    def hold(self, name: str, *, wait_s: float = 0) -> AbstractAsyncContextManager[Hold]:
        """Take a named lease on a shared resource: `async with session.hold("repo/main.py") as held`."""
        return self._hold(check_name("resource", name), wait_s)

    @asynccontextmanager
    async def _hold(self, name: str, wait_s: float) -> AsyncIterator[Hold]:
        self._engine.committer.check(self._writer.channel)
        async with hold(self._engine, self.id, name, wait_s) as held:
            yield held


def _make_directory(root: str | Path) -> Path:
    """Create the directory if it is missing; its absolute path."""
    path = Path(root).expanduser().absolute()
    try:
        files.make_tree(path)
    except OSError as error:
        raise BadInput(f"the scratchpad {path} cannot be made: {error.strerror}") from error
    except ValueError as error:  # A NUL, or half a surrogate pair.
        raise BadInput(f"the scratchpad {str(path)!r} is no path: {error}") from error
    return path


def _compaction(state: SessionState, message: AnyMessage, keep: int) -> TranscriptCompacted:
    """The entry that replaces all but the last `keep` messages by this one."""
    items = state.transcript_fold.items
    cut = max(0, len(items) - keep)
    # A message that waited for the end of a step stands after a reply of a later entry, and would go with it.
    while _is_torn(items[:cut], items[cut:]):
        cut -= 1
    gone = [item.seq for item in items[:cut]]
    if keep < 0 or not gone:
        raise BadInput(f"compact(keep={keep}): the transcript has {len(items)} messages")
    if not isinstance(message, Message) or message.role != "user" or shape_of(message).parts:
        raise BadInput("compact() needs a message of the user's, without calls and results")
    if not state.continuable:
        raise BadInput(f"compact() waits for the end of the step: {state.problems[0]}")
    return TranscriptCompacted(span=Span(first=min(gone), last=max(gone)))


def _is_torn(gone: Sequence[Item], kept: Sequence[Item]) -> bool:
    """True if the entries of the removed messages span an entry of a kept one.

    Results have the entry of their reply, and go with it.
    """
    last = max((item.seq for item in gone), default=0)
    return any(item.seq <= last for item in kept if item.results is None)
