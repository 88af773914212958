"""``python -m rlmesh_trio`` is ``rlmesh-trio``."""

from rlmesh_trio.cli import main

if __name__ == "__main__":
    main()
