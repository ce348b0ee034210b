"""Models of any provider, by way of pydantic-ai's model layer (extra `models`)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from ...errors import BadInput, MissingExtra
from ...messages import Json

if TYPE_CHECKING:
    from pydantic_ai.models import Model as ForeignModel

    from .provider_model import ProviderModel


def open_model(
    model: str | ForeignModel,
    *,
    base_url: str | None = None,
    api_key: str | None = None,
    settings: Mapping[str, Json] | None = None,
    links: bool = False,
) -> ProviderModel:
    """A model by its name, as in `open_model("anthropic:claude-sonnet-4-5")`.

    With `base_url`, one of an OpenAI-compatible server, by its name there: `open_model("llama3:8b",
    base_url="http://127.0.0.1:8080/v1")`, or in one string, `"http://127.0.0.1:8080/v1#llama3:8b"`. A model
    of pydantic-ai is taken as it is. `api_key` is otherwise the one in the provider's environment variable,
    and `settings` are pydantic-ai's: `{"temperature": 0}`. With `links`, it is sent links in the place of
    media that are kept as blobs, where their home gives some.

    `BadInput` if there is no such provider or no key for it. The first one opened takes seconds, for the
    libraries to be imported: open it outside of an event loop.
    """
    try:
        from . import provider_model
    except ImportError as error:
        raise MissingExtra("a model by its name", "models") from error
    if not isinstance(model, str):
        if base_url is not None or api_key is not None:
            raise BadInput("open_model(): base_url and api_key are for a model given by its name")
        return provider_model.ProviderModel(
            model.model_id, provider_model.as_given(model), settings or {}, links=links
        )
    if base_url is None and model.startswith(("http://", "https://")):
        base_url, hash_mark, model = model.rpartition("#")
        if not hash_mark:
            raise BadInput(f"open_model({model!r}): which model of that server? Say so after a '#'")
    name = model if base_url is None else f"{provider_model.COMPATIBLE}:{model}"
    find = provider_model.by_name(model, base_url=base_url, api_key=api_key)
    return provider_model.ProviderModel(name, find, settings or {}, links=links)
