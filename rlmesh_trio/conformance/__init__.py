"""Conformance testing of env servers: find the fault, shrink it, and let anyone replay it."""
