"""What grpclib takes for a codec on both sides of a connection: messages come to it as bytes, and leave it so."""

from typing import Any

from grpclib.encoding.base import CodecBase

__all__ = ("AsBytes",)


class AsBytes(CodecBase):
    """Messages are encoded elsewhere."""

    @property
    def __content_subtype__(self) -> str:
        return "proto"

    def encode(self, message: Any, message_type: Any) -> bytes:  # noqa: ARG002
        """The message, which is bytes."""
        return message

    def decode(self, data: bytes, message_type: Any) -> Any:  # noqa: ARG002
        """The bytes, which are the message."""
        return data
