"""The two Protocols the engine drives, and their local and remote implementations."""
