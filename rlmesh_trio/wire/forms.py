"""Replies read at one stroke: a server writes the same form again and again, and only the values differ.

A *form* is what a reply's bytes are apart from its values: its tags and lengths, in the order in which servers write
them. It is made from a reply that was read field by field, as a regular expression, so that the next of its kind takes
one match. Whatever fits no known form is read field by field, and what fits one says the same in both ways.
"""

import re
from collections.abc import Callable
from typing import Generic, NamedTuple, TypeVar

from rlmesh_trio.wire.fields import encode_varint

__all__ = ("ABSENT", "HEAD", "NUMBER", "SMALL", "Forms", "Part", "message", "optional", "value")

Details = TypeVar("Details")

# So much of a reply tells which form it may have: the tag and the length of its arm.
HEAD = 3
# Copying the leaves is what takes the time in a longer reply.
_LONGEST = 4096
# Making a form takes as long as reading some hundred replies. So many are made at once, and so many are kept; after
# that, one for so many replies that fit none, as a server's replies may be all different.
_MOST_FORMS = 64
_ONE_IN = 256
# A character of plain text, or a number below 128.
SMALL = rb"[\x00-\x7f]"
# A number below 2**63.
NUMBER = rb"[\x80-\xff]{0,8}[\x00-\x7f]"


class Part(NamedTuple):
    """What some bytes of a reply look like, with a group for each value, and how many they are."""

    pattern: bytes
    size: int


# An idle group, for a value that is not there.
ABSENT = Part(rb"(\x00(?!))?", 0)


def value(tag: int, size: int, each: bytes = b".") -> Part:
    """A field whose value is *size* bytes like *each*, by default of any kind."""
    head = encode_varint(tag) + encode_varint(size)
    return Part(re.escape(head) + b"(" + each + b"{%d})" % size, len(head) + size)


def message(tag: int, *parts: Part) -> Part:
    """A field that is a message of *parts*."""
    size = sum(part.size for part in parts)
    head = encode_varint(tag) + encode_varint(size)
    return Part(re.escape(head) + b"".join([part.pattern for part in parts]), len(head) + size)


def optional(tag: int, pattern: bytes) -> bytes:
    """The pattern of a field whose value looks like *pattern*, if it is there."""
    # A branch is tried sooner than a repetition of at most one.
    return b"(?:" + re.escape(encode_varint(tag)) + pattern + b"|)"


class Forms(Generic[Details]):
    """The forms one stream's replies were seen to have.

    ``known`` holds, by the first :data:`HEAD` bytes of a reply, the match of the form it may have and what to know
    about the values of that form.
    """

    def __init__(self) -> None:
        self.known: dict[bytes, tuple[Callable[[bytes], re.Match[bytes] | None], Details]] = {}
        self._missed = 0

    def learn(self, data: bytes, make: Callable[[], tuple[bytes, Details]]) -> None:
        """Know the form of *data* from now on, which *make* puts together, if it is worth it and really fits."""
        if len(data) > _LONGEST:
            return
        self._missed += 1
        if self._missed > _MOST_FORMS and self._missed % _ONE_IN:
            return
        pattern, details = make()
        match = re.compile(pattern, re.DOTALL).fullmatch
        if match(data) is not None:
            self.known[data[:HEAD]] = match, details
            if len(self.known) > _MOST_FORMS:
                del self.known[next(iter(self.known))]
