"""`python -m holdfast.demo`: a session is killed in the middle of a step and carries on.

`story` is what the killed process does, `stage` starts it, kills it and tells what happens, `timeline` reads
the journal to the audience, and `look` has the colours. A new scene is another script in `story` and another
act in `stage`.
"""
