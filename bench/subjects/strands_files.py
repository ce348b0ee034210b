"""strands' `FileSessionManager`: what its agent calls it with when a message is added."""

from __future__ import annotations

from typing import Any

from strands import Agent
from strands.hooks import MessageAddedEvent
from strands.models import BedrockModel
from strands.session.file_session_manager import FileSessionManager

from bench.subjects.contract import Place


class Files:
    """An agent for each session; no model is ever asked."""

    async def open(self, place: Place, sessions: int) -> None:
        self._place = str(place.directory)
        model = BedrockModel(region_name="us-east-1")
        self._agents: list[Any] = [
            Agent(
                model=model,
                agent_id="bench",
                session_manager=FileSessionManager(f"s{number}", storage_dir=self._place),
                callback_handler=None,
            )
            for number in range(sessions)
        ]

    async def reopen(self, place: Place) -> None:
        self._place = str(place.directory)

    async def step(self, session: int, first: str, second: str) -> None:
        agent = self._agents[session]
        for role, text in (("user", first), ("assistant", second)):
            message = {"role": role, "content": [{"text": text}]}
            agent.messages.append(message)
            await agent.hooks.invoke_callbacks_async(MessageAddedEvent(agent=agent, message=message))

    async def load(self, session: int) -> int:
        manager = FileSessionManager(f"s{session}", storage_dir=self._place)
        return len(manager.list_messages(f"s{session}", "bench"))

    async def close(self) -> None:
        """Nothing is held."""
