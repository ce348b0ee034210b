"""The types of `holdfast.blocking`. Made by tools/blocking_stubs.py from the async classes."""

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Generic, Literal, TypeAlias, overload

from ..agents.agent import DepsT
from ..agents.loop import Compact
from ..agents.model import Model
from ..agents.outcome import Event, Outcome, OutputT
from ..agents.prices import Price
from ..blobs.blob import Blob, BlobData, Collected
from ..blobs.blob import OpenBlob as AsyncOpenBlob
from ..blobs.home import BlobHome
from ..blobs.public_urls import PublicUrls
from ..core.budget import Budget, BudgetState, Usage
from ..core.call_pairing import Problem
from ..core.diff import Diff
from ..core.effects import Effect, Undone
from ..core.entries import Entry, LeftBehind, Parent, SessionStatus, Verdict
from ..core.fold import Checkpoint, RunInfo
from ..core.head import Head
from ..core.plan import Plan
from ..core.session_state import Overview, SessionState
from ..core.transcript_items import Messages
from ..core.values import Codec
from ..drivers.url import Place
from ..errors import HoldfastError
from ..ids import RunId, SessionId
from ..messages import ForeignMessage, Json, Media, Message
from ..session.cadence import Cadence
from ..session.effect_claims import OperationVerdict
from ..session.resource_lease import Hold as AsyncHold
from ..session.rewind import Rewound
from ..session.run import Request as AsyncRequest
from ..session.run import Run as AsyncRun
from ..session.session import Session as AsyncSession
from ..session.session import T
from ..store.approvals import Answered, Doubt
from ..store.store import Store as AsyncStore
from ..store.work_queue import WorkerInfo
from ..tools.declaration import AnyTool, Retry
from ..tools.dispatch import OnResult
from ..tools.outcome import Result
from ..tools.policy import Policy
from ..tools.registry import Provider
from ..tools.registry import Registry as AsyncRegistry
from ..tools.runner import InDoubtPolicy
from .loop import Loop

__all__ = [
    "Agent",
    "Hold",
    "OpenBlob",
    "Registry",
    "Request",
    "Run",
    "Session",
    "Store",
    "open_store",
]

def open_store(
    url: Place | None = None,
    *,
    blobs: str | BlobHome | None = None,
    blob_urls: PublicUrls | None = None,
    create: bool = True,
    schema: str | None = None,
    lease_s: float = ...,
    linger_s: float = ...,
    codecs: Iterable[Codec] = (),
    inline_bytes: int | None = ...,
    result_chars: int | None = ...,
) -> AbstractContextManager[Store]:
    """The store that `url` names: `memory:`, `dir:PATH`, `sqlite:PATH` or `postgresql://…`; or a `Path`
    (SQLite), a `psycopg_pool.ConnectionPool` (PostgreSQL), a driver.

    Without a URL, `HOLDFAST_STORE` is read. Use it as `with open_store(…) as store`. `blobs` is the
    home of large content (`s3://bucket/prefix`, or what `open_home` gave), by default the store's own;
    `blob_urls` says how the world reaches it. With `create=False`, a missing store is `NotFound`. `schema` is
    where PostgreSQL has the tables (`holdfast`). `lease_s` is how long a silent process is believed alive;
    `linger_s` how long a line that nobody waits for may stay in memory. Binary content of `inline_bytes` or
    more, and the text of a tool's result beyond `result_chars`, is kept as a blob; None keeps all of it in
    the journal.
    """

