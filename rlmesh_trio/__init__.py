"""A trio engine that drives one environment session with one model session, in process or over rlmesh-wire-v1."""

__version__ = "0.1.0"
