"""The timeline of a session as a drawing, for browsers and notebooks.

`model` says what is drawn; `from_journal` and `from_state` compute it; `svg` draws it. `card` is the compact
form for notebooks. Nothing here reads or writes a store.
"""
