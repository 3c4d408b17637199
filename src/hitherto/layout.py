"""Where the boxes and the lines of a small directed graph go: in layers from the top, the same every time.

Pure arithmetic on names and sizes; :mod:`hitherto.maps` draws what comes out.  Edges that lead back up are
laid out turned around.  Long ones bend at a point in every layer they cross, and those that lead to the same
box share these points, so that thirty ways to one state become one line with thirty roots.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import accumulate, pairwise
from typing import Final, NamedTuple, TypeAlias

Edge: TypeAlias = tuple[str, str]
# a box by its name, or where a long line bends: where it leads, whether downwards, in which layer
_Item: TypeAlias = str | tuple[str, bool, int]
_Port: TypeAlias = Callable[[_Item, _Item, bool], float]

LAYER_GAP: Final = 44.0
_BOX_GAP: Final = 26.0
_BEND_GAP: Final = 16.0
_PORT_GAP: Final = 16.0
_SWEEPS: Final = 12


class Size(NamedTuple):
    """How large a box is, and how much room it needs besides at its right."""

    width: float
    height: float
    aside: float = 0.0


class Point(NamedTuple):
    """A place in the drawing; y grows downwards."""

    x: float
    y: float


class _Chain(NamedTuple):
    """What an edge passes, one item in each layer, from its start to its end."""

    items: tuple[_Item, ...]
    down: bool


class Plan(NamedTuple):
    """The outcome: the centres of the boxes, and the points of the lines from start to end."""

    width: float
    height: float
    centres: dict[str, Point]
    routes: dict[Edge, tuple[Point, ...]]


def layered(sizes: Mapping[str, Size], edges: Iterable[Edge]) -> Plan:
    """Lay out the boxes in the order given; an edge from a box to itself has no route."""
    straight = [edge for edge in dict.fromkeys(edges) if edge[0] != edge[1]]
    layer = _layers(list(sizes), straight)
    chains = {edge: _chain(edge, layer) for edge in straight}
    rows = _rows(list(sizes), layer, chains)
    near = _neighbours(chains.values())
    _uncross(rows, near)
    return _placed(rows, near, sizes, chains)


# --------------------------------------------------------------------------------------------- layers


def _layers(names: Sequence[str], edges: Sequence[Edge]) -> dict[str, int]:
    """Each box's layer: one below the lowest that leads to it, but for the edges that close a circle."""
    ends: dict[str, list[str]] = {name: [] for name in names}
    for start, end in edges:
        ends[start].append(end)
    ready: list[str] = []
    back: set[Edge] = set()
    entered: dict[str, bool] = {}

    def enter(name: str) -> None:
        entered[name] = True
        for end in ends[name]:
            if end not in entered:
                enter(end)
            elif entered[end]:
                back.add((name, end))
        entered[name] = False
        ready.append(name)

    for name in names:
        if name not in entered:
            enter(name)
    layer = dict.fromkeys(names, 0)
    for name in reversed(ready):
        for end in ends[name]:
            if (name, end) not in back:
                layer[end] = max(layer[end], layer[name] + 1)
    return layer


def _chain(edge: Edge, layer: Mapping[str, int]) -> _Chain:
    start, end = edge
    down = layer[start] < layer[end]
    between = range(layer[start] + 1, layer[end]) if down else range(layer[start] - 1, layer[end], -1)
    return _Chain((start, *[(end, down, at) for at in between], end), down)


def _rows(names: Sequence[str], layer: Mapping[str, int], chains: Mapping[Edge, _Chain]) -> list[list[_Item]]:
    rows: list[list[_Item]] = [[] for _ in range(max(layer.values(), default=-1) + 1)]
    for name in names:
        rows[layer[name]].append(name)
    bends = dict.fromkeys(
        item for chain in chains.values() for item in chain.items if not isinstance(item, str)
    )
    for bend in bends:
        rows[bend[2]].append(bend)
    return rows


# ---------------------------------------------------------------------------------------------- order


