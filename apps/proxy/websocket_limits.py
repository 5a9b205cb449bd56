"""What the web process is started with, before Django is."""

LONGEST = 64 << 20
"""Bytes of a WebSocket's message: a notebook's widgets send large ones, and each is held whole for a moment."""
