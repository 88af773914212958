"""The names of the tests that pin behaviour shared with the public rlmesh runtime, one test for each."""

import pytest


def peer(number: int) -> pytest.MarkDecorator:
    """Name the test ``peer-<number>``: the number a shared behaviour is known by."""
    return pytest.mark.parametrize((), [pytest.param(id=f"peer-{number}")])
