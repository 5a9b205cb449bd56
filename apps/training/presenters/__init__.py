"""Serializes stored rows for the API and the event stream."""
