"""Contents, and the blobs that hold what is too large for them.

`references` names blobs; `swapping` takes large content out of JSON and puts it back; `packing` makes what is
stored of messages, results and values; `lazy` makes messages of it again, which read their blobs when
somebody looks; `linking` prepares messages for a model.
"""
