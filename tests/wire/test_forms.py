"""The generator of byte forms is itself checked: google reads every form as the message it was made from."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.wire.forms import messages, wire_form
from tests.wire.oracle import google, plain_google


@pytest.mark.parametrize("name", ["rlmesh.env.v1.JoinResponse", "rlmesh.model.v1.JoinRequest"])
@settings(max_examples=50)
@given(data=st.data())
def test_google_reads_every_form_of_a_message_alike(name: str, data: st.DataObject) -> None:
    message = data.draw(messages(name))
    for seed in range(10):
        assert plain_google(google(name).FromString(wire_form(message, seed))) == plain_google(message)
