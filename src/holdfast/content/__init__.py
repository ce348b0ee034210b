"""Contents of entries, and the blobs that hold what is too large for them.

`references` names blobs; `extract` takes large content out of JSON and puts it back; `encode` makes the
stored form of messages, results and values; `lazy` makes messages of it again, whose blobs are read on first
access; `model_input` prepares messages for a model.
"""
