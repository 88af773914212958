"""What the transport uses of its libraries without being promised it. A test here fails before anything else does."""

import asyncio
from types import SimpleNamespace
from typing import cast

from grpclib import utils
from h2.config import H2Configuration
from h2.connection import H2Connection
from hyperframe.frame import GoAwayFrame

from rlmesh_trio.transport.frames import FrameSplitter
from rlmesh_trio.transport.link import Link
from rlmesh_trio.transport.pipe import PlainPipe, open_pipe
from rlmesh_trio.transport.protocol import ClientProtocol


def opened() -> H2Connection:
    h2 = H2Connection(H2Configuration(client_side=True))
    h2.initiate_connection()
    h2.send_headers(1, [(":method", "POST"), (":path", "/"), (":scheme", "http"), (":authority", "x")])
    return h2


def test_h2_counts_its_send_windows_where_the_fast_path_does() -> None:
    h2 = opened()
    stream = h2.streams[1]
    assert h2.outbound_flow_control_window == stream.outbound_flow_control_window == 65_535
    h2.outbound_flow_control_window -= 100
    stream.outbound_flow_control_window -= 200
    assert h2.local_flow_control_window(1) == 65_335
    h2.send_data(1, bytes(35))
    assert (h2.outbound_flow_control_window, stream.outbound_flow_control_window) == (65_400, 65_300)


def test_h2_looks_up_how_to_receive_a_frame_in_a_table() -> None:
    assert GoAwayFrame in vars(opened())["_frame_dispatch_table"]


def test_grpclib_knows_trio_asyncios_tasks_whichever_was_imported_first() -> None:
    assert vars(utils)["_current_task"] is asyncio.current_task


def test_without_those_windows_the_plain_path_is_taken() -> None:
    h2 = SimpleNamespace(streams={1: object()}, outbound_flow_control_window=65_535)
    protocol = cast("ClientProtocol", SimpleNamespace(h2=h2))
    splitter = FrameSplitter(lambda frame: None)
    pipe = open_pipe(cast("Link", None), protocol, splitter, 1, lambda message: None)
    assert type(pipe) is PlainPipe