def _neighbours(chains: Iterable[_Chain]) -> dict[_Item, list[_Item]]:
    near: dict[_Item, dict[_Item, None]] = {}
    for chain in chains:
        for one, other in pairwise(chain.items):
            near.setdefault(one, {})[other] = None
            near.setdefault(other, {})[one] = None
    return {item: list(others) for item, others in near.items()}


def _uncross(rows: list[list[_Item]], near: Mapping[_Item, list[_Item]]) -> None:
    """Order every row so that few lines cross: by the mean place of what is joined above, then below."""
    best, fewest = [list(row) for row in rows], _crossings(rows, near)
    for sweep in range(_SWEEPS):
        down = sweep % 2 == 0
        for above, row in pairwise(rows if down else rows[::-1]):
            places = {item: float(place) for place, item in enumerate(above)}
            means = {item: _mean(near.get(item, ()), places, place) for place, item in enumerate(row)}
            row.sort(key=means.__getitem__)
        crossings = _crossings(rows, near)
        if crossings < fewest:
            best, fewest = [list(row) for row in rows], crossings
    rows[:] = best


def _mean(others: Iterable[_Item], places: Mapping[_Item, float], default: float) -> float:
    found = [places[other] for other in others if other in places]
    return sum(found) / len(found) if found else default


def _crossings(rows: Sequence[Sequence[_Item]], near: Mapping[_Item, list[_Item]]) -> int:
    number = 0
    for above, below in pairwise(rows):
        places = {item: place for place, item in enumerate(below)}
        ended: list[int] = []
        for item in above:
            ends = [places[other] for other in near.get(item, ()) if other in places]
            number += sum(len(ended) - bisect_right(ended, end) for end in ends)
            for end in ends:
                insort(ended, end)
    return number


# --------------------------------------------------------------------------------------------- places


def _placed(
    rows: list[list[_Item]],
    near: Mapping[_Item, list[_Item]],
    sizes: Mapping[str, Size],
    chains: Mapping[Edge, _Chain],
) -> Plan:
    across = _across(rows, near, sizes)
    left = min((across[item] - _left(item, sizes) for row in rows for item in row), default=0.0)
    across = {item: x - left for item, x in across.items()}
    heights = [
        max((sizes[item].height for item in row if isinstance(item, str)), default=0.0) for row in rows
    ]
    tops = list(accumulate((height + LAYER_GAP for height in heights), initial=0.0))
    bands = {item: (tops[at], tops[at] + heights[at]) for at, row in enumerate(rows) for item in row}
    centres = {name: Point(across[name], sum(bands[name]) / 2) for name in sizes}
    width = max((across[item] + _right(item, sizes) for row in rows for item in row), default=0.0)
    ports = _ports(chains.values(), across, sizes)
    routes = {edge: _route(chain, across, bands, centres, sizes, ports) for edge, chain in chains.items()}
    return Plan(width, max(tops[-1] - LAYER_GAP, 0.0), centres, routes)


def _across(
    rows: list[list[_Item]], near: Mapping[_Item, list[_Item]], sizes: Mapping[str, Size]
) -> dict[_Item, float]:
    """The x of every item: near the mean of its neighbours, in order and apart from those beside it."""
    across: dict[_Item, float] = {}
    for row in rows:
        offsets = _offsets(row, sizes)
        across |= {item: offset - offsets[-1] / 2 for item, offset in zip(row, offsets, strict=True)}
    for sweep in range(_SWEEPS):
        for above, row in pairwise(rows if sweep % 2 == 0 else rows[::-1]):
            known = {item: across[item] for item in above} if sweep < _SWEEPS - 2 else across
            wished = [_drawn(item, near.get(item, ()), known, across[item]) for item in row]
            # boxes that stand in line are worth a bent line
            weights = [10.0 if isinstance(item, str) else 1.0 for item in row]
            for item, x in zip(row, _spread(wished, weights, _offsets(row, sizes)), strict=True):
                across[item] = x
    return across


