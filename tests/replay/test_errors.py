"""What keeps a recording from being played is told in one line."""

from rlmesh_trio.errors import SessionError
from rlmesh_trio.replay.errors import ContractChanged, NotReplayable
from rlmesh_trio.replay.findings import FieldDifference


def test_a_changed_contract_names_its_first_fields() -> None:
    error = ContractChanged([FieldDifference(f"obs.{leaf}", "1\n2", "3") for leaf in "abcde"])
    assert isinstance(error, SessionError)
    assert len(error.differences) == 5
    assert str(error).startswith("this is not what was recorded: obs.a was 1 2 and is 3; obs.b")
    assert str(error).endswith("; 2 more (force plays it all the same)")
    assert "\n" not in str(error)


def test_what_cannot_be_replayed_says_why() -> None:
    assert str(NotReplayable("it has no seeds")) == "not replayable: it has no seeds"
