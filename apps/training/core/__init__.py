"""Shared by all parts of training: state changes, leases, placement, checkpoints of a task, wake-ups."""
