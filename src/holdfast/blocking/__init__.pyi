"""The types of `holdfast.blocking`. Made by tools/blocking_stubs.py from the async classes."""

from collections.abc import Awaitable, Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Generic, Literal, TypeAlias, overload

from pydantic_ai.messages import ModelMessage

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
from ..drivers.url import StoreAddress
from ..errors import HoldfastError
from ..formats.sdk_objects import SdkObject
from ..formats.transcript import MessageFormat
from ..ids import RunId, SessionId
from ..messages import ForeignMessage, Json, Media, Message
from ..session.cadence import Cadence
from ..session.effect_claims import OperationVerdict
from ..session.misuse import AsyncOnly
from ..session.resource_lease import Hold as AsyncHold
from ..session.rewind import Rewound
from ..session.run import Request as AsyncRequest
from ..session.run import Run as AsyncRun
from ..session.session import Session as AsyncSession
from ..session.session import T
from ..store.approvals import Answered, Doubt
from ..store.copy import Copied, TellProgress
from ..store.journal_file import ExportedFile
from ..store.opening import AnyStore
from ..store.store import Store as AsyncStore
from ..store.work_queue import WorkerInfo
from ..tools.declaration import AnyTool, Hook
from ..tools.dispatch import OnResult
from ..tools.effects_by_name import ToolEffects
from ..tools.outcome import Result
from ..tools.policy import Policy
from ..tools.registry import Provider
from ..tools.registry import Registry as AsyncRegistry
from ..tools.retry import Retry
from ..tools.runner import InDoubtPolicy
from ..tools.waiting import StepResults
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
    url: StoreAddress | None = None,
    *,
    blobs: str | BlobHome | None = None,
    blob_urls: PublicUrls | None = None,
    create: bool = True,
    read_only: bool = False,
    schema: str | None = None,
    lease_s: float = ...,
    linger_s: float = ...,
    codecs: Iterable[Codec] = (),
    inline_bytes: int | None = ...,
    result_chars: int | None = ...,
) -> AbstractContextManager[Store]:
    """Open the store that `url` names: `with open_store("sqlite:agents.db") as store`.

    `url` is `memory:`, `dir:PATH`, `sqlite:PATH` or `postgresql://…`; or a `Path` (SQLite), a
    `psycopg_pool.ConnectionPool` (PostgreSQL), or a driver. Without it, `HOLDFAST_STORE` is read.

    `blobs`: the home of large content (`s3://bucket/prefix`, or what `open_home` returned), by default the
    store itself. `blob_urls`: how others reach blobs by URL. `create=False`: a missing store raises
    `NotFound`. `read_only`: nothing is written, neither a lease nor a new schema; what would write raises
    `OpenedToRead`, and a missing store `NotFound`. `schema`: the PostgreSQL schema of the tables
    (`holdfast`). `lease_s`: how long a process without a heartbeat counts as alive. `linger_s`: how long an
    entry may stay in memory if no caller waits for it. Binary content of `inline_bytes` or more, and the text
    of a tool's result beyond `result_chars`, is stored as a blob; None keeps all of it in the journal.
    """

