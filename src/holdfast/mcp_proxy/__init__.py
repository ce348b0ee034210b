"""A proxy in front of any MCP server: `holdfast mcp proxy`.

It relays messages between a client and a server, and takes each call of a tool through a ledger on its way:
the intent is durable before the server sees the call, the outcome before the client does, and that the
outcome was delivered is on record, too. It needs no MCP library: what it need not understand it passes on,
byte for byte, in both eras of the protocol.
"""
