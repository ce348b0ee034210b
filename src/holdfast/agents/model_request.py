"""Requests to a model: reserve their cost, send them, retry them, and record the reply."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import aclosing
from typing import Final, TypeAlias

import anyio
from msgspec import Struct
from msgspec.structs import replace

from ..core.budget import Budget, BudgetState, Reservation
from ..errors import BadInput, ModelError
from ..limits import REPLY_TOKENS_MIN, RETRY_AFTER_MAX_S
from ..messages import Message, ResultPart, shape_of
from ..session.run import Run
from ..session.session import Session
from ..system import randomness
from ..tools.retry import Retry
from .model import Model, Prompt, Reply, TextDelta
from .outcome import Retrying
from .prices import Price, estimate_input_tokens, find_cost_usd, find_reserve_usd

OnEvent: TypeAlias = Callable[[TextDelta | Retrying], None]
Sign: TypeAlias = Callable[[Message], Message]
"""Adds the name of the agent to a reply."""

LAST_CALL: Final = (
    "This is the last reply that the budget allows: answer now with what you have, and call no more tools."
)


class RequestCosts(Struct):
    """What the requests of one drive have cost: an estimate for the next one."""

    asked: int = 0
    """The estimated tokens of the last prompt."""
    grown: int = 0
    """The largest growth from one prompt to the next, in tokens."""
    tokens: int = 0
    usd: float = 0.0
    """What the most expensive request took."""

    def note_prompt(self, asked: int) -> None:
        """Note the length of a prompt that is about to be sent."""
        if self.asked:
            self.grown = max(self.grown, asked - self.asked)
        self.asked = asked

    def note_reply(self, tokens: int, usd: float) -> None:
        """Note what a request took."""
        self.tokens, self.usd = max(self.tokens, tokens), max(self.usd, usd)


class ModelClient(Struct, frozen=True, kw_only=True):
    """A model with its price, limits and retries."""

    model: Model
    price: Price | None
    max_tokens: int
    retry: Retry

    @property
    def links(self) -> bool:
        """Whether the model is sent links in the place of bytes."""
        return bool(getattr(self.model, "links", False))

    def check(self, caps: Budget) -> None:
        """Refuse a cap in USD if the model's price is not known."""
        if caps.usd is not None and self._reserve_usd(1, 1) is None:
            raise BadInput(
                f"a budget in USD needs a price, and none is known for {self.model.name!r}: "
                "give the agent price=holdfast.agents.Price(…), or cap tokens instead"
            )

    async def ask(
        self,
        session: Session,
        run: Run,
        prompt: Prompt,
        *,
        costs: RequestCosts,
        sign: Sign,
        on_event: OnEvent,
    ) -> None:
        """Ask until there is a reply, and record it. Each attempt is recorded and has its reservation."""
        for attempt in range(1, self.retry.attempts + 1):
            try:
                await self._ask_once(session.budget, run, prompt, costs, sign, on_event)
                return
            except ModelError as error:
                pause_s = max(self.retry.pause_s(attempt, randomness.random()), error.retry_after_s or 0.0)
                if not error.retryable or attempt == self.retry.attempts or pause_s > RETRY_AFTER_MAX_S:
                    raise
                on_event(Retrying(error=str(error), attempt=attempt, pause_s=pause_s))
                await anyio.sleep(pause_s)

    async def _ask_once(
        self,
        budget: BudgetState,
        run: Run,
        prompt: Prompt,
        costs: RequestCosts,
        sign: Sign,
        on_event: OnEvent,
    ) -> None:
        prompt, held = self._reserve(budget, prompt, costs)
        async with run.request(
            model=self.model.name, reserve_usd=held.usd, reserve_tokens=held.tokens
        ) as request:
            reply = await self._read_reply(prompt, on_event)
            cost_usd = find_cost_usd(self.model.name, reply.usage, price=self.price)
            if cost_usd is None or reply.usage.is_negative:
                cost_usd = held.usd  # The cost is unknown: count the whole reservation.
            usage = reply.usage.without_negatives()
            costs.note_reply(usage.tokens, cost_usd)
            await request.reply(sign(reply.message), usage=usage, cost_usd=cost_usd, model=reply.model)

    async def _read_reply(self, prompt: Prompt, on_event: OnEvent) -> Reply:
        reply: Reply | None = None
        async with aclosing(self.model.ask(prompt)) as events:
            async for event in events:
                if isinstance(event, Reply):
                    reply = event
                else:
                    on_event(event)
        if reply is None:
            raise ModelError(f"{self.model.name} ended without a reply", retryable=True, charged=True)
        shape = shape_of(reply.message)
        if shape.role != "assistant" or any(isinstance(part, ResultPart) for part in shape.parts):
            # If it were recorded, the loop would not end, or the provider would refuse every later request.
            raise BadInput(f"{self.model.name}: a reply is an assistant's message, without results of calls")
        return reply

    # -- what it may cost ------------------------------------------------------------------------------

    def _reserve(
        self, budget: BudgetState, prompt: Prompt, costs: RequestCosts
    ) -> tuple[Prompt, Reservation]:
        """Reserve the most that the reply may cost. Near the end of the budget, the reply must be shorter."""
        caps = budget.caps
        if caps.tokens is None and caps.usd is None:
            return replace(prompt, max_tokens=self.max_tokens), Reservation()
        asked = estimate_input_tokens(prompt)
        room = min(self.max_tokens, self._room(budget, asked))
        most = max(room, REPLY_TOKENS_MIN)
        held = Reservation(self._reserve_usd(asked, most) or 0.0, asked + most)
        costs.note_prompt(asked)
        if room < self.max_tokens or not self._leaves_another(budget, costs):
            prompt = replace(prompt, instructions=f"{prompt.instructions}\n\n{LAST_CALL}".strip())
        return replace(prompt, max_tokens=most), held

    def _leaves_another(self, budget: BudgetState, costs: RequestCosts) -> bool:
        """Whether the budget allows one more reply after this one.

        Assumes that this request costs as much as the most expensive one so far, and that the next prompt
        grows as much as any did.
        """
        asked, longer, least = costs.asked, costs.asked + costs.grown, REPLY_TOKENS_MIN
        if budget.caps.tokens is not None:
            left = budget.caps.tokens - budget.tokens - budget.reserved.tokens
            if left - (costs.tokens or asked + least) < longer + least:
                return False
        if budget.caps.usd is not None:
            left_usd = budget.caps.usd - budget.usd - budget.reserved.usd
            this_usd = costs.usd or self._reserve_usd(asked, least) or 0.0
            return left_usd - this_usd >= (self._reserve_usd(longer, least) or 0.0)
        return True

    def _room(self, budget: BudgetState, asked: int) -> int:
        """How many tokens a reply may have within the caps."""
        room = self.max_tokens
        if budget.caps.tokens is not None:
            room = min(room, budget.caps.tokens - budget.tokens - budget.reserved.tokens - asked)
        whole = self._reserve_usd(asked, self.max_tokens)
        if budget.caps.usd is not None and whole is not None:
            left = budget.caps.usd - budget.usd - budget.reserved.usd
            prompt_usd = self._reserve_usd(asked, 0) or 0.0
            a_token = (whole - prompt_usd) / self.max_tokens
            if whole > left:
                room = min(room, int((left - prompt_usd) / a_token) if a_token else 0)
        return room

    def _reserve_usd(self, asked: int, most: int) -> float | None:
        return find_reserve_usd(self.model.name, input_tokens=asked, output_tokens=most, price=self.price)
