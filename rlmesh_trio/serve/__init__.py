"""Serving an env over rlmesh-wire-v1."""

from rlmesh_trio.serve.server import EnvServer, serve_env

__all__ = ("EnvServer", "serve_env")