class Store(AsyncOnly):
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
        """Open a session, or create it: `with store.session("order-42") as session`.

        Takes the lease. If another holder may be alive, waits up to `wait_s` for it, then raises `LeaseHeld`.
        `labels` and `parent` are used when the session is created; `create=False` raises `NotFound` instead.
        """

    def load(self, session: str, version: int | None = None) -> SessionState:
        """Read the state of a session, now or at a version. Takes no lease and changes nothing.

        Messages are read when they are first looked at, or when the store is closed: the state outlives it.
        """

    def head(self, session: str) -> Head:
        """Read what listings show of a session, without folding it."""

    def is_held(self, head: Head) -> bool:
        """True if the session has a holder that may be alive."""

    def overview(self, session: str) -> Overview:
        """Summarize a session without reading its whole transcript."""

    def checkpoints(self, session: str) -> Iterator[Checkpoint]:
        """Iterate over the versions of a session, oldest first."""

    def drop(self, session: str, version: int, *, wait_s: float = 0) -> None:
        """Drop a version. Other versions, and resuming, are not affected."""

    def diff(self, session: str, a: int, b: int) -> Diff:
        """Compare version `a` with version `b`."""

    def fork(
        self,
        session: str,
        *,
        version: int | None = None,
        into: str | None = None,
        labels: Mapping[str, str] | None = None,
    ) -> SessionId:
        """Create a session that starts from a version of another, by default the latest; its id.

        History is shared, not copied. The origin keeps its spending, its runs and its inbox.
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
        """Post a message to the inbox of a session; its number there. Durable on return.

        The holder takes it in at the end of its step. Without a holder, a `Worker` that has the session's
        agent opens the session. `agent` names the agent to use; then a missing session is created, with these
        `labels`. Messages with the same `key` are taken in once.
        """

    def cancel(self, session: str, *, by: str = "", reason: str = "") -> int:
        """Ask the run of a session to stop. Durable on return."""

    def in_doubt(self) -> Iterator[Doubt]:
        """Iterate over the calls in doubt of all sessions: issued, and their outcome is unknown.

        A call of a deleted session has an `operation`: one of scope `global`, or the key of an effect that a
        fork shares. Answer it with `resolve_operation`.
        """

    def resolve(
        self, session: str, call: str | int, verdict: Verdict, *, by: str, note: str = "", result: Json = None
    ) -> Answered:
        """Say what became of a call in doubt: `landed` (with its result), `not_landed` or `gave_up`.

        The verdict and `by` are recorded, by the holder of the session, or here if there is none.
        """

    def resolve_operation(
        self, operation: str, verdict: OperationVerdict, *, by: str, note: str = "", result: Json = None
    ) -> Answered:
        """Say what became of an operation whose session was deleted while it was in doubt.

        `operation` is a `global` one, or the key of an effect that forks of that session share: `in_doubt`
        lists it, and a call that it blocks names it. The verdict and `by` are recorded with the claim.
        `landed`: every session gets the result; `not_landed`: the next session runs it.
        """

    def approve(
        self, session: str, call: str | int, *, by: str, args: Json = None, note: str = ""
    ) -> Answered:
        """Approve a call that waits, perhaps with corrected arguments. Both versions are recorded."""

    def refuse(self, session: str, call: str | int, *, by: str, reason: str = "") -> Answered:
        """Refuse a call that waits. The model is told the reason."""

    def tail(self, session: str, *, after: int = 0, follow: bool = True) -> Generator[Entry]:
        """Iterate over the entries of a session as they become durable.

        Ends after the last entry; with `follow`, when the session is deleted, even if another one is created
        under its id. A caller that stops earlier closes the iterator (`aclosing`).
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
        """Iterate over sessions in the order of their ids.

        `interrupted`: the last run has no end and no live holder. A session that is too damaged to list is
        left out: `on_damaged` is called with its id and the error, which is logged by default.
        """

    def runs(self, *, session: str | None = None, parent: str | None = None) -> Iterator[RunInfo]:
        """Iterate over runs, oldest first: of one session, of one parent run, or all. Filters combine."""

    def workers(self) -> Iterator[WorkerInfo]:
        """Iterate over the workers of the store, each as it last described itself."""

    def put_blob(
        self,
        data: BlobData,
        *,
        media_type: str = "application/octet-stream",
        name: str | None = None,
        metadata: Mapping[str, str] | None = None,
    ) -> Blob:
        """Store bytes, a file or a stream under their digest. Durable on return.

        Equal bytes are stored once, with their first description. `collect_blobs` removes a blob that no
        session refers to: show it in a message, as `store.media(blob)`.
        """

    def media(self, blob: Blob) -> Media:
        """Make a message block that shows the blob, without reading it."""

    def open_blob(self, reference: str) -> AbstractContextManager[OpenBlob]:
        """Read a blob, in parts or as a whole: `with store.open_blob(reference) as blob`.

        `reference` is `media+sha256://<hex>` or the digest alone. Raises `NotFound` if it is missing, and
        `Corrupt` at the end if its bytes do not match the digest.
        """

    def find_blob_url(self, reference: str) -> str | None:
        """Find a URL for reading the blob from elsewhere; None if the blob is missing or has no URL.

        `blob_urls` makes it, or it is a signed URL of the object store that is the home.
        """

    def read_blob(self, reference: str) -> Iterator[bytes]:
        """Iterate over the bytes of a blob, in parts."""

    def blobs(self, *, sessions: bool = False) -> Iterator[Blob]:
        """Iterate over all blobs in the order of their digests.

        With `sessions`, each names the sessions that refer to it; this reads every journal of the store.
        """

    def collect_blobs(self, *, grace_s: float = ..., dry_run: bool = True, alone: bool = False) -> Collected:
        """Find blobs that no session, version, fork or inbox refers to; with `dry_run=False`, remove them.

        Blobs that were put within the last `grace_s` stay. A grace below half an hour needs `alone=True`: no
        other process has the store open. Fails at an unreadable line, and if the home belongs to another
        store.
        """

    def copy(
        self,
        target: Store | str | Path,
        sessions: Iterable[str] | None = None,
        *,
        into: str | None = None,
        move: bool = False,
        dry_run: bool = False,
        tell: TellProgress | None = None,
    ) -> Copied:
        """Copy sessions into another store, as replicas: all of them, or some with their families.

        A family is a session with its delegates and its parents; forks bring the history that they share. A
        replica can be read; only its original is driven. Copying again brings what is new, and goes on with
        a copy that died. `into`: of the one session that is named, also make a session of this id that can
        be driven, as a fork of its replica. `move`: from then on the target drives them, and the source has
        replicas; no process may hold them. `target` is an open store, or is opened from its URL or path.
        `tell` is called as the copy makes progress.
        """

    def export_file(
        self, path: str | Path, sessions: Iterable[str] | None = None, *, blobs: str | Path | None = None
    ) -> ExportedFile:
        """Write sessions into a file that `import_file` reads: all of them, or some with their families.

        JSON lines with the journals byte for byte, and their blobs in them, or in the folder `blobs`; or, if
        `path` ends with `.tar`, one archive of both. The file is there whole or not at all.
        """

    def import_file(
        self,
        path: str | Path,
        *,
        into: str | None = None,
        blobs: str | Path | None = None,
        dry_run: bool = False,
        tell: TellProgress | None = None,
    ) -> Copied:
        """Read a file of `export_file`, as replicas: see `copy`. `blobs` is the folder of its blobs.

        `into`: of the one session that was exported, also make a session of this id that can be driven.
        Every line is checked before anything is written: `Corrupt` names one that was edited.
        """

    def clean(
        self, session: str, *, transcript: bool = True, checkpoints: bool = True, wait_s: float = 0
    ) -> Literal["deleted", "cleaned"]:
        """Erase the contents of messages and results, drop all versions, or (both) delete the session.

        Digests replace erased contents. Contents that a fork refers to stay, and so does the ledger unless
        the session is deleted. A replica can only be deleted as a whole.
        """

    def delete(self, session: str, *, wait_s: float = 0) -> None:
        """Delete a session. Its forks keep the entries that they share; its id can be used again at once."""

    @property
    def with_loop(self) -> AsyncStore: ...

