"""Homes of blobs: large content under its digest, apart from the journal.

`home` is what every home promises; `driver` is the store's own home. `context` says which descriptions a blob
may have and writes them down; `parts` checks bytes as they pass. `url` finds the home that a URL names.
"""
