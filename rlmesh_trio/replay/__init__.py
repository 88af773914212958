"""Comparing recordings, and playing them again: where two runs part first, by how much, and who is to blame."""
