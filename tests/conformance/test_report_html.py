"""The HTML report, parsed: its parts, its anchors, what is marked, and that it takes nothing from outside."""

import re
from html.parser import HTMLParser
from typing import Any

import attrs
import pytest

from rlmesh_trio.conformance.reports.hexdump import hex_lines
from rlmesh_trio.conformance.reports.html import html_text
from rlmesh_trio.conformance.reports.markup import Markup, element
from rlmesh_trio.conformance.scripts import Reset, Script, Step
from rlmesh_trio.conformance.verdicts import Evidence
from tests.conformance.outcomes import action, finding, history, lost_session, material, outcome, solo, target, trace

VOID = {"meta", "input", "br", "hr", "col"}


@attrs.define(eq=False)
class Node:
    """An element of the page."""

    tag: str
    attributes: dict[str, str]
    children: "list[Node | str]" = attrs.field(factory=list["Node | str"])

    @property
    def text(self) -> str:
        return "".join(child if isinstance(child, str) else child.text for child in self.children)

    def all(self, tag: str = "", **wanted: str) -> "list[Node]":
        """Those below, in order: of this tag, whose attributes hold these words (``class_`` for class)."""
        found: list[Node] = []
        for child in self.children:
            if isinstance(child, Node):
                fits = all(
                    value in child.attributes.get(key.rstrip("_"), "").split(" ") for key, value in wanted.items()
                )
                found += [child] if fits and tag in ("", child.tag) else []
                found += child.all(tag, **wanted)
        return found

    def one(self, tag: str = "", **wanted: str) -> "Node":
        (found,) = self.all(tag, **wanted)
        return found


