"""The catalogue: one module a family. Importing this package registers every check."""