class Session(AsyncOnly):
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
        """Calls in doubt: issued, and their outcome is unknown."""

    @property
    def version(self) -> int:
        """The version that the present state was built on; 0 before the first checkpoint."""

    @property
    def checkpoints(self) -> list[Checkpoint]:
        """The versions that can be loaded, forked from and rewound to, oldest first."""

    @property
    def problems(self) -> tuple[Problem, ...]:
        """Why a provider would reject the transcript; empty if it would not."""

    @property
    def continuable(self) -> bool:
        """True if a provider accepts the transcript: each tool call has its result."""

    @property
    def status(self) -> SessionStatus:
        """The status of the session: how its last run ended."""

    @property
    def labels(self) -> Mapping[str, str]:
        """The labels of the session."""

    @property
    def scratchpad(self) -> Path | None:
        """The directory for the files of the session, if one was set."""

    @property
    def cancel_requested(self) -> str | None:
        """The reason given with `store.cancel`, if the session was asked to stop."""

    @property
    def keys(self) -> Sequence[str]:
        """The keys of the values set with `set`."""

    @property
    def left_at_origin(self) -> tuple[LeftBehind, ...]:
        """Of a fork: effects of its origin after the version that the fork started from."""

    def left_behind(self, version: int | None = None) -> list[Effect]:
        """List the effects after a version. A rewind to it does not undo them."""

    @property
    def system(self) -> str:
        """The text of the system messages that the transcript begins with, for clients that take it apart
        from the messages, as Anthropic's."""

    @overload
    def messages(
        self, format: Literal["pydantic-ai"], *, links: bool = False, unfinished: bool = False
    ) -> list[ModelMessage]: ...
    @overload
    def messages(
        self, format: MessageFormat | str, *, links: bool = False, unfinished: bool = False
    ) -> list[Json]: ...
    @overload
    def add(self, message: str | Message | ForeignMessage | SdkObject | ModelMessage) -> None: ...
    @overload
    def add(self, message: Json, *, format: str) -> None: ...
    def set(self, key: str, value: object) -> None:
        """Store a value under a key. A value that cannot be encoded is stored as an `Opaque`."""

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
        """Replace the caps. Past spending still counts."""

    def set_scratchpad(self, root: str | Path) -> Path:
        """Create the directory if it is missing, and record its path."""

    def label(self, **labels: str | None) -> None:
        """Set labels; None removes one."""

    def compact(self, message: str | Message, *, keep: int) -> None:
        """Replace all but the last `keep` messages by a user message. The journal keeps the original.

        A reply and the results of its calls stay together, so one message more may be replaced. More are kept
        if one of those to keep was sent while the model worked.
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
        resumes: bool = False,
    ) -> AbstractContextManager[Run]:
        """Begin a run, one drive of an agent's loop: `with session.run(agent="planner") as run`.

        Its parent is the run around the caller, in any session, unless `parent` names another. `tools` has a
        digest of each tool's description; it is recorded beside the digest of the instructions. `resumes`
        says that it goes on without a new message.
        """

    def checkpoint(self, name: str | None = None) -> int:
        """End the step with a checkpoint; its version. Without changes, the last version."""

    def drop(self, version: int) -> None:
        """Drop this version. The journal and the other versions are not affected. Durable on return."""

    def rewind(
        self,
        *,
        steps: int | None = None,
        version: int | None = None,
        undo: bool = False,
        registry: AnyRegistry | None = None,
        deps: object = None,
    ) -> Rewound:
        """Go back by some steps, or to a version. The journal keeps what is left behind. Durable on return.

        `steps=1` leaves the last step behind, `steps=0` only what came after it. `version` may be one that an
        earlier rewind left behind. Effects are not undone, except with `undo=True`: then the tools of the
        `registry` undo what they can, the last first, and `undone` of the result says what became of each.
        `left_behind(version)` lists those effects beforehand.
        """

    def settle(
        self, registry: AnyRegistry, *, deps: object = None, policy: str | None = None
    ) -> list[Effect]:
        """Settle the calls in doubt; returns those that stay in doubt.

        A tool's `verify` is called first; an idempotent tool runs again with the same key. The rest waits for
        a person (`policy="wait"`), or the model is told (`"tell"`).
        """

    def continue_(self) -> int:
        """Go back to the latest continuable point, which may be the present one; its version."""

    def close(self, status: SessionStatus = "completed", reason: str = "") -> None:
        """Set the status. The lease stays until the `with` block ends. Durable on return."""

    def take_in(self) -> int:
        """Take in what other processes sent to the inbox; how many items. `flush` does so, too."""

    def hold(self, name: str, *, wait_s: float = 0) -> AbstractContextManager[Hold]:
        """Take a named lease on a shared resource: `with session.hold("repo/main.py") as held`."""

class Run:
    """`holdfast.records.Run` without an event loop."""

    _loop: Loop
    _target: AsyncRun

    @property
    def id(self) -> RunId:
        """The id of the run: the given one, `{agent}-{8 hex}`, or a UUID. No two runs share one."""

    def complete(self, output: Json = None) -> None:
        """Set the output of the run; recorded when the block ends without an error."""

    def fail(self, reason: str, error: str = "") -> None:
        """End the run as failed, without an exception: a spent budget, a step limit.

        `reason` is a code, which stays when what was said is erased. Words belong into `error`.
        """

    def cancel(self, reason: str = "") -> None:
        """End the run as cancelled."""

    def pause(self, reason: str) -> None:
        """End the run as paused: it waits for a person, and the status of the session becomes `waiting`.

        `reason` is a code, which stays when what was said is erased.
        """

    def request(
        self, *, model: str | None = None, reserve_usd: float = 0.0, reserve_tokens: int = 0
    ) -> AbstractContextManager[Request]:
        """Begin a request to a model: `with run.request(reserve_usd=0.05) as request`.

        Raises `BudgetSpent` instead of exceeding a cap. The reservation counts as spent until the outcome is
        known, also if the process dies meanwhile.
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
        """Record the reply of the model. Durable on return. `model` is the model that replied.

        What a provider's client returned is taken as it is (see `Session.add`), and its usage and model where
        they are not given.
        """

