"""The agent: a small loop over a session, the models it asks, and the tools it hands to them."""
