"""Tasks as OpenTelemetry traces."""
