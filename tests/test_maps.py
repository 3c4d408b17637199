"""Maps of flows: where boxes and lines go, what is lit, and that nothing in them can harm a page."""

from __future__ import annotations

import os
import subprocess
import sys
from itertools import combinations, pairwise
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hitherto import Flow, State, maps
from hitherto.demo.pizza import Order
from hitherto.flows import spec
from hitherto.layout import LAYER_GAP, Size, layered

SVG = "{http://www.w3.org/2000/svg}"
HOSTILE = "<script>alert('\"&\u202egnp.exe"


class Anything(Flow):
    a = State(initial=True)
    b = State()
    c = State()
    d = State()


class Nasty(Flow, name=HOSTILE.replace("\u202e", "!")):
    first = State(to=["second"], name=HOSTILE, initial=True, label=HOSTILE * 9)
    second = State(to=[], label="二つ目")


class Alone(Flow):
    only = State(to=[])


def drawn(flow, **options):
    return ElementTree.fromstring(maps.svg(spec(flow), **options))


def of_class(tree, name):
    return [element for element in tree.iter() if name in element.get("class", "").split()]


def edge_of(element):
    return element.get("data-from"), element.get("data-to")


# ---------------------------------------------------------------------------------------------- layout

graphs = st.integers(1, 12).flatmap(
    lambda number: st.lists(
        st.tuples(st.integers(0, number - 1), st.integers(0, number - 1)), max_size=30
    ).map(lambda edges: (number, [(str(one), str(other)) for one, other in edges]))
)


@given(graphs)
def test_boxes_stand_apart_and_lines_run_between_them(graph):
    number, edges = graph
    sizes = {str(name): Size(60 + 17 * name, 40 + name, 30.0 * (name % 2)) for name in range(number)}
    plan = layered(sizes, edges)
    boxes = {}
    for name, (x, y) in plan.centres.items():
        width, height, aside = sizes[name]
        boxes[name] = (x - width / 2, x + width / 2 + aside, y - height / 2, y + height / 2)
        assert boxes[name][0] >= -0.01
        assert boxes[name][1] <= plan.width + 0.01
        assert boxes[name][2] >= -0.01
        assert boxes[name][3] <= plan.height + 0.01
    for (l1, r1, t1, b1), (l2, r2, t2, b2) in combinations(boxes.values(), 2):
        assert r1 <= l2 or r2 <= l1 or b1 <= t2 or b2 <= t1
    assert set(plan.routes) == {edge for edge in edges if edge[0] != edge[1]}
    for edge, points in plan.routes.items():
        assert on_rim(points[0], boxes[edge[0]], sizes[edge[0]].aside)
        assert on_rim(points[-1], boxes[edge[1]], sizes[edge[1]].aside)
        assert one_way([point.y for point in points])
        for one, other in list(pairwise(points))[1::2]:  # upright, through the row of boxes
            assert one.x == other.x
            assert not any(
                left < one.x < right and top < max(one.y, other.y) and bottom > min(one.y, other.y)
                for left, right, top, bottom in boxes.values()
            )


def on_rim(point, box, aside):
    left, right, top, bottom = box
    return left <= point.x <= right - aside and min(abs(point.y - top), abs(point.y - bottom)) < 0.01


def one_way(values):
    steps = [other - one for one, other in pairwise(values)]
    return all(step >= 0 for step in steps) or all(step <= 0 for step in steps)


def test_a_chain_stands_in_line_and_goes_down():
    sizes = {str(name): Size(80, 40) for name in range(30)}
    edges = [(str(name), str(name + 1)) for name in range(29)] + [(str(name), "0") for name in range(1, 30)]
    plan = layered(sizes, edges)
    ys = [plan.centres[str(name)].y for name in range(30)]
    assert [other - one for one, other in pairwise(ys)] == [40 + LAYER_GAP] * 29
    xs = [plan.centres[str(name)].x for name in range(30)]
    assert max(xs) - min(xs) < 20
    assert plan.width < 200  # the ways back are one line


def test_long_lines_to_the_same_box_share_their_way():
    sizes = {name: Size(80, 40) for name in "abcd"}
    plan = layered(sizes, [("a", "b"), ("b", "c"), ("c", "d"), ("d", "a"), ("c", "a")])
    assert set(plan.routes["d", "a"][-3:-1]) == set(plan.routes["c", "a"][-3:-1])


def test_few_lines_cross():
    sizes = {name: Size(80, 40) for name in "rabcxyz"}
    tree = [("r", "a"), ("r", "b"), ("r", "c"), ("a", "z"), ("b", "y"), ("c", "x")]
    plan = layered(sizes, tree)
    order = sorted("abc", key=lambda name: plan.centres[name].x)
    below = sorted("xyz", key=lambda name: plan.centres[name].x)
    assert below == [{"a": "z", "b": "y", "c": "x"}[name] for name in order]


# --------------------------------------------------------------------------------------------- drawing


def test_every_state_and_edge_is_drawn_once():
    tree = drawn(Order)
    assert [one.get("data-state") for one in of_class(tree, "map-state")] == list(spec(Order).states)
    declared = [(one.name, other.name) for one, others in spec(Order).edges.items() for other in others]
    assert sorted(map(edge_of, of_class(tree, "map-edge"))) == sorted([("", "size"), *declared])
    assert len(of_class(tree, "map-start")) == 1
    assert [one.get("data-state") for one in of_class(tree, "map-final")] == ["confirm"]
    assert [text.text for text in tree.iter(f"{SVG}text")][:2] == ["what size?", "size"]


