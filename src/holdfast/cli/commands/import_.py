"""`holdfast import`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from ..options import DEFAULTS, Common

if TYPE_CHECKING:
    from ...store.store import Store


def import_(
    file: Annotated[Path, Parameter(help="The file that `holdfast export --form journal` wrote.")],
    /,
    *,
    new: Annotated[str | None, Parameter(name="--as")] = None,
    blob_folder: Path | None = None,
    dry_run: bool = False,
    common: Common = DEFAULTS,
) -> None:
    """Read the sessions of an exported file into the store, as replicas that can be read.

    Every line is checked before anything is written. A session that is there already is refused, unless it is
    an earlier import of the same. An import that was killed goes on.

    Parameters
    ----------
    new
        Of an export of one session: also make a session with this id that can be driven, as a fork of its
        replica.
    blob_folder
        The folder that the blobs were exported to.
    dry_run
        Say what would be imported, and write nothing.
    """
    from ..store_access import with_store

    with_store(common, lambda store: _import(store, file, new, blob_folder, dry_run, common), create=True)


async def _import(
    store: Store, file: Path, new: str | None, blob_folder: Path | None, dry_run: bool, common: Common
) -> None:
    from ..console import print_json
    from ..progress import show_progress
    from .copy import report_copied, shape_copied

    with show_progress(quiet=common.json) as tell:
        copied = await store.import_file(file, into=new, blobs=blob_folder, dry_run=dry_run, tell=tell)
    if common.json:
        print_json(shape_copied(copied))
    else:
        report_copied(copied)
