"""How a request at /mcp is authenticated."""
