import click
import pytest

from rlmesh_trio.cli.parameters import duration, seeds


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("10", 10.0),
        ("0.5", 0.5),
        (".5", 0.5),
        ("2.", 2.0),
        ("1e-3", 0.001),
        ("250ms", 0.25),
        ("10s", 10.0),
        ("1.5m", 90.0),
        ("2h", 7200.0),
        ("15 M", 900.0),
        (" 3 s ", 3.0),
    ],
)
def test_durations(text: str, seconds: float) -> None:
    assert duration(text) == pytest.approx(seconds)


@pytest.mark.parametrize(
    "text", ["", "s", "ten", "-1", "+1", "0", "0ms", "1d", "1 s 2", "1:30", "nan", "inf", "1e999", "1_000", "٣"]
)
def test_what_is_no_duration(text: str) -> None:
    with pytest.raises(click.BadParameter, match=r"duration|longer than nothing"):
        duration(text)


@pytest.mark.parametrize(
    ("text", "found"),
    [("7", (7,)), ("7,8,9", (7, 8, 9)), (" 1, 2 ", (1, 2)), ("0,9223372036854775807", (0, 2**63 - 1))],
)
def test_seeds(text: str, found: tuple[int, ...]) -> None:
    assert seeds(text) == found


@pytest.mark.parametrize("text", ["", ",", "1,", "1,,2", "a", "1.0", "-1", "1 2", "9223372036854775808", "٣", "0x1"])
def test_what_are_no_seeds(text: str) -> None:
    with pytest.raises(click.BadParameter, match="is no seed"):
        seeds(text)
