"""Sends traces and metrics by OTLP. The only folder that imports OpenTelemetry."""
