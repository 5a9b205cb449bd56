"""Sending messages, in a process of its own."""
