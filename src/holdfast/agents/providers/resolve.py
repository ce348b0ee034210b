"""From a name to a model of pydantic-ai."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from pydantic_ai.exceptions import UserError
from pydantic_ai.models import Model, infer_model
from pydantic_ai.providers import Provider, infer_provider, infer_provider_class

from ...errors import BadInput, MissingExtra
from ...system import threads

COMPATIBLE: Final = "openai-compatible"
"""What stands for the provider in the name of a model on an OpenAI-compatible server."""

_IN_THE_EXTRA: Final = ("anthropic", "openai", "google")


def as_given(model: Model) -> Callable[[], Model]:
    """The same model for everybody."""
    return lambda: model


def by_name(name: str, *, base_url: str | None, api_key: str | None) -> Callable[[], Model]:
    """Gives each thread a model of its own, whose connections belong to the event loop of that thread.

    The first is made here, so that whatever is wrong with the name or the key is known at once.
    """
    mine = threads.local()

    def find() -> Model:
        model: Model | None = getattr(mine, "model", None)
        if model is None:
            model = mine.model = _make(name, base_url, api_key)
        return model

    find()
    return find


def _make(name: str, base_url: str | None, api_key: str | None) -> Model:
    try:
        if base_url is not None:
            return _compatible(name, base_url, api_key)
        return infer_model(name, infer_provider if api_key is None else _keyed(api_key))
    except ImportError as error:
        if name.startswith(_IN_THE_EXTRA):
            raise MissingExtra(f"the model {name!r}", "models") from error
        raise BadInput(f"the model {name!r} needs a further package: {error}") from error
    except (UserError, ValueError) as error:
        # What follows is advice about pydantic-ai's own `Agent`.
        why = str(error).partition(" To try Pydantic AI")[0]
        hint = "" if ":" in name else "; a name is like 'anthropic:claude-sonnet-5'"
        raise BadInput(f"cannot open the model {name!r}: {why}{hint}") from error


def _compatible(name: str, base_url: str, api_key: str | None) -> Model:
    from pydantic_ai.models.openai import OpenAIChatModel
    from pydantic_ai.providers.openai import OpenAIProvider

    class Compatible(OpenAIProvider):
        @property
        def name(self) -> str:
            return COMPATIBLE

    # Without a key of its own, the server is not sent the one that the environment has for OpenAI.
    return OpenAIChatModel(name, provider=Compatible(base_url=base_url, api_key=api_key or "none"))


def _keyed(api_key: str) -> Callable[[str], Provider[Any]]:
    def make(provider: str) -> Provider[Any]:
        kind: Callable[..., Provider[Any]] = infer_provider_class(provider)
        try:
            return kind(api_key=api_key)
        except TypeError as error:
            raise BadInput(f"the provider {provider!r} takes no api_key") from error

    return make
