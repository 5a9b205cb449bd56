"""Reports computed over tasks: usage, MFU, queue, timeline, telemetry, the operators' overview."""
