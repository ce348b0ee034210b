"""`python -m holdfast.demo`: an agent is killed twice during its work, and nothing happens twice.

`agent` is the agent, and `world` the bank and post office that it changes: read these two first. `process` is
the program that is killed, `scenario` starts and kills it, and `display` prints.
"""
