"""Tools for agents, served over the Model Context Protocol by `apps.mcp` (at /mcp) and by `fermi mcp` (over stdio).

`tools` holds the tools: each calls operations of the REST API through a `caller.Caller` and returns a compact answer.
`server` makes a server of the official SDK from them; only it imports the SDK.
"""
