"""Models of any provider, through pydantic-ai's model layer (extra `models`)."""

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
    """Open a model by its name, as in `open_model("anthropic:claude-sonnet-4-5")`.

    With `base_url`, open a model of an OpenAI-compatible server: `open_model("llama3:8b",
    base_url="http://127.0.0.1:8080/v1")`, or in one string, `"http://127.0.0.1:8080/v1#llama3:8b"`. A model
    of pydantic-ai is used as it is. Without `api_key`, the provider's environment variable has the key.
    `settings` are pydantic-ai's: `{"temperature": 0}`. With `links`, the model is sent links in the place of
    media that are kept as blobs, if their home has links.

    Raises `BadInput` for an unknown provider or a missing key. The first call imports large libraries, which
    takes seconds: make it outside of an event loop.
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
