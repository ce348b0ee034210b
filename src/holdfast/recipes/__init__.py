"""Ready-made `verify` hooks: ask the world whether an effect in doubt happened.

    @holdfast.tool(
        side_effects="mutate",
        verify=recipes.find("https://shop.example/orders", where={"reference": "{ctx.key}"}),
    )
    async def order(ctx: holdfast.ToolContext[None], item: str) -> str:
        answer = await client.post("https://shop.example/orders", json={"item": item, "reference": ctx.key})

A recipe returns a hook, which works for sync and async tools in every framework. What it finds has landed.
What it does not find has not landed, once nothing can be on its way any more. An error, or an answer that
does not say it clearly, is `Unsure`, with the reason.

In a text, `{…}` stands for what is known of the call: its arguments by their names, `{ctx.key}`,
`{ctx.notes[name]}`, and `{request[key]}`, the key of the request that the tool made with `holdfast.http`. In
`result=`, `{found[…]}` stands for what was found. A function can take the place of each text.
"""

from .commit_log import commit, trailer
from .file_digest import before_writing, file
from .imap import mail, message_id
from .json_service import find, get
from .rows import row

__all__ = [
    "before_writing",
    "commit",
    "file",
    "find",
    "get",
    "mail",
    "message_id",
    "row",
    "trailer",
]
