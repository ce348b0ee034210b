"""The session that the SDK is given for one run: it shows the history, and adds what is not on record."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from agents import TResponseInputItem
from agents.memory import OpenAIResponsesCompactionArgs, SessionSettings

from .durable_run import RunRecord
from .items import InputItem, drop_orphan_outputs
from .session import Compacting, HoldfastSession


class RunSession:
    """Stands for the session of a durable run, for as long as the SDK runs the agent."""

    session_id: str
    session_settings: SessionSettings | None
    run_compaction: Callable[..., Awaitable[None]]
    """Compact the history. Only if the session does: by this name, the SDK knows one that it can ask."""

    def __init__(
        self,
        session_id: str,
        kept: HoldfastSession | None,
        recorder: Callable[[], Awaitable[RunRecord]],
    ) -> None:
        """`kept` is the caller's session, if there is one. `recorder` waits until the run is open."""
        self.session_id = session_id
        self.session_settings = None if kept is None else kept.session_settings
        self._recorder = recorder
        self._compaction = None if kept is None else kept.compaction
        if self._compaction is not None:
            self.run_compaction = self._run_compaction

    async def get_items(self, limit: int | None = None) -> list[TResponseInputItem]:
        """The items that the run began with, and those that it added."""
        recorder = await self._recorder()
        items = [*recorder.history, *recorder.saved]
        if limit is None and self.session_settings is not None:
            limit = self.session_settings.limit
        if limit is not None and limit >= 0:
            items = items[max(len(items) - limit, 0) :]
        return _theirs(drop_orphan_outputs(items))

    async def add_items(self, items: list[TResponseInputItem]) -> None:
        """Add items, as far as they are not on record."""
        recorder = await self._recorder()
        await recorder.save(_ours(items))

    async def pop_item(self) -> TResponseInputItem | None:
        """Take the last item away, and return it; None if there is none."""
        recorder = await self._recorder()
        items = [*recorder.history, *recorder.saved]
        if not items:
            return None
        await recorder.replace(items[:-1])
        return _theirs(items[-1:])[0]

    async def clear_session(self) -> None:
        """Begin the history anew."""
        recorder = await self._recorder()
        await recorder.replace(())

    async def replace_items(self, items: list[TResponseInputItem]) -> None:
        """Replace the whole history in one commit."""
        recorder = await self._recorder()
        await recorder.replace(_ours(items))

    async def _run_compaction(self, args: OpenAIResponsesCompactionArgs | None = None) -> None:
        recorder = await self._recorder()
        assert self._compaction is not None
        if not recorder.is_replaying:  # What was compacted before is on record.
            await Compacting(self, self._compaction).run(args, None)


def _ours(items: Any) -> list[InputItem]:
    return list(items)


def _theirs(items: Any) -> list[TResponseInputItem]:
    return list(items)