def _drawn(item: _Item, others: Iterable[_Item], across: Mapping[_Item, float], default: float) -> float:
    """Where its neighbours draw an item: boxes are drawn to boxes and bends to bends, above all."""
    total = weights = 0.0
    for other in others:
        if other in across:
            weight = 1.0 if isinstance(item, str) == isinstance(other, str) else 0.05
            total, weights = total + across[other] * weight, weights + weight
    return total / weights if weights else default


def _spread(wished: Sequence[float], weights: Sequence[float], offsets: Sequence[float]) -> list[float]:
    """The places nearest to those wished for that keep the order and the distances: neighbours are pooled."""
    pools: list[tuple[float, float, int]] = []
    for wish, weight, offset in zip(wished, weights, offsets, strict=True):
        mean, total, number = wish - offset, weight, 1
        while pools and pools[-1][0] > mean:
            other, more, members = pools.pop()
            mean = (mean * total + other * more) / (total + more)
            total, number = total + more, number + members
        pools.append((mean, total, number))
    means = [mean for mean, _, number in pools for _ in range(number)]
    return [mean + offset for mean, offset in zip(means, offsets, strict=True)]


def _offsets(row: Sequence[_Item], sizes: Mapping[str, Size]) -> list[float]:
    """How far each item of a row is from the first, as close as they may stand."""

    def apart(one: _Item, other: _Item) -> float:
        gap = _BOX_GAP if isinstance(one, str) and isinstance(other, str) else _BEND_GAP
        return _right(one, sizes) + gap + _left(other, sizes)

    return list(accumulate((apart(one, other) for one, other in pairwise(row)), initial=0.0))


def _left(item: _Item, sizes: Mapping[str, Size]) -> float:
    return sizes[item].width / 2 if isinstance(item, str) else 0.0


def _right(item: _Item, sizes: Mapping[str, Size]) -> float:
    return sizes[item].width / 2 + sizes[item].aside if isinstance(item, str) else 0.0


# --------------------------------------------------------------------------------------------- routes


def _ports(chains: Iterable[_Chain], across: Mapping[_Item, float], sizes: Mapping[str, Size]) -> _Port:
    """Where on a box's side a line ends: different neighbours, and both ways of a pair, stand apart."""
    sides: dict[tuple[str, bool], dict[tuple[_Item, bool], None]] = {}
    for chain in chains:
        for one, other in pairwise(chain.items):
            for box, neighbour, below in ((one, other, chain.down), (other, one, not chain.down)):
                if isinstance(box, str):
                    sides.setdefault((box, below), {})[(neighbour, chain.down)] = None
    shifts: dict[tuple[_Item, _Item, bool], float] = {}
    for (box, _), ends in sides.items():
        ordered = sorted(ends, key=lambda end: (across[end[0]], end[1]))
        step = min(_PORT_GAP, (sizes[box].width - 16) / max(len(ordered) - 1, 1))
        for place, (neighbour, down) in enumerate(ordered):
            shifts[box, neighbour, down] = (place - (len(ordered) - 1) / 2) * step
    return lambda box, neighbour, down: across[box] + shifts[box, neighbour, down]


def _route(
    chain: _Chain,
    across: Mapping[_Item, float],
    bands: Mapping[_Item, tuple[float, float]],
    centres: Mapping[str, Point],
    sizes: Mapping[str, Size],
    port: _Port,
) -> tuple[Point, ...]:
    """Points in pairs: out of the start, into and out of the band of every bend, into the end."""
    start, *bends, end = chain.items
    sign = 1 if chain.down else -1
    points = [Point(port(start, chain.items[1], chain.down), _side(start, centres, sizes, sign))]
    for bend in bends:
        points += [Point(across[bend], y) for y in bands[bend][::sign]]
    points.append(Point(port(end, chain.items[-2], chain.down), _side(end, centres, sizes, -sign)))
    return tuple(points)


def _side(item: _Item, centres: Mapping[str, Point], sizes: Mapping[str, Size], sign: int) -> float:
    assert isinstance(item, str)  # noqa: S101 - a chain begins and ends at boxes
    return centres[item].y + sign * sizes[item].height / 2
