"""The wire: generated schema messages, the per-step codec, and the structural check before every other parse."""
