import sys
from typing import Any

import pytest

from rlmesh_trio.errors import SessionError
from rlmesh_trio.observers import MissingExtra, OpenTelemetryHooks, TensorBoardHooks


@pytest.mark.parametrize(
    ("make", "package", "extra"),
    [
        (lambda: TensorBoardHooks("runs"), "tensorboardX", "tensorboard"),
        (OpenTelemetryHooks, "opentelemetry", "opentelemetry"),
    ],
)
def test_a_missing_package_is_named_with_the_extra_that_brings_it(
    make: Any, package: str, extra: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == package]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(MissingExtra) as caught:
        make()
    assert str(caught.value).endswith(
        f"Hooks needs the package {package}, which is not installed: pip install 'rlmesh_trio[{extra}]'"
    )
    assert isinstance(caught.value, SessionError)
