"""Serves the tools of `fermi.mcp` at /mcp: streamable HTTP of the Model Context Protocol, one request at a time."""