class Store:
    """`holdfast.Store` without an event loop. Threads may share it."""

    _loop: Loop
    _target: AsyncStore

    def session(
        self,
        id: str,
        *,
        wait_s: float = 0,
        cadence: Cadence = "step",
        labels: Mapping[str, str] | None = None,
        parent: Parent | None = None,
        create: bool = True,
    ) -> AbstractContextManager[Session]:
        """Open a session, or make it: `with store.session("order-42") as session`.

        Takes the lease; `LeaseHeld` says who has it if that is somebody else who may be alive, after
        `wait_s`. `labels` and `parent` are for a session that is new.
        """

    def load(self, session: str, version: int | None = None) -> SessionState:
        """The state of a session now, or at a version. Needs no lease and changes nothing."""

    def head(self, session: str) -> Head:
        """What listings say of a session, without folding it."""

    def is_held(self, head: Head) -> bool:
        """Whether somebody who may be alive drives the session."""

    def overview(self, session: str) -> Overview:
        """A session at a glance, without reading its whole transcript."""

    def checkpoints(self, session: str) -> Iterator[Checkpoint]:
        """The versions of a session, oldest first."""

    def drop(self, session: str, version: int, *, wait_s: float = 0) -> None:
        """No longer offer a version. Resuming and the other versions are not harmed."""

    def diff(self, session: str, a: int, b: int) -> Diff:
        """What changed from version `a` to version `b`."""

    def fork(
        self,
        session: str,
        *,
        version: int | None = None,
        into: str | None = None,
        labels: Mapping[str, str] | None = None,
    ) -> SessionId:
        """A new session that starts from a version (the latest) of another; its id.

        History is shared, not copied. What the origin spent, ran and was sent stays the origin's.
        """

    def submit(
        self,
        session: str,
        message: str | Message | ForeignMessage | Json,
        *,
        agent: str | None = None,
        format: str | None = None,
        key: str | None = None,
        labels: Mapping[str, str] | None = None,
    ) -> int:
        """Send a message to a session, whoever holds it; its number in the inbox. Durable on return.

        The holder takes it in at the end of its step; if there is none, a `Worker` that knows the session's
        agent takes it up. `agent` names another one. Only then is a session made that does not exist, with
        these `labels`. Equal keys are one submission.
        """

    def cancel(self, session: str, *, by: str = "", reason: str = "") -> int:
        """Ask whoever drives the session to stop. Durable on return."""

    def in_doubt(self) -> Iterator[Doubt]:
        """Calls of all sessions that were issued and of which nobody knows the outcome.

        Those of deleted sessions have an `operation`: one of scope `global`, or the key of an effect that a
        fork shares. Say what became of it with `resolve_operation`.
        """

    def resolve(
        self, session: str, call: str | int, verdict: Verdict, *, by: str, note: str = "", result: Json = None
    ) -> Answered:
        """Say what became of a call in doubt: `landed` (with its result), `not_landed` or `gave_up`.

        On record with who said so. Whoever holds the session takes it in; nobody needs to.
        """

    def resolve_operation(
        self, operation: str, verdict: OperationVerdict, *, by: str, note: str = "", result: Json = None
    ) -> Answered:
        """Say what became of a `global` operation whose session was deleted in the middle of it, or of an
        effect that forks of that session share, by its key.

        A result that is blocked by one names it, and `in_doubt` lists it. On record with the claim, with who
        said so. `landed`: every session gets the result; `not_landed`: the next one does it.
        """

    def approve(
        self, session: str, call: str | int, *, by: str, args: Json = None, note: str = ""
    ) -> Answered:
        """Agree to a call that waits, perhaps with corrected arguments. Both are on record."""

    def refuse(self, session: str, call: str | int, *, by: str, reason: str = "") -> Answered:
        """Do not agree to a call that waits; the model is told why."""

    def tail(self, session: str, *, after: int = 0, follow: bool = True) -> Generator[Entry]:
        """The entries of a session as they become durable, from any process.

        Without `follow` it ends after those that are there; with it, when the session is deleted: a new one
        of the same id is another session. A caller that stops earlier closes it (`aclosing`).
        """

    def sessions(
        self,
        *,
        status: SessionStatus | None = None,
        parent: str | None = None,
        label: Mapping[str, str] | None = None,
        interrupted: bool | None = None,
        on_damaged: Callable[[SessionId, HoldfastError], object] | None = None,
    ) -> Iterator[Head]:
        """Sessions in the order of their ids. `interrupted`: the last run has no end and nobody drives it.

        A damaged session of which nothing can be told is left out, and hides no other: `on_damaged` is called
        with its id and what is wrong; without it, that is logged.
        """

    def runs(self, *, session: str | None = None, parent: str | None = None) -> Iterator[RunInfo]:
        """Runs, oldest first; of one session, of one parent run, or of all. Filters combine."""

    def workers(self) -> Iterator[WorkerInfo]:
        """Who works on the store's sessions, with what they last told of themselves."""

    def put_blob(
        self,
        data: BlobData,
        *,
        media_type: str = "application/octet-stream",
        name: str | None = None,
        metadata: Mapping[str, str] | None = None,
    ) -> Blob:
        """Keep bytes, a file or a stream under their digest. Durable on return.

        Equal bytes are stored once, and the first description wins. A blob that nobody refers to is collected
        some day: show it in a message, as `store.media(blob)`.
        """

    def media(self, blob: Blob) -> Media:
        """A block for a message that shows the blob, without reading it."""

    def open_blob(self, reference: str) -> AbstractContextManager[OpenBlob]:
        """Read a blob, in parts or as a whole: `with store.open_blob(reference) as blob`.

        `reference` is `media+sha256://<hex>` or the digest alone. `NotFound` if it is not there, `Corrupt` at
        the end if its bytes are others by now.
        """

    def find_blob_url(self, reference: str) -> str | None:
        """A URL at which the world can read the blob; None if it is not there, or there is none for it.

        What `blob_urls` says, or a signed URL where the home is an object store.
        """

    def read_blob(self, reference: str) -> Iterator[bytes]:
        """The bytes of a blob, in parts."""

    def blobs(self, *, sessions: bool = False) -> Iterator[Blob]:
        """All blobs in the order of their digests; with `sessions`, who refers to each: every journal of the
        store is read for that."""

    def collect_blobs(self, *, grace_s: float = ..., dry_run: bool = True, alone: bool = False) -> Collected:
        """Find blobs that no session, version, fork or inbox refers to; with `dry_run=False`, remove them.

        What was put within the last `grace_s` stays. A grace below half an hour is for a store that nobody
        else has open, which `alone` says. A line that cannot be read stops it, and so does a home that is
        another store's.
        """

    def clean(
        self, session: str, *, transcript: bool = True, checkpoints: bool = True, wait_s: float = 0
    ) -> Literal["deleted", "cleaned"]:
        """Erase what messages and results said, drop all versions, or (both) delete the session.

        Digests stay in place of what was erased. Bodies that a fork refers to stay, and so does the ledger
        of a session that lives on.
        """

    def delete(self, session: str, *, wait_s: float = 0) -> None:
        """Remove a session. Lines that a fork shares stay for the fork; the id is free at once."""

