"""Names of spans, attributes and metrics: those of OpenTelemetry's GenAI conventions, and our own.

They are literals, because the package that has them as constants marks these as unstable.
"""

from __future__ import annotations

import re
from typing import Final

from ..reprs import name_of, qualified_name_of

# -- attributes of the conventions -------------------------------------------------------------------

OPERATION: Final = "gen_ai.operation.name"
PROVIDER: Final = "gen_ai.provider.name"
AGENT: Final = "gen_ai.agent.name"
CONVERSATION: Final = "gen_ai.conversation.id"
REQUEST_MODEL: Final = "gen_ai.request.model"
RESPONSE_MODEL: Final = "gen_ai.response.model"
INPUT_TOKENS: Final = "gen_ai.usage.input_tokens"
OUTPUT_TOKENS: Final = "gen_ai.usage.output_tokens"
CACHE_READ_TOKENS: Final = "gen_ai.usage.cache_read.input_tokens"
CACHE_WRITE_TOKENS: Final = "gen_ai.usage.cache_creation.input_tokens"
TOKEN_TYPE: Final = "gen_ai.token.type"
TOOL: Final = "gen_ai.tool.name"
TOOL_TYPE: Final = "gen_ai.tool.type"
CALL_ID: Final = "gen_ai.tool.call.id"
ERROR: Final = "error.type"

INVOKE_AGENT: Final = "invoke_agent"
CHAT: Final = "chat"
EXECUTE_TOOL: Final = "execute_tool"

# -- attributes of our own ---------------------------------------------------------------------------

RUN: Final = "holdfast.run.id"
RUN_STATUS: Final = "holdfast.run.status"
STEP: Final = "holdfast.step.number"
VERSION: Final = "holdfast.step.version"
COST: Final = "holdfast.usage.cost_usd"
CALL_STATUS: Final = "holdfast.tool.status"
REPLAY_OF: Final = "holdfast.tool.replay_of"
ATTEMPT: Final = "holdfast.tool.attempt"
GATE: Final = "holdfast.tool.gate"

# -- metrics -----------------------------------------------------------------------------------------

TOKEN_USAGE: Final = "gen_ai.client.token.usage"
CHAT_DURATION: Final = "gen_ai.client.operation.duration"
RUN_DURATION: Final = "gen_ai.invoke_agent.duration"
CALL_DURATION: Final = "gen_ai.execute_tool.duration"
REFUSALS: Final = "holdfast.tool.refusals"

# The buckets that the conventions prescribe.
TOKEN_BUCKETS: Final = [4**power for power in range(14)]
SECONDS_BUCKETS: Final = [0.01 * 2**power for power in range(14)]
RUN_BUCKETS: Final = [0.1 * 2**power for power in range(13)]

# -- providers ---------------------------------------------------------------------------------------

_UNKNOWN: Final = "_OTHER"
_PROVIDERS: Final = {
    "azure": "azure.ai.openai",
    "bedrock": "aws.bedrock",
    "google": "gcp.gemini",
    "google-gla": "gcp.gemini",
    "google-vertex": "gcp.vertex_ai",
    "grok": "x_ai",
    "mistral": "mistral_ai",
    "moonshotai": "moonshot_ai",
    "openai-chat": "openai",
    "openai-responses": "openai",
    "xai": "x_ai",
}
"""Providers whose name in the conventions differs from the prefix of a model's name."""

_PREFIXED: Final = re.compile(r"([A-Za-z][A-Za-z_-]*):(.+)", re.DOTALL)


def split_model(name: str) -> tuple[str, str]:
    """The provider (as the conventions name it) and the model of `provider:model`."""
    # The journal refuses a name that is no text; telemetry must not raise.
    text = str(name)
    found = _PREFIXED.fullmatch(text)
    if found is None:
        return _UNKNOWN, text
    provider = found[1].lower()
    return _PROVIDERS.get(provider, provider), found[2]


def kind_of(error: BaseException) -> str:
    """The class of an exception. Its text may hold user data, and is not reported."""
    kind = type(error)
    if name_of(kind) in ("CancelledError", "Cancelled"):
        return "cancelled"  # On every event loop.
    module, name = qualified_name_of(kind)
    return name if module == "builtins" else f"{module}.{name}"