def test_only_the_current_state_is_lit_and_only_the_last_edge_is_marked():
    tree = drawn(Order, here="toppings", taken=("size", "toppings"))
    assert [one.get("data-state") for one in of_class(tree, "map-here")] == ["toppings"]
    assert [edge_of(one) for one in of_class(tree, "map-taken")] == [("size", "toppings")]
    assert not of_class(tree, "map-jump")
    assert "now toppings" in tree.get("aria-label")
    assert not of_class(drawn(Order), "map-here") + of_class(drawn(Order), "map-taken")


def test_the_start_and_a_state_itself_can_be_the_last_edge():
    assert [edge_of(one) for one in of_class(drawn(Order, taken=(None, "size")), "map-taken")] == [
        ("", "size")
    ]
    again = of_class(drawn(Order, taken=("toppings", "toppings")), "map-taken")
    assert [edge_of(one) for one in again] == [("toppings", "toppings")]


def test_a_step_that_is_not_declared_is_drawn_as_a_jump():
    tree = drawn(Order, here="size", taken=("address", "size"))
    assert [edge_of(one) for one in of_class(tree, "map-jump")] == [("address", "size")]
    assert len(of_class(tree, "map-edge")) == len(of_class(drawn(Order), "map-edge")) + 1
    assert tree.get("viewBox") == drawn(Order).get("viewBox")  # nothing else moves


@pytest.mark.parametrize("taken", [("gone", "size"), ("size", "gone")])
def test_states_that_are_no_more_are_left_out(taken):
    assert not of_class(drawn(Order, here="gone", taken=taken), "map-taken")


def test_counts_stand_beside_their_states():
    tree = drawn(Order, counts={"size": 3, "confirm": 1_234_567, "toppings": 0, "gone": 9})
    shown = [text.text for pill in of_class(tree, "map-count") for text in pill.iter(f"{SVG}text")]
    assert shown == ["3", "1.2M"]
    assert "1234567 conversations" in maps.svg(spec(Order), counts={"confirm": 1_234_567})


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (0, "0"),
        (999, "999"),
        (1000, "1k"),
        (12_345, "12.3k"),
        (999_999, "999k"),
        (10**6, "1M"),
        (2 * 10**9, "2G"),
    ],
)
def test_large_numbers_are_shortened(number, text):
    assert maps.compact(number) == text


def test_links_lead_from_states():
    tree = drawn(Order, links={"size": '/list?flow=order&state="size"'})
    links = list(tree.iter(f"{SVG}a"))
    assert [link.get("href") for link in links] == ['/list?flow=order&state="size"']
    assert links[0][0].get("data-state") == "size"
    assert (tree.get("role"), drawn(Order).get("role")) == ("group", "img")  # an image has no links


@pytest.mark.parametrize("taken", [("a", "b"), ("a", "d"), ("d", "a"), ("b", "b"), (None, "c")])
def test_a_flow_without_edges_is_a_grid_that_shows_the_step_taken(taken):
    tree = drawn(Anything, here=taken[1], taken=taken)
    assert [edge_of(one) for one in of_class(tree, "map-taken")] == [(taken[0] or "", taken[1])]
    assert not of_class(tree, "map-jump")
    assert len(of_class(tree, "map-edge")) == 2  # the start's, and this one
    assert [note.text for note in of_class(tree, "map-note")] == ["any state may follow any other"]


def test_a_state_that_cannot_be_reached_says_so():
    with pytest.warns(Warning, match="cannot be reached"):

        class Lost(Flow):
            begin = State(to=["end"], initial=True)
            end = State(to=[])
            never = State(to=["end"])

    assert [one.get("data-state") for one in of_class(drawn(Lost), "map-far")] == ["never"]


def test_one_state_is_a_map_too():
    tree = drawn(Alone, here="only")
    assert [one.get("data-state") for one in of_class(tree, "map-here")] == ["only"]


# ------------------------------------------------------------------------------------------ safe and same


@pytest.mark.parametrize("flow", [Order, Anything, Nasty, Alone])
def test_a_strict_security_policy_has_nothing_to_refuse(flow):
    name = next(iter(spec(flow).states))
    tree = drawn(flow, here=name, taken=(None, name), counts=dict.fromkeys(spec(flow).states, 5))
    for element in tree.iter():
        assert element.tag.removeprefix(SVG) in {"svg", "g", "path", "rect", "circle", "text", "title"}
        assert not [key for key in element.attrib if key.startswith("on") or key in ("style", "id", "href")]


def test_hostile_names_are_text():
    text = maps.svg(spec(Nasty), here=HOSTILE, taken=(None, HOSTILE))
    assert "<script" not in text
    assert "\u202e" not in text
    assert "\\u202e" in text
    tree = ElementTree.fromstring(text)
    assert len(of_class(tree, "map-here")) == len(of_class(tree, "map-taken")) == 1
    label, *_ = (text.text for text in tree.iter(f"{SVG}text"))
    assert label.startswith("<script>alert")
    assert label.endswith("…")


def test_a_file_of_its_own_carries_its_sheet():
    text = maps.svg(spec(Order), standalone=True)
    assert maps.STYLE in text
    ElementTree.fromstring(text)
    assert "@import" not in text
    assert "url(" not in text


def test_the_map_of_a_flow_is_always_the_same():
    asked = (
        "from hitherto import maps; from hitherto.flows import spec; from hitherto.demo.pizza import Order; "
    )
    asked += "print(maps.svg(spec(Order), here='size', taken=('confirm', 'size')))"
    seen = {
        subprocess.run(
            [sys.executable, "-c", asked], env={**os.environ, "PYTHONHASHSEED": seed}, check=True,
            capture_output=True,
        ).stdout
        for seed in ("1", "2")
    }  # fmt: skip
    assert seen == {(maps.svg(spec(Order), here="size", taken=("confirm", "size")) + "\n").encode()}
