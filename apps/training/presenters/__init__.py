"""Stored rows as the API and the event stream show them."""