class Session:
    """`holdfast.Session` without an event loop."""

    _loop: Loop
    _target: AsyncSession

    @property
    def id(self) -> SessionId: ...
    @property
    def store(self) -> Store: ...
    @property
    def is_lost(self) -> bool:
        """True if nothing can be written any more: the lease is lost, the session closed or deleted."""

    @property
    def fence(self) -> int:
        """A number that grows with every holder. Hand it to services that can refuse an older one."""

    def flush(self) -> None:
        """Wait until everything recorded so far is durable."""

    @property
    def state(self) -> SessionState:
        """The fold over the journal. Read it; only this session changes it."""

    @property
    def transcript(self) -> Messages:
        """The messages, oldest first."""

    @property
    def plan(self) -> Plan | None:
        """The plan, if there is one."""

    @property
    def summary(self) -> str:
        """The running summary."""

    @property
    def budget(self) -> BudgetState:
        """Caps, and what was spent."""

    @property
    def in_doubt(self) -> list[Effect]:
        """Calls that were issued and whose outcome nobody knows."""

    @property
    def version(self) -> int:
        """The version that the present state was built on; 0 before the first checkpoint."""

    @property
    def checkpoints(self) -> list[Checkpoint]:
        """The versions that can be loaded, forked from and rewound to, oldest first."""

    @property
    def problems(self) -> tuple[Problem, ...]:
        """Why a provider would refuse the transcript; empty if it would not."""

    @property
    def continuable(self) -> bool:
        """Whether the model can be asked to go on from here."""

    @property
    def status(self) -> SessionStatus:
        """What became of the last run."""

    @property
    def labels(self) -> Mapping[str, str]:
        """What the session is filed under."""

    @property
    def scratchpad(self) -> Path | None:
        """Where the session keeps its files."""

    @property
    def cancel_requested(self) -> str | None:
        """Why somebody asked the session to stop, if somebody did."""

    @property
    def keys(self) -> Sequence[str]:
        """Under which keys there is state."""

    @property
    def left_at_origin(self) -> tuple[LeftBehind, ...]:
        """Of a fork: what its origin had done in the world after the version that the fork began with."""

    def left_behind(self, version: int | None = None) -> list[Effect]:
        """Effects in the world that came after a version, and that going back to it does not take back."""

    @overload
    def add(self, message: str | Message | ForeignMessage) -> None: ...
    @overload
    def add(self, message: Json, *, format: str) -> None: ...
    def set(self, key: str, value: object) -> None:
        """Keep a value under a key. One that cannot be encoded is kept as a marked `Opaque`."""

    @overload
    def get(self, key: str) -> Any: ...
    @overload
    def get(self, key: str, type: type[T]) -> T: ...
    def unset(self, key: str) -> None:
        """Remove the value under a key, if there is one."""

    def set_plan(self, plan: Plan | None) -> None:
        """Replace the plan."""

    def set_summary(self, summary: str) -> None:
        """Replace the running summary."""

    def set_budget(self, budget: Budget) -> None:
        """Replace the caps; what was spent stays spent."""

    def set_scratchpad(self, root: str | Path) -> Path:
        """Make the directory, and record where it is."""

    def label(self, **labels: str | None) -> None:
        """File the session under labels; None removes one."""

    def compact(self, message: str | Message, *, keep: int) -> None:
        """Replace all but the last `keep` messages by one of the user's; the journal keeps the original.

        A reply and the results of its calls stay together, so one message more may go; more are kept where
        one of those to keep was sent while the model worked.
        """

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
    ) -> AbstractContextManager[Run]:
        """One drive of the loop: `with session.run(agent="planner") as run`.

        Its parent is the run around it, in whatever session, unless another is named. `tools` are digests of
        what the model is told of each, kept beside that of the instructions.
        """

    def checkpoint(self, name: str | None = None) -> int:
        """End the step here; its version. No point is checkpointed twice."""

    def drop(self, version: int) -> None:
        """No longer offer this version. Neither the journal nor any other version is harmed."""

    def rewind(
        self,
        *,
        steps: int | None = None,
        version: int | None = None,
        undo: bool = False,
        registry: AnyRegistry | None = None,
        deps: object = None,
    ) -> Rewound:
        """Go back by some steps, or to a version. The journal keeps what is left behind.

        `steps=1` leaves the last step behind, `steps=0` only what came after it. A version that an earlier
        rewind left behind can be gone back to as well. What was done in the world stays done, unless `undo`:
        then the tools of the `registry` take back what they can, the last first, and `undone` of the answer
        says what became of each. `left_behind(version)` tells beforehand what there is.
        """

    def settle(
        self, registry: AnyRegistry, *, deps: object = None, policy: str | None = None
    ) -> list[Effect]:
        """Find out what became of the calls in doubt; those that stay in doubt.

        Each tool's `verify` is asked first; an idempotent one is run again with the same key; the rest waits
        for a person (`policy="wait"`), or the model is told (`"tell"`).
        """

    def continue_(self) -> int:
        """Go on from the latest continuable point: from here, if here is one; the version it stands on."""

    def close(self, status: SessionStatus = "completed", reason: str = "") -> None:
        """Set the status by hand. The lease stays until the `with` block ends."""

    def take_in(self) -> int:
        """Take in what other processes sent to the inbox; how many items. `flush` does so, too."""

    def hold(self, name: str, *, wait_s: float = 0) -> AbstractContextManager[Hold]:
        """Hold a resource that agents share: `with session.hold("repo/main.py") as held`."""

