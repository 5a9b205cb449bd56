"""Agents: tokens with a purse that bounds what they may spend, and proposals for what goes beyond it."""
