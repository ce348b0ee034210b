"""Links in the place of bytes, in what a model is sent. The history and the record of it keep the bytes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from pydantic_ai.messages import (
    AudioUrl,
    BinaryContent,
    DocumentUrl,
    FileUrl,
    ImageUrl,
    ModelMessage,
    ModelRequest,
    ToolReturnPart,
    UserPromptPart,
    VideoUrl,
)

from ...content.references import digest_of
from ...engine.engine import Engine


class Links:
    """Makes them anew for each request: most do not last."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        engine.blobs.check_links()

    async def put_in(self, messages: Sequence[ModelMessage]) -> list[ModelMessage]:
        """The messages with links to what is in blobs. Those without any are the same objects."""
        return [await self._link(one) if isinstance(one, ModelRequest) else one for one in messages]

    async def _link(self, message: ModelRequest) -> ModelRequest:
        parts: list[Any] = []
        for part in message.parts:
            if isinstance(part, UserPromptPart | ToolReturnPart):
                content = await self._link_content(part.content)
                parts.append(part if content is part.content else replace(part, content=content))
            else:
                parts.append(part)
        changed = any(new is not old for new, old in zip(parts, message.parts, strict=True))
        return replace(message, parts=parts) if changed else message

    async def _link_content(self, content: Any) -> Any:
        """A file, or the files of a list: pydantic-ai shows a model no others as files."""
        if isinstance(content, BinaryContent):
            return await self._find(content) or content
        if not isinstance(content, list | tuple):
            return content
        found = [await self._find(one) if isinstance(one, BinaryContent) else None for one in content]
        return [new or old for new, old in zip(found, content, strict=True)] if any(found) else content

    async def _find(self, file: BinaryContent) -> FileUrl | None:
        """The link to a file, if it is in a blob that has one, and models take links to such files."""
        blobs, kind = self._engine.blobs, _kind_of(file)
        least = blobs.sizes.inline_bytes
        if kind is None or least is None or len(file.data) < least:
            return None
        url = await blobs.link(await self._engine.call_home(digest_of, file.data))
        if url is None:
            return None
        # The identifier is what a model may call the file by: it must not change with the link.
        return kind(
            url,
            media_type=file.media_type,
            identifier=file.identifier,
            vendor_metadata=file.vendor_metadata,
        )


def _kind_of(file: BinaryContent) -> type[ImageUrl | AudioUrl | VideoUrl | DocumentUrl] | None:
    if file.is_image:
        return ImageUrl
    if file.is_audio:
        return AudioUrl
    if file.is_video:
        return VideoUrl
    return DocumentUrl if file.is_document else None
