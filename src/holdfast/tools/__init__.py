"""Tools: declared, checked by four gates, and run through the effect ledger."""
