"""`python -m holdfast.demo`: an agent is killed twice in the middle of its work, and nothing happens twice.

`agent` is the agent, and `world` what it changes: read these two first. `process` is the program that is
killed, `children` starts and kills it, `stage` tells the story, `books` and `timeline` show what the world
and the journal say of it in the end, `afterwards` what to try then, and `look` has the colours.
"""
