"""What every driver promises, as tests. A driver is one when it passes all of them, unchanged."""

from .blobs import BlobPromises
from .claims import ClaimPromises
from .commits import CommitPromises
from .due import DuePromises
from .forks import ForkPromises
from .holders import HolderPromises
from .inboxes import InboxPromises
from .listings import ListingPromises
from .races import RacePromises
from .removal import RemovalPromises

__all__ = ["DriverSuite"]


class DriverSuite(
    CommitPromises,
    RacePromises,
    ListingPromises,
    InboxPromises,
    HolderPromises,
    DuePromises,
    ClaimPromises,
    ForkPromises,
    RemovalPromises,
    BlobPromises,
):
    """Inherit from this and override `make_driver(self, tmp_path)`.

    Called again with the same `tmp_path`, it must open the same store again: the suite closes and reopens
    stores, and has some open twice.
    """
