"""A provider's response as the loop's reply."""

from __future__ import annotations

from pydantic_ai.messages import ModelResponse

from ...formats.pydantic_ai import message_from, usage_from
from ..model import Reply


def reply_from(response: ModelResponse) -> Reply:
    """Make our reply from a provider's response."""
    return Reply(message=message_from(response), usage=usage_from(response), model=response.model_name)