class Run:
    """`holdfast.records.Run` without an event loop."""

    _loop: Loop
    _target: AsyncRun

    @property
    def id(self) -> RunId:
        """Fresh for every run: explicit, `{agent}-{8 hex}`, or a UUID."""

    def complete(self, output: Json = None) -> None:
        """What the run gave; recorded when the block ends without an error."""

    def fail(self, reason: str, error: str = "") -> None:
        """The run failed without an exception: a spent budget, a step limit."""

    def cancel(self, reason: str = "") -> None:
        """The run was stopped on request."""

    def pause(self, reason: str) -> None:
        """The run waits for a person; the session's status becomes `waiting`."""

    def request(
        self, *, model: str | None = None, reserve_usd: float = 0.0, reserve_tokens: int = 0
    ) -> AbstractContextManager[Request]:
        """A request to a model: `with run.request(reserve_usd=0.05) as request`.

        Raises `BudgetSpent` instead of going over a cap. What is reserved counts as spent until the
        outcome is known, also if the process dies meanwhile.
        """

class Request:
    """`holdfast.records.Request` without an event loop."""

    _loop: Loop
    _target: AsyncRequest

    def reply(
        self,
        message: Message | ForeignMessage | str | Json,
        *,
        format: str | None = None,
        usage: Usage | None = None,
        cost_usd: float = 0.0,
        latency_ms: float | None = None,
        model: str | None = None,
    ) -> None:
        """Record the model's reply. Durable on return. `model` is the one that answered."""

