"""Benchmarks: one module per claim, each measured in the same run as what it is compared with.

A race runs our engine and rlmesh's own driver in turn on the same real server (``races``), each in a process of its
own, and only the ratio counts; the clock runs from before connecting until after closing on both sides. A budget is
CPU time in process (``budgets``). ``python -m benchmarks`` runs all of them, in about ten minutes on a quiet machine.
"""
