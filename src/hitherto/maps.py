"""A flow's map: its declared graph as SVG, with the current state lit and the edge that was taken last.

::

    svg(spec(Order), here="toppings", taken=("size", "toppings"), counts={"size": 3})

The answer is the same for the same flow.  It holds classes only (no style attribute, script, id or address),
so that it can stand in a page with a strict content security policy.  ``STYLE`` is the sheet that such a page
has to serve: colours from variables, in light and dark.  A file of its own takes ``standalone=True``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from html import escape
from typing import TYPE_CHECKING, Final
from unicodedata import combining, east_asian_width

from hitherto.drawings import plain
from hitherto.layout import Edge, Plan, Point, Size, layered

if TYPE_CHECKING:
    from hitherto.flows import FlowSpec, State

STYLE: Final = """\
.map {
  --ink: var(--map-ink, #1f2430); --soft: var(--map-soft, #667085); --line: var(--map-line, #98a2b3);
  --box: var(--map-box, #ffffff); --lit: var(--map-lit, #c2410c); --lit-ink: var(--map-lit-ink, #ffffff);
  font: 600 14px system-ui, sans-serif; max-width: 100%; height: auto;
}
@media (prefers-color-scheme: dark) {
  .map {
    --ink: var(--map-ink, #e6e9f0); --soft: var(--map-soft, #98a2b3); --line: var(--map-line, #667085);
    --box: var(--map-box, #1c212c); --lit: var(--map-lit, #fb923c); --lit-ink: var(--map-lit-ink, #1a1206);
  }
}
.map text { fill: var(--ink); text-anchor: middle; dominant-baseline: central; }
.map .map-name { fill: var(--soft); font-size: 11px; font-weight: 400; }
.map .map-box, .map .map-ring { fill: var(--box); stroke: var(--line); stroke-width: 1.5; }
.map .map-ring { fill: none; }
.map .map-far .map-box { stroke-dasharray: 4 4; }
.map .map-start { fill: var(--ink); }
.map .map-line { fill: none; stroke: var(--line); stroke-width: 1.5; }
.map .map-head { fill: var(--line); }
.map .map-taken .map-line { stroke: var(--lit); stroke-width: 3; }
.map .map-taken .map-head { fill: var(--lit); }
.map .map-jump .map-line { stroke-dasharray: 6 5; }
.map .map-here .map-box { fill: var(--lit); stroke: var(--lit); }
.map .map-here .map-ring { stroke: var(--lit-ink); }
.map .map-here text { fill: var(--lit-ink); }
.map .map-count .map-pill, .map .map-here .map-count .map-pill { fill: var(--ink); }
.map .map-count text, .map .map-here .map-count text { fill: var(--box); font-size: 11px; }
.map a { text-decoration: none; cursor: pointer; }
.map a:hover .map-box, .map a:focus-visible .map-box { stroke: var(--lit); stroke-width: 3; }
.map .map-note { fill: var(--soft); font-size: 12px; font-weight: 400; }
"""
_START: Final = ""  # no state has the empty name
_DOT: Final = 14.0
_LOOP: Final = 34.0
_MARGIN: Final = 12.0
_APART: Final = 32.0
_JUMP: Final = 30.0
_LONGEST: Final = 26
_ANY: Final = "any state may follow any other"
_HEADS: Final = {"down": "l-5 -9h10z", "up": "l-5 9h10z", "left": "l9 -5v10z"}
_TURNING: Final = (0x61C, 0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A))
_MARKS: Final = {code: f"\\u{code:04x}" for code in _TURNING}


def svg(
    spec: FlowSpec,
    *,
    here: str | None = None,
    taken: tuple[str | None, str] | None = None,
    counts: Mapping[str, int] | None = None,
    links: Mapping[str, str] | None = None,
    standalone: bool = False,
) -> str:
    """The map of a flow.

    *here*: the stored name of the state to light.  *taken*: the edge taken last, by the names of its two
    states; ``None`` as the first is the flow's start; one that is not declared is drawn as a jump.  *counts*:
    how many conversations are in each state.  *links*: where a click on a state leads.
    """
    plan, last = _plan(spec), _taken(taken)
    # the edge taken last is drawn above the others
    edges = sorted(_drawn(spec), key=lambda edge: edge == last)
    parts = [_edge(spec, plan, edge, edge == last) for edge in edges] + _jump(spec, plan, last)
    if spec.initial is not None:
        dot = plan.centres[_START]
        parts.append(f'<circle class="map-start" cx="{_n(dot.x)}" cy="{_n(dot.y)}" r="{_n(_DOT / 2 - 1)}"/>')
    near = _reached(spec)
    for name, state in spec.states.items():
        part = _box(state, plan.centres[name], (counts or {}).get(name, 0), name == here, name not in near)
        target = (links or {}).get(name)
        parts.append(part if target is None else f'<a href="{escape(target)}">{part}</a>')
    return _framed(spec, plan, parts, here, bool(links), standalone)


def _framed(
    spec: FlowSpec, plan: Plan, parts: list[str], here: str | None, linked: bool, standalone: bool
) -> str:
    note = "" if spec.declared else _ANY
    width = max(plan.width, len(note) * 6.5) + 2 * _MARGIN + _JUMP
    height = plan.height + 2 * _MARGIN + (22 if note else 0)
    if note:
        parts.append(
            f'<text class="map-note" x="{_n(width / 2 - _MARGIN)}" y="{_n(plan.height + 18)}">{note}</text>'
        )
    says = _shown(f"{spec.name}: {', '.join(spec.states)}") + (f"; now {_shown(here)}" if here else "")
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="map" role="{"group" if linked else "img"}" '
        f'aria-label="{says}" width="{_n(width)}" height="{_n(height)}" '
        f'viewBox="{_n(-_MARGIN)} {_n(-_MARGIN)} {_n(width)} {_n(height)}">'
    )
    sheet = [f"<style>\n{STYLE}</style>"] if standalone else []
    return "\n".join([head, *sheet, *parts, "</svg>"])


# -------------------------------------------------------------------------------------------- layout


def _plan(spec: FlowSpec) -> Plan:
    sizes = {name: _size(spec, state) for name, state in spec.states.items()}
    if not spec.declared:
        return _grid(sizes, spec)
    first = (
        {}
        if spec.initial is None
        else {_START: Size(_DOT, _DOT), spec.initial.name: sizes[spec.initial.name]}
    )
    return layered({**first, **sizes}, _drawn(spec))


def _drawn(spec: FlowSpec) -> list[Edge]:
    """The declared edges by name, and the one from the start."""
    edges = [(start.name, end.name) for start, ends in spec.edges.items() for end in ends]
    return edges if spec.initial is None else [(_START, spec.initial.name), *edges]


def _grid(sizes: Mapping[str, Size], spec: FlowSpec) -> Plan:
    """Rows of boxes without lines, for a flow in which every step is allowed."""
    columns = 1 if len(sizes) < 4 else 2 if len(sizes) < 9 else 3
    wide = max(size.width for size in sizes.values())
    high = max(size.height for size in sizes.values())
    top = 0.0 if spec.initial is None else _DOT + _APART
    centres = {
        name: Point(
            (wide + _APART) * (place % columns) + wide / 2,
            top + (high + _APART) * (place // columns) + high / 2,
        )
        for place, name in enumerate(sizes)
    }
    routes: dict[Edge, tuple[Point, ...]] = {}
    if spec.initial is not None:
        first = spec.initial.name
        end = Point(centres[first].x, centres[first].y - sizes[first].height / 2)
        centres[_START] = Point(end.x, end.y - _APART - _DOT / 2)
        routes[_START, first] = (Point(end.x, end.y - _APART), end)
    rows = -(-len(sizes) // columns)
    width = (wide + _APART) * min(columns, len(sizes)) - _APART
    return Plan(width, top + (high + _APART) * rows - _APART, centres, routes)


def _size(spec: FlowSpec, state: State) -> Size:
    caption, name = _captions(state)
    width = max(_width(caption, 8.0), _width(name, 6.4)) + 34
    loops = spec.declared and state in spec.edges[state]
    return Size(max(width, 84.0), 52.0 if name else 40.0, _LOOP if loops else 0.0)


def _captions(state: State) -> tuple[str, str]:
    """What stands large in a box, and what small below it: the label and the name, or the name alone."""
    label = plain(state.label).strip()
    return (_short(label), _short(state.name)) if label and label != state.name else (_short(state.name), "")


def _short(text: str) -> str:
    return text if len(text) <= _LONGEST else text[: _LONGEST - 1].rstrip() + "…"


def _width(text: str, unit: float) -> float:
    wide = sum(
        0 if combining(one) else 1.8 if east_asian_width(one) in "WF" else 1 for one in text.translate(_MARKS)
    )
    return wide * unit


def _reached(spec: FlowSpec) -> set[str]:
    """The states that a conversation can come to."""
    if not spec.declared or spec.initial is None:
        return set(spec.states)
    waiting, reached = [spec.initial], {spec.initial.name}
    while waiting:
        new = [end for end in spec.edges[waiting.pop()] if end.name not in reached]
        reached |= {end.name for end in new}
        waiting += new
    return reached


# -------------------------------------------------------------------------------------------- drawing


def _edge(spec: FlowSpec, plan: Plan, edge: Edge, taken: bool) -> str:
    if edge[0] == edge[1]:
        return _loop(spec, plan, edge, taken)
    points = plan.routes[edge]
    return _lined(_path(points), points[-1], "down" if points[-1].y > points[-2].y else "up", edge, taken)


def _loop(spec: FlowSpec, plan: Plan, edge: Edge, taken: bool) -> str:
    """From a box to itself, at its right side."""
    centre = plan.centres[edge[0]]
    right = centre.x + _size(spec, spec.states[edge[0]]).width / 2
    reach = _n(right + _LOOP - 6)
    path = (
        f"M{_n(right)} {_n(centre.y - 10)}C{reach} {_n(centre.y - 26)} "
        f"{reach} {_n(centre.y + 26)} {_n(right + 8)} {_n(centre.y + 12)}"
    )
    return _lined(path, Point(right, centre.y + 9), "left", edge, taken)


def _taken(taken: tuple[str | None, str] | None) -> Edge | None:
    return None if taken is None else (taken[0] or _START, taken[1])


def _path(points: Iterable[Point]) -> str:
    """A smooth line: upright through the points' pairs, bent in the gaps; it stops where its head begins."""
    first, *rest = points
    sign = 1 if rest[-1].y > first.y else -1
    text, at = f"M{_n(first.x)} {_n(first.y)}", first
    for place, point in enumerate(rest):
        y = point.y - 7 * sign if place == len(rest) - 1 else point.y
        if abs(point.x - at.x) < 0.5:
            text += f"L{_n(point.x)} {_n(y)}"
        else:
            bend = (y - at.y) / 2
            text += f"C{_n(at.x)} {_n(at.y + bend)} {_n(point.x)} {_n(y - bend)} {_n(point.x)} {_n(y)}"
        at = point
    return text


def _lined(path: str, tip: Point, way: str, edge: Edge, taken: bool, jump: bool = False) -> str:
    """A line with its head, which points *way*."""
    head = f"M{_n(tip.x)} {_n(tip.y)}{_HEADS[way]}"
    kind = "map-edge" + (" map-taken" if taken else "") + (" map-jump" if jump else "")
    return (
        f'<g class="{kind}" data-from="{_shown(edge[0])}" data-to="{_shown(edge[1])}">'
        f'<path class="map-line" pathLength="100" d="{path}"/><path class="map-head" d="{head}"/></g>'
    )


def _jump(spec: FlowSpec, plan: Plan, edge: Edge | None) -> list[str]:
    """The edge that was taken although no line stands for it."""
    if edge is None or edge in _drawn(spec) or edge[1] not in spec.states or edge[0] not in plan.centres:
        return []
    start, end = plan.centres[edge[0]], plan.centres[edge[1]]
    high = _size(spec, spec.states[edge[1]]).height / 2
    out = _DOT / 2 if not edge[0] else _size(spec, spec.states[edge[0]]).height / 2
    if edge[0] == edge[1]:
        return [_loop(spec, plan, edge, taken=True)]
    if not spec.declared and start.y != end.y:
        sign = 1 if end.y > start.y else -1
        points = (Point(start.x, start.y + sign * out), Point(end.x, end.y - sign * high))
        return [_lined(_path(points), points[-1], "down" if sign > 0 else "up", edge, taken=True)]
    return [_bow(spec, start, end, edge) if spec.declared else _arch(start, end, out, high, edge)]


def _bow(spec: FlowSpec, start: Point, end: Point, edge: Edge) -> str:
    """From side to side, around at the right."""
    half = _size(spec, spec.states[edge[0]]).width / 2 if edge[0] else _DOT / 2
    out, tip = start.x + half, Point(end.x + _size(spec, spec.states[edge[1]]).width / 2, end.y)
    bow = _n(max(out, tip.x) + _JUMP + 8)
    path = f"M{_n(out)} {_n(start.y)}C{bow} {_n(start.y)} {bow} {_n(end.y)} {_n(tip.x + 8)} {_n(end.y)}"
    return _lined(path, tip, "left", edge, taken=True, jump=True)


def _arch(start: Point, end: Point, out: float, high: float, edge: Edge) -> str:
    """From above one box to above another in the same row."""
    tip = Point(end.x, end.y - high)
    top = _n(tip.y - _APART)
    path = f"M{_n(start.x)} {_n(start.y - out)}C{_n(start.x)} {top} {_n(tip.x)} {top} "
    path += f"{_n(tip.x)} {_n(tip.y - 7)}"
    return _lined(path, tip, "down", edge, taken=True)


def _box(state: State, centre: Point, count: int, here: bool, far: bool) -> str:
    caption, name = _captions(state)
    width = max(max(_width(caption, 8.0), _width(name, 6.4)) + 34, 84.0)
    height = 52.0 if name else 40.0
    x, y = centre.x - width / 2, centre.y - height / 2
    kind = "map-state" + " map-here" * here + " map-final" * state.final + " map-far" * far
    full = _shown(state.name) + (f": {_shown(plain(state.label))}" if name else "")
    parts = [
        f'<g class="{kind}" data-state="{_shown(state.name)}">',
        f"<title>{full}{_told(count, state, here, far)}</title>",
        _rect("map-box", x, y, width, height, 12),
    ]
    if state.final:
        parts.append(_rect("map-ring", x + 4, y + 4, width - 8, height - 8, 8))
    shift = 8 if name else 0
    parts.append(f'<text x="{_n(centre.x)}" y="{_n(centre.y - shift)}">{_shown(caption)}</text>')
    if name:
        parts.append(
            f'<text class="map-name" x="{_n(centre.x)}" y="{_n(centre.y + 11)}">{_shown(name)}</text>'
        )
    if count:
        parts.append(_pill(x + width - 6, y, compact(count)))
    return "".join([*parts, "</g>"])


def _told(count: int, state: State, here: bool, far: bool) -> str:
    said = ["here"] * here + ["initial"] * state.initial + ["final"] * state.final
    said += ["cannot be reached"] * far + ([f"{count} conversations"] if count else [])
    return f" ({', '.join(said)})" if said else ""


def _pill(x: float, y: float, text: str) -> str:
    width = len(text) * 7 + 12
    return (
        f'<g class="map-count">{_rect("map-pill", x - width / 2, y - 9, width, 18, 9)}'
        f'<text x="{_n(x)}" y="{_n(y)}">{text}</text></g>'
    )


def _rect(kind: str, x: float, y: float, width: float, height: float, radius: float) -> str:
    size = f'width="{_n(width)}" height="{_n(height)}" rx="{_n(radius)}"'
    return f'<rect class="{kind}" x="{_n(x)}" y="{_n(y)}" {size}/>'


def compact(number: int) -> str:
    """A number of at most four signs or so: 950, 12k, 3.4M."""
    for size, unit in ((10**9, "G"), (10**6, "M"), (10**3, "k")):
        if number >= size:
            return (
                f"{number // (size // 10) / 10:.3g}{unit}"
                if number < 100 * size
                else f"{number // size}{unit}"
            )
    return str(number)


def _shown(text: str) -> str:
    """Text for the drawing: escaped, direction marks spelled out so that they turn nothing around."""
    return escape(plain(text).translate(_MARKS))


def _n(number: float) -> str:
    return f"{round(number, 1):g}"
