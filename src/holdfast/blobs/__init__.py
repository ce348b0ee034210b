"""Blobs: large content under its SHA-256 digest, apart from the journal, and the homes that keep it."""

from .blob import Blob, Collected, OpenBlob
from .home import BlobContext, BlobHome, ListedBlob, StoredBlob
from .home_url import open_home
from .public_urls import PresignedUrls

__all__ = [
    "Blob",
    "BlobContext",
    "BlobHome",
    "Collected",
    "ListedBlob",
    "OpenBlob",
    "PresignedUrls",
    "StoredBlob",
    "open_home",
]
