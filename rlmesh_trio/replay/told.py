"""A comparison of two recordings told: to people in plain text that fits a screen, to programs as a document. Pure.

Of the text the first line says whether all is equal. An episode that differs takes at most six lines; the first few
are told, and the others counted.

The document is what JSON can hold. JSON has no NaN and no infinities: such a number is written as the text ``"NaN"``,
``"Infinity"`` or ``"-Infinity"``. Bytes, roots among them, are written in hexadecimal, and what a side lacks as null.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, cast

import attrs
import numpy as np

from rlmesh_trio.observers.records import plain
from rlmesh_trio.replay.findings import Comparison, Divergence, LeafDifference, StepDifference
from rlmesh_trio.replay.returns import ReturnsCompared, SignTest
from rlmesh_trio.replay.shapes import shape_sentence

__all__ = (
    "comparison_document",
    "comparison_lines",
    "counted",
    "divergence_document",
    "leaf_line",
    "returns_document",
    "returns_lines",
)

_FLOATS: Final = {6: np.float16, 10: np.float32, 18: np.float64}
_FEW_LEAVES: Final = 6
_FEW_FIELDS: Final = 8
_FEW_FACTS: Final = 6
_FEW_RANGES: Final = 8
_LONGEST: Final = 60
_MANY_ULPS: Final = 1_000_000
_SMALLEST_CHANCE: Final = 1e-99
_FLAGS: Final = ("terminated", "truncated")


def comparison_lines(comparison: Comparison, *, mode: str = "", episodes: int = 3) -> list[str]:
    """Tell *comparison*: at most *episodes* of those that differ, in full.

    *mode* says how ``now`` came about, as in ``mode (ii)``.
    """
    lines = list(_contract_lines(comparison))
    lines += _missing_lines(comparison)
    past = [divergence for divergence in comparison.divergences if divergence.beyond is not None]
    if not comparison.compared:
        apart = comparison.missing or comparison.surplus or not comparison.contract
        lines.append(f"NOTHING COMPARED{'  the two have no episode in common' if apart else ''}")
    elif comparison.equal:
        lines += _equal_lines(comparison)
    elif not past:
        lines += [f"otherwise equal: {_extent(comparison)}", *_unfinished_lines(comparison)]
    for divergence in past[:episodes]:
        lines += _divergence_lines(divergence, comparison, mode)
    if len(past) > episodes:
        others = [divergence.ordinal for divergence in past[episodes:]]
        lines.append(
            f"and {counted(len(others), 'more episode')} that differ{'s' * (len(others) == 1)}: {_ranges(others)}"
        )
    if past and comparison.headers:
        lines.append(f"what else differs between the two: {_facts(comparison)}")
    return lines


def _contract_lines(comparison: Comparison) -> Iterator[str]:
    if not comparison.contract:
        return
    yield f"CONTRACT CHANGED  {counted(len(comparison.contract), 'field')}"
    for field in comparison.contract[:_FEW_FIELDS]:
        yield f"  {field.path}   recorded {field.recorded or repr('')}   now {field.now or repr('')}"
    if len(comparison.contract) > _FEW_FIELDS:
        yield f"  and {len(comparison.contract) - _FEW_FIELDS} more"


def _missing_lines(comparison: Comparison) -> Iterator[str]:
    if comparison.missing:
        yield f"MISSING  {_named(comparison.missing)}: recorded, and not there now"
    if comparison.surplus:
        yield f"SURPLUS  {_named(comparison.surplus)}: there now, and not recorded"


def _equal_lines(comparison: Comparison) -> Iterator[str]:
    past = "" if comparison.tolerance == "exact" else f" within {comparison.tolerance}"
    told = f"EQUAL{past}  {_extent(comparison)}"
    roots = comparison.run_roots
    yield f"{told}, run root {roots[0].hex()}" if roots[0] and roots[0] == roots[1] else told
    if comparison.divergences:
        first = comparison.divergences[0]
        worst = ", ".join(_apart(first.first.leaves[0]))
        yield (
            f"  {_named([each.ordinal for each in comparison.divergences])} not in every bit: first at step"
            f" {first.first.step}, {first.first.leaves[0].path}{f' {worst}' if worst else ''}"
        )
    yield from _unfinished_lines(comparison)


def _unfinished_lines(comparison: Comparison) -> Iterator[str]:
    if comparison.unfinished:
        yield f"  {_named(comparison.unfinished)} as far as both go: interrupted on one side"


def _extent(comparison: Comparison) -> str:
    return f"{counted(comparison.compared, 'episode')}, {counted(comparison.steps, 'step')}"


def _divergence_lines(divergence: Divergence, comparison: Comparison, mode: str) -> Iterator[str]:
    first, beyond = divergence.first, divergence.beyond
    assert beyond is not None
    total = comparison.compared + len(comparison.missing)
    of_all = f" of {total}" if divergence.ordinal <= total else ""
    head = ["DIVERGED", *([mode] if mode else []), f"episode {divergence.ordinal}{of_all}"]
    if divergence.seed is not None:
        head[-1] += f" (seed {divergence.seed})"
    head.append(f"{_place(beyond.step)} of {divergence.steps[0]}")
    head.append(f"{counted(divergence.equal_before, 'episode')} before it equal")
    yield "  ".join(head)
    yield f"  {leaf_line(beyond.leaves[0] if beyond is first else _worst(beyond))}"
    yield f"  leaves that differ here: {_here(beyond)}"
    if first is not beyond and (first.step, first.tolerated) != (beyond.step, False):
        yield f"  before it, within {comparison.tolerance}: from {_place(first.step)} on, {_short(first.leaves[0])}"
    yield f"  after it: {', '.join(_after(divergence))}"
    yield f"  shape: {shape_sentence(divergence)}"


def _worst(step: StepDifference) -> LeafDifference:
    """The first leaf that is beyond the tolerance."""
    return next(leaf for leaf in step.leaves if not leaf.tolerated)


def _place(step: int) -> str:
    return f"step {step}" if step else "step 0 (the reset)"


def leaf_line(leaf: LeafDifference, *, sides: tuple[str, str] = ("recorded", "now")) -> str:
    """One leaf with the values of both *sides*."""
    what = f"leaf {leaf.path}" + (f"  index [{', '.join(map(str, leaf.index))}]" if leaf.index else "")
    if leaf.values is None:
        return f"{what}   another digest; its values are not recorded on both sides, which takes level full"
    told = [f"{name} {_value(value, bits)}" for name, value, bits in zip(sides, leaf.values, leaf.bits, strict=True)]
    apart = ", ".join(_apart(leaf))
    return "   ".join([what, *told, *([apart] if apart else [])])


def _value(value: object, bits: str) -> str:
    if isinstance(value, float) and len(bits) in _FLOATS:
        return f"{_FLOATS[len(bits)](value)!s} {bits}"
    text = str(value) if isinstance(value, int) or not isinstance(value, str) else repr(value)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}... {len(text)} characters"


def _apart(leaf: LeafDifference) -> Iterator[str]:
    if leaf.ulps is not None and leaf.ulps <= _MANY_ULPS:
        yield f"{_number(leaf.ulps)} ulp"
    if leaf.relative is not None and math.isfinite(leaf.relative):
        yield f"rel {_number(leaf.relative)}"


def _number(value: float) -> str:
    """One or two digits: ``14``, ``3e3``, ``6e-08``."""
    if isinstance(value, int) and value < 1000:
        return str(value)
    text = f"{value:.0e}" if value >= 1000 or value < 0.001 else f"{value:.2g}"
    return text.replace("e+0", "e").replace("e+", "e")


def _here(step: StepDifference) -> str:
    """Every leaf of the step: how much of it differs, and what is equal."""
    told = [_portion(leaf) for leaf in step.leaves[:_FEW_LEAVES]]
    if len(step.leaves) > _FEW_LEAVES:
        told.append(f"{len(step.leaves) - _FEW_LEAVES} more")
    both_flags = set(_FLAGS) <= set(step.equal)
    named = ["flags" if both_flags and name in _FLAGS else name.removeprefix("obs.") for name in step.equal]
    equal = list(dict.fromkeys(named))
    if len(equal) > _FEW_LEAVES:
        equal = [*equal[: _FEW_LEAVES // 2], f"{len(equal) - _FEW_LEAVES} more", *equal[-_FEW_LEAVES // 2 :]]
    return "; ".join([", ".join(told), *([f"equal: {', '.join(equal)}"] if equal else [])])


def _portion(leaf: LeafDifference) -> str:
    name = leaf.path.removeprefix("obs.")
    if leaf.size > 1:
        return f"{name} ({leaf.differing} of {leaf.size} values)"
    return name


def _short(leaf: LeafDifference) -> str:
    return " ".join([leaf.path, *list(_apart(leaf))[:1]])


def _after(divergence: Divergence) -> Iterator[str]:
    """How far the sides are apart some steps later, and in the end."""
    word = "step "
    start = (divergence.beyond or divergence.first).step
    for step in [step for step in divergence.later if step.step > start]:
        yield f"{word}{step.step} {_furthest(step)}"
        word = ""
    ends, steps, returns = divergence.ends, divergence.steps, divergence.returns
    if "interrupted" in ends:
        yield f"step {min(steps)} is as far as both go"
        return
    if ends[0] != ends[1]:
        yield f"end {ends[0]} -> {ends[1]}"
    if steps[0] != steps[1]:
        yield f"end step {steps[0]} -> {steps[1]}"
    elif ends[0] == ends[1]:
        yield f"same end ({ends[0]}, step {steps[0]})"
    told = [f"{value:.6g}" for value in returns]
    same = returns[0] == returns[1] or all(map(math.isnan, returns))
    yield "same return" if same else f"return {' -> '.join(told if told[0] != told[1] else map(repr, returns))}"


def _furthest(step: StepDifference) -> str:
    """The leaf furthest apart, in ulps as long as these are few."""
    if not step.leaves:
        return "equal"
    observed = [leaf for leaf in step.leaves if leaf.part == "observation" and leaf.relative is not None]
    leaves = observed or step.leaves
    ulps = max([leaf.ulps for leaf in leaves if leaf.ulps is not None], default=None)
    relative = max([leaf.relative for leaf in leaves if leaf.relative is not None], default=None)
    if ulps is not None and ulps <= _MANY_ULPS and relative != math.inf:
        return f"{_number(ulps)} ulp"
    if relative is not None:
        return f"rel {_number(relative)}" if math.isfinite(relative) else "not finite"
    return "differs"


def _facts(comparison: Comparison) -> str:
    facts = list(comparison.headers.items())
    told = [f"{name} {_clipped(pair[0])} -> {_clipped(pair[1])}" for name, pair in facts[:_FEW_FACTS]]
    return ", ".join(told) + (f", and {len(facts) - _FEW_FACTS} more" if len(facts) > _FEW_FACTS else "")


def _clipped(text: str) -> str:
    return "none" if not text else text if len(text) <= _LONGEST // 2 else f"{text[: _LONGEST // 2]}..."


def counted(number: int, what: str) -> str:
    """So many of *what*, as in ``1 episode`` and ``5,321 steps``."""
    return f"{number:,} {what}{'s' * (number != 1)}"


def _named(ordinals: Sequence[int]) -> str:
    return f"episode{'s' * (len(ordinals) != 1)} {_ranges(ordinals)}"


def _ranges(ordinals: Iterable[int]) -> str:
    """Ordinals in ascending order as ``4, 7-9``; of many ranges the first."""
    ranges: list[tuple[int, int]] = []
    for ordinal in ordinals:
        if ranges and ranges[-1][1] == ordinal - 1:
            ranges[-1] = ranges[-1][0], ordinal
        else:
            ranges.append((ordinal, ordinal))
    told = [str(first) if first == last else f"{first}-{last}" for first, last in ranges[:_FEW_RANGES]]
    return ", ".join(told) + (", ..." if len(ranges) > _FEW_RANGES else "")


def returns_lines(compared: ReturnsCompared) -> list[str]:
    """Tell *compared*: two lines, and one for what was left out."""
    lines = [
        _test("returns", compared.pairs, compared.returns),
        _test("lengths", compared.pairs, compared.lengths),
    ]
    if compared.left_out:
        lines.append(f"  left out: {_named(compared.left_out)}, not finished on both sides")
    return lines


def _test(what: str, pairs: int, test: SignTest) -> str:
    means = " -> ".join([f"{mean:.6g}" for mean in test.means])
    return (
        f"{what}  {counted(pairs, 'pair')}: mean {means} (difference {test.difference:+.6g});"
        f" {test.higher} higher, {test.lower} lower, {test.equal} equal; sign test p {_chance(test.p_value)}"
    )


def _chance(p_value: float) -> str:
    return f"= {p_value:.3g}" if p_value >= _SMALLEST_CHANCE else f"< {_SMALLEST_CHANCE}"


def comparison_document(comparison: Comparison) -> dict[str, Any]:
    """All of *comparison*, field by field, with ``equal``, and of each divergence ``told``: what its shape says."""
    document = _plain_fields(comparison)
    document["equal"] = comparison.equal
    document["divergences"] = [divergence_document(divergence) for divergence in comparison.divergences]
    return document


def divergence_document(divergence: Divergence) -> dict[str, Any]:
    """All of *divergence*, field by field, with ``told``: what its shape says."""
    return _plain_fields(divergence) | {"told": shape_sentence(divergence)}


def returns_document(compared: ReturnsCompared) -> dict[str, Any]:
    """All of *compared*, field by field."""
    return _plain_fields(compared)


def _plain_fields(value: Any) -> dict[str, Any]:
    return {field.name: _plain(getattr(value, field.name)) for field in attrs.fields(cast("type[Any]", type(value)))}


def _plain(value: object) -> Any:
    match value:
        case None | bool() | int() | str():
            return value
        case float():
            return plain(value)
        case bytes():
            return value.hex()
        case Mapping():
            return {str(key): _plain(inner) for key, inner in cast("Mapping[object, object]", value).items()}
        case list() | tuple():
            return [_plain(inner) for inner in cast("Sequence[object]", value)]
        case _:
            return _plain_fields(value) if attrs.has(type(value)) else None
