"""What ``rlmesh-trio conform`` is told: the forms of its options, and ``[tool.rlmesh-trio.conform]`` of a project."""

import json
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import click

from rlmesh_trio.conformance.settings import DEEP, DEFAULT, QUICK, SHRINKING, Settings

__all__ = ("ProjectCommand", "names", "reset_option", "settings_from", "tolerance")

_TABLE = "tool.rlmesh-trio.conform"


def names(text: str) -> tuple[str, ...]:
    """What stands between the commas of *text*."""
    return tuple(part.strip() for part in text.split(",") if part.strip())


def reset_option(text: str) -> tuple[str, Any]:
    """A reset option from ``key=value``; the value is JSON where it reads as such, else text."""
    key, equals, value = text.partition("=")
    if not key.strip() or not equals:
        raise click.BadParameter(f"{text!r} is no reset option: write key=value")
    try:
        return key.strip(), json.loads(value)
    except ValueError:
        return key.strip(), value


def tolerance(text: str) -> int:
    """How many units in the last place floats may differ, from ``ulp=4``."""
    unit, _, number = text.partition("=")
    if unit.strip() != "ulp" or not number.strip().isdecimal():
        raise click.BadParameter(f"{text!r} is no tolerance: write ulp=4, for four units in the last place")
    return int(number)


def settings_from(options: Mapping[str, Any]) -> Settings:
    """The settings that the command's *options* come to. Raises :exc:`click.UsageError` when they clash."""
    chosen: dict[str, Any] = dict(options)
    budgets = {"--time": chosen.pop("time"), "--quick": chosen.pop("quick"), "--deep": chosen.pop("deep")}
    given = [name for name, value in budgets.items() if value]
    if len(given) > 1:
        raise click.UsageError(f"{' and '.join(given)} exclude each other: each says how long to test")
    # Who says how many cases there are wants all of them, and small: then the time is only there to end what hangs.
    counted = chosen.get("examples") is not None
    unhurried = budgets["--deep"] or (counted and not budgets["--quick"])
    time = budgets["--time"] or (QUICK if budgets["--quick"] else DEEP if unhurried else DEFAULT)
    if chosen.get("shrink_time") is None:
        chosen["shrink_time"] = DEEP if counted else SHRINKING
    for several in ("only", "skip", "ignored_leaves", "ignored_infos"):
        chosen[several] = tuple(name for listed in chosen[several] for name in listed)
    chosen |= {"time": time, "options": tuple(chosen["options"])}
    return Settings(**chosen)


class ProjectCommand(click.Command):
    """A command whose options default to ``[tool.rlmesh-trio.conform]`` in the working directory's ``pyproject.toml``.

    Keys are the options' long names, a list stands for an option given several times.
    """

    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: Any
    ) -> click.Context:
        """The context, with the project's defaults. Raises :exc:`click.UsageError` for a table that has none such."""
        extra.setdefault("default_map", self._defaults())
        return super().make_context(info_name, args, parent, **extra)

    def _defaults(self) -> dict[str, Any]:
        options = {
            spelled.removeprefix("--"): (option, str(option.name))
            for option in self.params
            if isinstance(option, click.Option)
            for spelled in option.opts
            if spelled.startswith("--")
        }
        defaults: dict[str, Any] = {}
        for key, value in _project_table().items():
            option, name = options.get(key, (None, ""))
            if option is None:
                raise click.UsageError(f"pyproject.toml: [{_TABLE}] has {key!r}, which is no option of conform")
            if option.is_flag:
                if not isinstance(value, bool):
                    raise click.UsageError(f"pyproject.toml: [{_TABLE}] {key} is true or false, not {value!r}")
                # A flag such as --no-shrink stands for the opposite of its value.
                defaults[name] = value if option.flag_value is not False else not value
            elif option.multiple:
                listed = cast("list[object]", value) if isinstance(value, list) else [value]
                defaults[name] = [str(one) for one in listed]
            else:
                defaults[name] = str(value)
        return defaults


def _project_table() -> Mapping[str, Any]:
    try:
        document: Any = tomllib.loads(Path("pyproject.toml").read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError):
        return {}
    except tomllib.TOMLDecodeError as failure:
        raise click.UsageError(f"pyproject.toml cannot be read: {failure}") from failure
    for part in _TABLE.split("."):
        document = cast("Mapping[str, Any]", document).get(part, {})
        if not isinstance(document, dict):
            raise click.UsageError(f"pyproject.toml: [{_TABLE}] is no table")
    return cast("Mapping[str, Any]", document)
