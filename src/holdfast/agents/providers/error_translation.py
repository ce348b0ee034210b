"""The failures of providers, in our words."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import httpx2
from pydantic_ai.exceptions import (
    ContentFilterError,
    FallbackExceptionGroup,
    ModelAPIError,
    ModelConnectionError,
    ModelHTTPError,
    ModelQuotaExceededError,
    ModelRequestRejectedError,
    UnexpectedModelBehavior,
    UserError,
)

from ...errors import ModelError

_WHY_CHARS_MAX: Final = 500

# Timed out, in conflict with another request, too early, too many; and everything from 500 on.
_RETRYABLE: Final = frozenset({408, 409, 425, 429})
_SERVER_FAILED: Final = 500


@contextmanager
def translated(name: str) -> Iterator[None]:
    """Whatever the provider, its library or the network raises within leaves as a `ModelError`."""
    try:
        yield
    except (ModelAPIError, UnexpectedModelBehavior, UserError, FallbackExceptionGroup) as error:
        raise model_error(name, error) from error
    except (httpx2.HTTPError, OSError) as error:
        raise _failure(name, error, retryable=True, charged=True) from error


def model_error(name: str, error: Exception) -> ModelError:
    """What an exception of pydantic-ai means for the loop."""
    if isinstance(error, FallbackExceptionGroup):
        return _of_several(name, [model_error(name, one) for one in error.exceptions])
    if isinstance(error, ModelHTTPError):
        return _failure(
            name,
            error,
            retryable=_is_retryable(error),
            retry_after_s=error.retry_after,
            charged=error.in_stream,
            status=error.status_code,
        )
    if isinstance(error, ModelConnectionError):
        unsent = error.phase in ("pool", "connect")
        return _failure(name, error, retryable=True, charged=not unsent)
    if isinstance(error, ModelRequestRejectedError | ModelQuotaExceededError):
        return _failure(name, error, retryable=False, charged=error.in_stream)
    if isinstance(error, ContentFilterError):
        return _failure(name, error, retryable=False, charged=True)
    if isinstance(error, ModelAPIError | UnexpectedModelBehavior):
        # An answer, but none that makes sense, or none in time.
        return _failure(name, error, retryable=True, charged=True)
    return _failure(name, error, retryable=False, charged=False)


def _is_retryable(error: ModelHTTPError) -> bool:
    if isinstance(error, ModelQuotaExceededError):
        return False
    if error.provider_retry_hint is not None:
        return error.provider_retry_hint
    if isinstance(error, ModelRequestRejectedError):
        return False
    return error.status_code in _RETRYABLE or error.status_code >= _SERVER_FAILED


def _of_several(name: str, errors: list[ModelError]) -> ModelError:
    waits = [error.retry_after_s for error in errors if error.retryable]
    return ModelError(
        f"{name}: " + "; ".join(map(str, errors)),
        retryable=any(error.retryable for error in errors),
        # Whichever is ready first will do.
        retry_after_s=None
        if None in waits
        else min((wait for wait in waits if wait is not None), default=None),
        charged=any(error.charged for error in errors),
        status=errors[-1].status if errors else None,
    )


def _failure(
    name: str,
    error: Exception,
    *,
    retryable: bool,
    charged: bool,
    retry_after_s: float | None = None,
    status: int | None = None,
) -> ModelError:
    where = name if status is None else f"{name} (HTTP {status})"
    return ModelError(
        f"{where}: {_why(error)[:_WHY_CHARS_MAX]}",
        retryable=retryable,
        retry_after_s=retry_after_s,
        charged=charged,
        status=status,
    )


def _why(error: Exception) -> str:
    """The provider's own words, without what pydantic-ai puts around them."""
    body = getattr(error, "body", None)
    for _ in range(2):
        if isinstance(body, dict) and isinstance(body.get("message"), str):
            return str(body["message"])
        body = body.get("error") if isinstance(body, dict) else body
    if isinstance(body, str) and body:
        return body
    return str(error) or type(error).__name__
