"""A trio structured-concurrency engine for reinforcement-learning environments."""
