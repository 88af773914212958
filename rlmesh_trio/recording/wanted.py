"""What a run is to record, and the refusal of what cannot be: before anything is opened, and nothing is touched."""

import os

import attrs

from rlmesh_trio.contract import EnvContract
from rlmesh_trio.errors import InvalidSpec
from rlmesh_trio.observers.line_file import check_place
from rlmesh_trio.recording.errors import RecordingError
from rlmesh_trio.recording.records import Header, parse_level
from rlmesh_trio.recording.resumed import read_recorded

__all__ = ("Record",)


@attrs.frozen
class Record:
    """A recording that a run is to write to *path*.

    *level* is ``digest``, ``full`` or ``ring=K``. *unstable_leaves* names observation leaves that are not
    deterministic, as ``$.name`` or ``name``; *ignored_infos* are keys, or ``outer.inner``, that no digest covers.
    *tolerance* is the standard a comparison should go by, empty for exact.
    """

    path: str | os.PathLike[str]
    level: str = "digest"
    unstable_leaves: tuple[str, ...] = ()
    ignored_infos: tuple[str, ...] = ()
    tolerance: str = ""

    def check(self, resumed: str | os.PathLike[str] | None, earlier: Header | None) -> None:
        """Raise :exc:`InvalidSpec` for a level that is none, and for a place where no recording can be begun.

        One that holds finished episodes is not written over, unless it is *resumed* itself. *earlier* is the header of
        a recording that is to be gone on with: all of one recording is of one level and covers the same.
        """
        parse_level(self.level)
        path = os.fspath(self.path)
        check_place(path, "recording")
        if earlier is not None:
            self._refuse_other_form(earlier)
        if os.path.exists(path) and os.path.getsize(path):
            if resumed is not None and os.path.exists(resumed) and os.path.samefile(path, resumed):
                return
            try:
                held = len(read_recorded(path).episodes)
            except RecordingError as error:
                raise InvalidSpec(f"{error}; delete it, or name another file for the recording") from error
            if held:
                raise InvalidSpec(
                    f"recording {path} holds {held} finished episodes already: resume from it, or name another file"
                )

    def _refuse_other_form(self, earlier: Header) -> None:
        forms = (
            ("level", _level_text(earlier.level, earlier.ring), _level_text(*parse_level(self.level))),
            ("leaves to ignore", sorted(earlier.unstable_leaves), sorted(self.leaves_in(earlier.contract))),
            ("infos to ignore", sorted(earlier.ignored_infos), sorted(self.ignored_infos)),
        )
        for name, there, here in forms:
            if there != here:
                raise InvalidSpec(f"a recording goes on as it began: {name} {there}; this run asks for {here}")

    def leaves_in(self, contract: EnvContract) -> tuple[str, ...]:
        """The paths of the unstable leaves. Raises :exc:`InvalidSpec` for one that *contract* does not have."""
        space = contract.observation_space
        known = [leaf.path for leaf in space.leaves] if space is not None else []
        found: list[str] = []
        for name in self.unstable_leaves:
            path = next((path for path in (name, f"$.{name}", f"${name}") if path in known), None)
            if path is None:
                raise InvalidSpec(f"the env's observation has no leaf {name!r} to ignore; it has {', '.join(known)}")
            found.append(path)
        return tuple(found)


def _level_text(name: str, ring: int) -> str:
    return f"{name}={ring}" if ring else name