class Hold:
    """`holdfast.records.Hold` without an event loop."""

    _loop: Loop
    _target: AsyncHold

    @property
    def name(self) -> str: ...
    @property
    def fence(self) -> int: ...
    def check(self) -> None:
        """Raise `Fenced` if somebody else has taken it over meanwhile."""

class OpenBlob:
    """A blob to be read: `for part in blob`, once; `blob.read()` gives all of it."""

    _loop: Loop
    _target: AsyncOpenBlob

    @property
    def blob(self) -> Blob: ...
    def __iter__(self) -> Iterator[bytes]: ...
    def read(self) -> bytes:
        """All of it, checked."""

class Registry:
    """`holdfast.Registry` without an event loop. Async tools run in the store's."""

    def __init__(
        self,
        tools: Iterable[AnyTool | Callable[..., Any]] = (),
        *,
        policy: Policy | None = None,
        in_doubt: InDoubtPolicy = "wait",
        max_repeats: int = ...,
        max_crashes: int = ...,
        grace_s: float = ...,
    ) -> None: ...
    @property
    def grace_s(self) -> float: ...
    def add(self, given: AnyTool | Callable[..., Any]) -> AnyTool:
        """One more tool; a plain function counts as one that declares nothing."""

    @property
    def waits_for_people(self) -> bool:
        """Whether a call in doubt waits for a person; else the model is told."""

    @property
    def tools(self) -> Mapping[str, AnyTool]:
        """The tools by name."""

    def get_tool(self, name: str) -> AnyTool:
        """The tool with this name, or `NotFound`."""

    def schemas(self, provider: Provider = "json") -> list[dict[str, Json]]:
        """The tools as a provider wants to be told of them."""

    def dispatch(
        self,
        name: str,
        args: Json,
        *,
        call_id: str | None = None,
        session: Session | None = None,
        deps: Any = None,
    ) -> Result:
        """Take one call through the gates and, with a session, through the ledger.

        A `call_id` names the call in its session: dispatched again after a crash, it gives the recorded
        outcome. Without a session there are the gates alone.
        """

    def dispatch_step(
        self, session: Session, *, deps: Any = None, on_result: OnResult | None = None
    ) -> list[Result]:
        """The calls of the last reply, together; those that have a result keep it.

        One commit carries all intents. Calls of one tool that writes run in the reply's order, everything
        else side by side. `on_result` is told of each as soon as it is there.
        """

    def settle(
        self,
        session: Session,
        *,
        deps: Any = None,
        policy: str | None = None,
        on_result: OnResult | None = None,
    ) -> list[Effect]:
        """Settle what is in doubt; see `Session.settle`. `on_result` is told of each result that it gives."""

    def settle_call(self, session: Session, row: Effect, *, deps: Any = None) -> None:
        """Settle one call in doubt, and leave the others alone."""

    def settle_all(self, store: Store, *, deps: Any = None, policy: str | None = None) -> list[Doubt]:
        """Settle what is in doubt in every session of a store that nobody holds; what stays in doubt."""

    def undo(self, session: Session, effects: Sequence[Effect], *, deps: Any = None) -> list[Undone]:
        """Take effects back, the last first, each on record as an effect of its own."""

    @property
    def with_loop(self) -> AsyncRegistry: ...

