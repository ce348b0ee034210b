"""Homes of blobs: large content under its digest, apart from the journal.

`home` is what every home promises; `driver` is the store's own home, `directory` one in a directory,
`objects` one in a `bucket` of an object store, which `options` lead to. `context` says which descriptions a
blob may have, `keys` where it may lie; `parts` checks bytes as they pass; `uploads` is how a driver with
tables takes them in. `url` finds the home that a URL names; `urls` finds the URL at which the world can
read a blob.
"""
