"""Telemetry: samples into bounded reservoirs, reservoirs into rows."""
