"""Reports of a conformance run: each module is one form of the same material."""