class Page(HTMLParser):
    """Reads a page strictly: every element is closed, in order."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.root = Node("", {})
        self._open = [self.root]
        self.feed(text)
        self.close()
        assert self._open == [self.root]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        node = Node(tag, {key: value or "" for key, value in attrs})
        self._open[-1].children.append(node)
        if tag not in VOID:
            self._open.append(node)

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop().tag == tag

    def handle_data(self, data: str) -> None:
        self._open[-1].children.append(data)


def page(*args: Any, **fields: Any) -> Node:
    return Page(html_text(material(*args, **fields))).root


@pytest.fixture(scope="module")
def whole() -> Node:
    return page()


def test_everything_has_its_part(whole: Node) -> None:
    parts = [node.attributes["id"] for node in whole.all("section", class_="part")]
    assert parts == ["summary", "matrix", "checks", "spaces", "coverage", "times"]
    assert [node.attributes["id"] for node in whole.all("section", class_="check")] == [
        "contract.handshake",
        "space.member-accepted",
        "space.bounds-report",
        "seed.history-independent",
        "seed.timing-independent",
        "lanes.solo-equal",
        "lanes.permute",
        "life.step-needs-reset",
        "wire.large",
    ]


def test_every_link_leads_somewhere_and_no_place_is_named_twice(whole: Node) -> None:
    ids = [node.attributes["id"] for node in whole.all() if "id" in node.attributes]
    assert len(ids) == len(set(ids))
    links = [node.attributes["href"] for node in whole.all("a")]
    assert {link for link in links if link.removeprefix("#") not in ids} == set()


def test_without_findings_no_link_leads_nowhere() -> None:
    blocked = finding("a.c", "blocked", reason="elsewhere.found")
    calm = page(outcome(target(finding("a.b", "pass"), blocked)))
    ids = {node.attributes["id"] for node in calm.all() if "id" in node.attributes}
    assert {node.attributes["href"][1:] for node in calm.all("a")} <= ids


def test_nothing_is_taken_from_outside(whole: Node) -> None:
    assert whole.all("link") == whole.all("img") == whole.all("iframe") == []
    assert [node for node in whole.all() if "src" in node.attributes] == []
    assert not re.search(r"url\(|@import|https?://|fetch\(|XMLHttpRequest", html_text(material()))


def test_what_an_env_says_is_text(whole: Node) -> None:
    assert len(whole.all("script")) == 1
    assert "boom \\x1b[31m<script>alert(1)</script>" in whole.text


def test_the_matrix_has_a_row_a_check_and_a_column_a_target(whole: Node) -> None:
    matrix = whole.one("table", class_="matrix")
    head = [node.text for node in matrix.one("thead").all("th")]
    assert head == ["check", "demand", "Pole-v1", "vector"]
    rows = {row.all("th")[0].text: row.all("td") for row in matrix.all("tr") if row.all("td")}
    cells = {check: [cell.attributes["class"] for cell in row[1:]] for check, row in rows.items()}
    assert cells["seed.history-independent"] == ["v-fail", "v-pass"]
    assert cells["seed.timing-independent"] == ["v-blocked", "v-none"]
    assert cells["life.step-needs-reset"] == ["v-warn", "v-known"]
    assert rows["lanes.solo-equal"][2].text == "✗fail 2/7", "a mark besides the colour, and how often it broke"
    link = rows["lanes.solo-equal"][2].one("a").attributes["href"]
    assert link == "#lanes.solo-equal--2"


def test_a_section_has_requirement_script_traces_and_the_way_back(whole: Node) -> None:
    section = whole.one("section", id="seed.history-independent")
    assert section.one("p", class_="requirement").text.startswith("script B after any script A")
    article = section.one("article", id="seed.history-independent--1")
    assert article.attributes["class"] == "b-fail"
    assert article.one("pre", class_="evidence").text.startswith("B alone    step 2")
    first, second = article.all("div", class_="timeline")
    assert [node.text for node in first.all("td")] == ["seed 0", "2"]
    assert [node.text for node in second.all("td", class_="first")] == ["1"]
    assert [node.text for node in first.all("th", class_="moot")] == ["reset"]
    again = article.one("dl", class_="again")
    assert [node.text for node in again.all("dt")] == ["again", "file", "plain gymnasium"]


def test_the_first_difference_is_marked_in_both_traces(whole: Node) -> None:
    article = whole.one("article", id="seed.history-independent--1")
    rows = article.one("div", class_="sides").one("tbody").all("tr")
    assert [row.attributes.get("class", "") for row in rows] == ["", "", "first"]
    first = rows[2]
    assert first.one("span", class_="badge").text == "first difference"
    values = [
        node.all("dd")[0].text for node in first.all("div", class_="other") if node.all("dt")[0].text == "obs.velocity"
    ]
    assert values == ["[0.0917]\n0x3dbbcd36  53,687 ulp apart", "[0.0921]\n0x3dbc9eed  53,687 ulp apart"]
    raw = first.all("details")[0]
    assert raw.one("summary").text == "raw bytes"
    assert [mark.text for mark in raw.all("mark")] == ["36 cd bb"]


def test_the_lane_that_moved_is_shown_first_and_the_others_are_folded(whole: Node) -> None:
    article = whole.one("article", id="lanes.solo-equal--2")
    shown, folded = article.all("div", class_="sides")
    assert shown.all("th")[0].text == "lane 1"
    assert folded.all("th")[0].text == "lane 0"
    assert [row.all("th")[0].text for row in shown.one("tbody").all("tr", class_="first")] == ["step 2first difference"]
    lanes = article.all("div", class_="timeline")[0].all("tr")
    assert [node.text for node in lanes[2].all("td")] == ["seed 1", "1", "0.1 s", "1"]
    assert [node.text for node in article.all("td", class_="first")] == ["1", "1"], "in both scripts"


def test_a_lost_session_and_a_refusal_are_in_the_trace(whole: Node) -> None:
    article = whole.one("article", id="space.member-accepted--1")
    assert [node.text for node in article.all("span", class_="end")] == ["INTERNAL"]
    assert "session lost: INTERNAL boom" in article.one("tfoot").text


def test_spaces_and_what_was_covered_are_tables(whole: Node) -> None:
    spaces = whole.one("section", id="spaces").all("table")[0]
    assert [[cell.text for cell in (*row.all("th"), *row.all("td"))] for row in spaces.all("tr")[1:]] == [
        ["obs.position", "box", "float32", "2", "-1.0 to 1.0"],
        ["obs.velocity", "box", "float32", "1", "-inf to inf"],
        ["action", "discrete", "int64", "scalar", "0 to 2"],
    ]
    covered = whole.one("section", id="coverage")
    assert [node.text for node in covered.all("h4")][:6] == [
        "operations",
        "actions",
        "ends",
        "episodes by their steps",
        "refusals",
        "not tested",
    ]
    assert "lanes.*: needs num_envs >= 2" in covered.text
    assert "1 40 times2 2 times" in re.sub(r"\s+", " ", covered.text)


def test_times_are_in_their_own_part_and_can_be_left_out() -> None:
    assert page(times=False).all("section", id="times") == []
    untimed = html_text(material(times=False))
    timed = html_text(material())
    assert timed.partition('<section id="times"')[0].replace('<li><a href="#times">Times</a></li>', "") in untimed


def test_a_long_script_is_shown_around_the_difference() -> None:
    ops = (Reset((0,)), *[Step((action(number % 3),)) for number in range(300)])
    script = Script(1, ops)
    played = trace(script, *[(float(number),) for number in range(301)])
    other = trace(script, *[(float(number if number < 200 else -number),) for number in range(301)])
    evidence = Evidence(("far",), "far", traces=(played, other), first=(200, 0))
    article = page(outcome(target(history(scripts=(script,), evidence=evidence, moot=())))).one("article")
    assert len(article.one("div", class_="timeline").all("td")) <= 48
    rows = article.one("div", class_="sides").one("tbody").all("tr")
    assert len(rows) <= 25
    assert [row.all("th")[0].text for row in rows if row.attributes.get("class") == "first"] == [
        "step 200first difference"
    ]
    assert "188 more answers before" in rows[0].text
    assert re.search(r"\d+ more answers after", rows[-1].text)


def test_many_lanes_are_not_all_shown() -> None:
    script = Script(64, (Reset(tuple(range(64))), Step((action(1),) * 64)))
    played = trace(script, (0.0,) * 64, (1.0,) * 64)
    other = trace(script, (0.0,) * 64, (*(1.0,) * 63, 2.0))
    evidence = Evidence(("lane 63",), "lane", traces=(played, other), first=(1, 63))
    article = page(outcome(target(history(scripts=(script,), evidence=evidence, moot=())))).one("article")
    assert [row.all("th")[0].text for row in article.one("div", class_="timeline").all("tr")][-1] == "63"
    assert "56 more lanes" in article.text
    assert article.all("div", class_="sides")[0].all("th")[0].text == "lane 63"


def test_a_difference_in_infos_alone_opens_them() -> None:
    failure = history()
    assert failure.evidence is not None
    one, other = failure.evidence.traces[0], failure.evidence.traces[0]
    changed = attrs.evolve(other.answers[2], infos={"power": -1.0})
    other = attrs.evolve(other, answers=(*other.answers[:2], changed))
    evidence = attrs.evolve(failure.evidence, traces=(one, other))
    row = page(outcome(target(attrs.evolve(failure, evidence=evidence)))).one("tr", class_="first")
    assert row.one("span", class_="badge").text == "first difference"
    assert [node.one("summary").text for node in row.all("details") if "open" in node.attributes] == ["info", "info"]


def test_leaves_that_make_no_rows_are_told_by_their_sizes() -> None:
    failure = lost_session()
    assert failure.evidence is not None
    (played,) = failure.evidence.traces
    broken = attrs.evolve(played.answers[0], observation=(), raw_leaves=(b"1234567", b""))
    evidence = attrs.evolve(failure.evidence, traces=(attrs.evolve(played, answers=(broken, *played.answers[1:])),))
    text = page(outcome(target(attrs.evolve(failure, evidence=evidence)))).text
    assert "no rows: leaves of 7, 0 bytes" in text


def test_a_target_of_which_nothing_is_known_is_told() -> None:
    told = page(outcome(target(solo("Pole-v1"), contract=None, lost="never answered")))
    assert "its contract could not be read" in told.text
    assert "never answered" in told.one("section", id="summary").text


def test_bytes_are_shown_from_where_they_differ() -> None:
    data = bytes(4096)
    other = bytes(3000) + b"\x01" + bytes(1095)
    lines = Page(hex_lines(data, other)).root.text.splitlines()
    assert lines[0] == "… 2,976 bytes before"
    assert lines[1].startswith("000ba0  00 00")
    assert lines[-1] == "… 864 bytes more"
    assert len(lines) == 18
    assert hex_lines(b"\x00\xff") == "000000  00 ff\n"


def test_markup_escapes_everything_but_markup() -> None:
    made = element("p", '<i> & "', Markup("<br>"), title='"<', hidden=True, lang=None, data_kind=False, class_="a")
    assert made == '<p title="&quot;&lt;" hidden class="a">&lt;i&gt; &amp; &quot;<br></p>'
