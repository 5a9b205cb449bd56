"""Limit of WebSocket messages, which the web process needs before Django starts."""

MAX_MESSAGE_BYTES = 64 << 20
"""Bytes of a WebSocket message: a notebook's widgets send large ones, and each is held in memory for a moment."""
