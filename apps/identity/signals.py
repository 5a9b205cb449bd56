"""What this app tells the apps above it."""

from django.dispatch import Signal

claims_read = Signal()
"""Sent in a transaction with `account` (allauth's SocialAccount), whose claims have changed outside of a sign-in."""