class Agent(Generic[DepsT, OutputT]):
    """`holdfast.Agent` without an event loop. Models and async tools run in the store's."""

    def __init__(
        self,
        model: Model | str,
        *,
        tools: Iterable[AnyTool | Callable[..., Any]] = (),
        instructions: str = "",
        budget: Budget | None = None,
        policy: Policy | None = None,
        name: str | None = None,
        max_steps: int = ...,
        output_type: type[OutputT] | None = None,
        price: Price | None = None,
        max_tokens: int = ...,
        retry: Retry = ...,
        compact: Compact | None = None,
        in_doubt: InDoubtPolicy = "wait",
        max_repeats: int = ...,
        max_crashes: int = ...,
        grace_s: float = ...,
    ) -> None: ...
    @property
    def name(self) -> str | None: ...
    @property
    def registry(self) -> Registry: ...
    def run(
        self,
        message: str | Message | ForeignMessage,
        *,
        session: str | Session | None = None,
        store: Store | None = None,
        deps: DepsT | None = None,
        run_id: str | None = None,
        parent: str | Parent | None = None,
        labels: Mapping[str, str] | None = None,
        cadence: Cadence = "step",
        wait_s: float = 0,
    ) -> Outcome[OutputT]:
        """Give the agent a message, and drive the session until there is an outcome.

        A session that is there already goes on: what a dead process left unfinished is finished first. It is
        named by its id, or given as it was opened. Without a `session` there is a new one; without a `store`,
        `HOLDFAST_STORE` names it.
        """

    def resume(
        self,
        session: str | Session,
        *,
        store: Store | None = None,
        deps: DepsT | None = None,
        cadence: Cadence = "step",
        wait_s: float = 0,
    ) -> Outcome[OutputT]:
        """Go on where the session stands: after a crash, a cancellation, or when a person has answered.

        If it had come to its end, that outcome is given again, and nothing is run.
        """

    def stream(
        self,
        message: str | Message | ForeignMessage | None = None,
        *,
        session: str | Session | None = None,
        store: Store | None = None,
        deps: DepsT | None = None,
        run_id: str | None = None,
        parent: str | Parent | None = None,
        labels: Mapping[str, str] | None = None,
        cadence: Cadence = "step",
        wait_s: float = 0,
    ) -> Generator[Event[OutputT]]:
        """The same as `run`, or without a message as `resume`, told as it happens; the outcome comes last.

        Who stops listening cancels the run. Deltas are not kept: whoever comes later reads whole replies.
        """

    def resume_all(
        self, store: Store, *, concurrency: int = ..., deps: DepsT | None = None
    ) -> list[Outcome[OutputT]]:
        """Take up every session whose last run was this agent's, has no end, and is driven by nobody.

        Delegates are left to those they work for. A session that fails stops none of the others.
        """

    def as_tool(self, *, name: str | None = None, description: str | None = None) -> AnyTool:
        """This agent as a tool of another: a delegate.

        It works in a session of its own, derived from the call, and is taken up again when the parent is.
        What it may spend is held in the parent's budget: its own `budget`, or half of what is left. What it
        does once per session, it does once per root session.
        """

AnyRegistry: TypeAlias = Registry | AsyncRegistry
