import pytest

from rlmesh_trio.errors import ConnectError
from rlmesh_trio.transport.address import Address, is_address, parse_address


@pytest.mark.parametrize(
    ("text", "address", "url"),
    [
        ("localhost:50051", Address("localhost", 50051), "tcp://localhost:50051"),
        ("tcp://10.0.0.1:1", Address("10.0.0.1", 1), "tcp://10.0.0.1:1"),
        ("[::1]:65535", Address("::1", 65535), "tcp://[::1]:65535"),
        ("tcp://[fe80::1%eth0]:7", Address("fe80::1%eth0", 7), "tcp://[fe80::1%eth0]:7"),
        ("a-b.example_1:80", Address("a-b.example_1", 80), "tcp://a-b.example_1:80"),
        ("unix:///tmp/a b.sock", Address(path="/tmp/a b.sock"), "unix:///tmp/a b.sock"),
    ],
)
def test_good_addresses(text: str, address: Address, url: str) -> None:
    assert parse_address(text) == address
    assert str(address) == url
    assert is_address(text)
    assert parse_address(url) == address


@pytest.mark.parametrize(
    "text",
    [
        "",
        "localhost",
        "localhost:",
        ":50051",
        "localhost:http",
        "localhost:0",
        "localhost:65536",
        "localhost:-1",
        "::1:50051",
        "[::1]",
        "host name:1",
        "user@host:1",
        "tcp://",
        "tcp://host",
        "tcp://unix:///x",
        "unix://",
        "unix://relative/path",
        "unix:///folder/",
        "unix:///nul\0",
        "http://host:80",
        "host:1/path",
        "host:1\n",
    ],
)
def test_bad_addresses_are_named_with_the_forms(text: str) -> None:
    with pytest.raises(ConnectError) as caught:
        parse_address(text)
    assert repr(text) in str(caught.value)
    for form in ("host:port", "tcp://host:port", "unix:///path"):
        assert form in str(caught.value)


@pytest.mark.parametrize("text", ["http://host:80", "unix://x", "host:99999", "tcp://host"])
def test_what_is_meant_as_an_address(text: str) -> None:
    assert is_address(text)


@pytest.mark.parametrize("text", ["CartPole-v1", "ALE/Pong-v5", "package.module:factory", "pkg:Env-v0", "random", ""])
def test_what_is_not(text: str) -> None:
    assert not is_address(text)


@pytest.mark.parametrize("text", ["127.0.0.1", "127.0.0.1:abc", "localhost", "localhost:", "[::1]"])
def test_what_can_only_be_a_host_is_an_address_without_its_port(text: str) -> None:
    assert is_address(text)
    with pytest.raises(ConnectError, match="it is not a host and a port number"):
        parse_address(text)