class Hold:
    """`holdfast.records.Hold` without an event loop."""

    _loop: Loop
    _target: AsyncHold

    @property
    def name(self) -> str: ...
    @property
    def fence(self) -> int: ...
    def check(self) -> None:
        """Raise `Fenced` if another holder has taken the resource meanwhile."""

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
        effects: Mapping[str, ToolEffects] | None = None,
        policy: Policy | None = None,
        in_doubt: InDoubtPolicy = "wait",
        max_repeats: int = ...,
        max_crashes: int = ...,
        grace_s: float = ...,
    ) -> None: ...
    @property
    def grace_s(self) -> float: ...
    def add(self, given: AnyTool | Callable[..., Any]) -> AnyTool:
        """Add a tool; a plain function counts as one that declares nothing."""

    def in_replay(self, body: Callable[[AnyTool], Hook | None]) -> Registry:
        """The same registry with other bodies: its gates decide, and nothing of its tools is run. A tool for
        which there is none stays as it is."""

    @property
    def waits_for_people(self) -> bool:
        """Whether a call in doubt waits for a person; else the model is told."""

    @property
    def tools(self) -> Mapping[str, AnyTool]:
        """The tools by name."""

    def get_tool(self, name: str) -> AnyTool:
        """The tool with this name, or `NotFound`."""

    def schemas(self, provider: Provider = "json") -> list[dict[str, Json]]:
        """The tools in the form that a provider expects."""

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
    ) -> StepResults:
        """Dispatch the calls of the last reply together; those that have a result keep it.

        One commit carries all intents. Calls of one tool that writes run in the reply's order, everything
        else side by side. `on_result` is called with each result as soon as it is there.

        If `waiting` of what is returned is not empty, a call has no result yet: end the run, and dispatch the
        step again when a person has answered.
        """

    def settle(
        self,
        session: Session,
        *,
        deps: Any = None,
        policy: str | None = None,
        tool: AnyTool | None = None,
        on_result: OnResult | None = None,
    ) -> list[Effect]:
        """Settle the calls in doubt; see `Session.settle`.

        `tool` stands in for the registry's tool of that name. `on_result` is called with each result.
        """

    def settle_call(
        self, session: Session, row: Effect, *, tool: AnyTool | None = None, deps: Any = None
    ) -> None:
        """Settle one call in doubt, and leave the others alone; `tool` as in `dispatch_call`."""

    def settle_all(
        self, store: AnyStore | None = None, *, deps: Any = None, policy: str | None = None
    ) -> list[Doubt]:
        """Settle the calls in doubt of every session that has no holder; those that stay in doubt."""

    def undo(self, session: Session, effects: Sequence[Effect], *, deps: Any = None) -> list[Undone]:
        """Take effects back, the last first; each undo is recorded as an effect of its own."""

    @property
    def with_loop(self) -> AsyncRegistry: ...

