"""Workers: processes that take sessions with something to do, on as many machines as share the store."""
