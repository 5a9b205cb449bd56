"""Figures computed over tasks: usage, MFU, queue, timeline, telemetry, the overview of operators."""
