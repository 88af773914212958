"""The engine: tasks that drive lane groups, and the pure deciders they ask."""