class Agent(Generic[DepsT, OutputT]):
    """`holdfast.Agent` without an event loop. Models and async tools run in the store's."""

    def __init__(
        self,
        model: Model | str,
        *,
        tools: Iterable[AnyTool | Callable[..., Any]] = (),
        effects: Mapping[str, ToolEffects] | None = None,
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
    def in_replay(
        self,
        model: Model | None,
        body: Callable[[AnyTool], Hook],
        before_request: Callable[[Session], Awaitable[None]],
    ) -> Agent[DepsT, OutputT]:
        """The same agent with another model (None: its own) and other bodies of its tools, for a replay.

        The tool with which the model gives a typed output keeps its own: it only checks the type. There is no
        cap on seconds: a replay takes none.
        """

    @property
    def model_name(self) -> str:
        """The name of its model, which need not be opened for that."""

    @property
    def budget(self) -> Budget | None:
        """The caps that it sets on its sessions; None if it leaves those that they have."""

    def run(
        self,
        message: str | Message | ForeignMessage,
        *,
        session: str | Session | None = None,
        store: AnyStore | None = None,
        deps: DepsT | None = None,
        run_id: str | None = None,
        parent: str | Parent | None = None,
        labels: Mapping[str, str] | None = None,
        cadence: Cadence = "step",
        wait_s: float = 0,
        key: str | None = None,
    ) -> Outcome[OutputT]:
        """Give the agent a message, and drive the session until there is an outcome.

        `session` is an id or an open session; without it, a new session is made. In a session that exists,
        what a dead process left unfinished is finished first. `store` is an open store, or the URL or `Path`
        of one that is opened for the call; without it, the environment variable `HOLDFAST_STORE` names it.

        With a `key`, the message is added once: given again, in any process, it has the outcome that is on
        record, or is answered if it was not yet. Another message with the same key raises `KeyReused`.
        """

    def resume(
        self,
        session: str | Session,
        *,
        store: AnyStore | None = None,
        deps: DepsT | None = None,
        cadence: Cadence = "step",
        wait_s: float = 0,
    ) -> Outcome[OutputT]:
        """Continue a session after a crash, a cancellation, or a person's answer.

        If its last run completed, return the recorded outcome and run nothing.
        """

    def stream(
        self,
        message: str | Message | ForeignMessage | None = None,
        *,
        session: str | Session | None = None,
        store: AnyStore | None = None,
        deps: DepsT | None = None,
        run_id: str | None = None,
        parent: str | Parent | None = None,
        labels: Mapping[str, str] | None = None,
        cadence: Cadence = "step",
        wait_s: float = 0,
        key: str | None = None,
    ) -> Generator[Event[OutputT]]:
        """Do the same as `run`, or without a message as `resume`, and yield events; the outcome comes last.

        Closing the stream cancels the run; it can be resumed. Text deltas are not stored, replies are. Of a
        message that was answered before (`key`), there is only the outcome.
        """

    def resume_all(
        self, store: AnyStore | None = None, *, concurrency: int = ..., deps: DepsT | None = None
    ) -> list[Outcome[OutputT]]:
        """Resume every session whose last run was this agent's, has not ended, and has no live holder.

        Delegates are skipped: the sessions that they work for resume them. A session that fails does not stop
        the others.
        """

    def as_tool(self, *, name: str | None = None, description: str | None = None) -> AnyTool:
        """Make this agent a tool of another agent: a delegate.

        Its session is derived from the call, and is resumed when the parent is. What it may spend is reserved
        in the parent's budget: its own `budget`, or half of what is left. Operations of its tools that are
        done once per session are done once per root session.
        """

AnyRegistry: TypeAlias = Registry | AsyncRegistry
