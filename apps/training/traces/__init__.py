"""Exports tasks as OpenTelemetry traces."""
