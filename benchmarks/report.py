"""What a run found: as text, as a page with tables (docs/benchmarks.md), as plots, as the README's figures.

``python -m benchmarks.report`` writes page, plots and figures again from docs/benchmarks.json.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "docs" / "benchmarks.json"
TITLES = {"memory": "Memory", "sqlite": "SQLite", "redis": "Redis", "postgres": "PostgreSQL"}
BEGIN, END = "<!-- figures: filled by python -m benchmarks.report -->", "<!-- figures end -->"
PUBLISHED = ("aiogram-sqlite-storage", "aiogram-fsm-sqlitestorage")
COLOURS = {"hitherto": "#2f6f4f", "limit": "#bbbbbb"}
Found = dict[str, Any]


def ours(found: Found, place: str) -> str:
    """The name of our way on a place; storages are compared with a store."""
    return f"hitherto, {TITLES[place]} store"


def ratio(found: Found, place: str, other: str, conversations: str = "100") -> float:
    """How many times the rate of another way ours is."""
    steps = found["steps"]
    return steps[ours(found, place)][conversations]["median"] / steps[other][conversations]["median"]


def bars(found: Found) -> Iterator[tuple[str, float, float, bool]]:
    """What is measured against a bar: what, how much, the bar, whether more is better."""
    if "steps" in found:
        steps = found["steps"]
        for name in PUBLISHED:
            yield f"SQLite (FULL) at 100: times {name}", ratio(found, "sqlite", name), 30, True
        yield (
            "SQLite (FULL) at 100: of a bare group-committed loop",
            ratio(found, "sqlite", "limit, SQLite"),
            0.6,
            True,
        )
        yield "Redis at 100: times aiogram's pair", ratio(found, "redis", "aiogram, Redis"), 15, True
        yield "Redis alone: times aiogram's pair", ratio(found, "redis", "aiogram, Redis", "1"), 3, True
        for name in ("Chat SDK for Python, PostgreSQL", "Chat SDK (Node), PostgreSQL"):
            if name in steps:
                yield f"PostgreSQL at 100: times {name}", ratio(found, "postgres", name), 10, True
    for name, grown in found.get("growths", {}).items():
        few, many = grown["conversations"]
        what = f"{name}: time of a turn with {many:,} conversations, times that with {few:,}"
        yield what, grown["time_per_turn_times"], 1.3, False
    for name, crowd in found.get("crowds", {}).items():
        if name.startswith("hitherto"):
            yield f"{name}: 20 at once of one person, 5 ms each: ms", crowd["milliseconds"], 130, False
    if "persistence" in found:
        kept = found["persistence"]
        what = f"python-telegram-bot, {kept['users']:,} users: a changed one costs less than a pickle, times"
        yield what, kept["times"], 200, True


def text(found: Found) -> str:
    """For the terminal."""
    lines = []
    for name, way in found.get("steps", {}).items():
        alone = f"{way['1']['median']:8.0f} alone" if "1" in way else ""
        many = way["100"]
        spread = f"({many['low']:.0f} to {many['high']:.0f})"
        lines.append(f"{name:34} {many['median']:8.0f} /s at 100 {spread:18} {alone}")
    for name, asked in found.get("counts", {}).items():
        lines.append(f"{name:34} {asked:8.2f} round trips a step")
    for what, value, wanted, more in bars(found):
        met = value >= wanted if more else value <= wanted
        sign = "at least" if more else "at most"
        lines.append(f"{what:78} {value:9.2f}  ({sign} {wanted:g}: {'met' if met else 'MISSED'})")
    return "\n".join(lines)


# ------------------------------------------------------------------------------------------------ the page


def write(found: Found, docs: Path) -> None:
    """The page, its plots and the README's figures."""
    (docs / "benchmarks.md").write_text(page(found))
    plots(found, docs)
    readme = ROOT / "README.md"
    readme.write_text(filled(readme.read_text(), found))


def page(found: Found) -> str:
    """docs/benchmarks.md."""
    parts = [INTRODUCTION.format(**_where(found)), "## The bars\n", _bars_table(found)]
    parts += [
        "## The ordinary step\n",
        STEP_WORDS,
        _steps_table(found),
        "![The ordinary step](benchmarks-steps.svg)\n",
    ]
    parts += ["## One person, twenty messages at once\n", CROWD_WORDS, _crowds_table(found)]
    parts += ["## What grows, and what does not\n", _growth_table(found), _scales_table(found)]
    parts += ["## python-telegram-bot's persistence\n", _persistence_table(found)]
    parts += ["![Conversations at once](benchmarks-scale.svg)\n", _rest(found)]
    return "\n".join(parts).rstrip() + "\n"


INTRODUCTION = """\
# Benchmarks

Made by `make bench` in one run, everything in turn and in several rounds, so that a busy machine slows all
of it; medians are shown, with the lowest and the highest round. Ratios carry over to other machines, rates do
not.

Measured on {processor} ({cores} cores, {fsyncs} synced writes a second), {system}, Python {python},
SQLite {sqlite}, {redis}, {postgresql}; client and server share the cores. {packages}.
"""
STEP_WORDS = """\
An event that changes the state and two fields of the data. For hitherto it is the whole turn through
`Keeper.handle`: deduplicated, fenced, in order, recovered after a crash; and beside it the store alone,
accept and commit. For the others it is what their users do for the same, which promises less: lock, read,
write, unlock. The bars compare the stores.
"""
CROWD_WORDS = """\
Twenty messages of one person arrive at once, each handler takes 5 ms: 100 ms is the least possible in order.
"""


def _where(found: Found) -> dict[str, Any]:
    there = dict(found["machine"])
    packages = ", ".join(f"{name} {version}" for name, version in sorted(there["packages"].items()))
    return {**there, "fsyncs": there["fsyncs_per_second"], "packages": packages}


def _table(head: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    lines = [head, ("---", *["---:"] * (len(head) - 1)), *rows]
    return "\n".join("| " + " | ".join(row) + " |" for row in lines) + "\n"


def _bars_table(found: Found) -> str:
    rows = []
    for what, value, wanted, more in bars(found):
        met = value >= wanted if more else value <= wanted
        rows.append(
            (
                what,
                f"{value:.2f}",
                f"{'at least' if more else 'at most'} {wanted:g}",
                "yes" if met else "**no**",
            )
        )
    return _table(("what", "found", "bar", "met"), rows)


def _steps_table(found: Found) -> str:
    rows, counts = [], found.get("counts", {})
    for place in TITLES:
        for name, way in found["steps"].items():
            if way["place"] == place:
                many, alone = way["100"], way.get("1")
                rows.append(
                    (
                        f"**{name}**" if name.startswith("hitherto") else name,
                        f"{many['median']:,.0f}",
                        f"{many['low']:,.0f} to {many['high']:,.0f}",
                        "" if alone is None else f"{alone['median']:,.0f}",
                        "" if name not in counts else f"{counts[name]:.1f}",
                        way["note"],
                    )
                )
    return _table(("way", "steps/s, 100 at once", "rounds", "steps/s alone", "round trips a step", ""), rows)


def _crowds_table(found: Found) -> str:
    rows = [
        (
            name,
            f"{c['milliseconds']:.0f} ms",
            "yes" if c["in_order"] else "**no**",
            f"{c['kept']} of {c['of']}",
        )
        for name, c in found["crowds"].items()
    ]
    return _table(("way", "all twenty", "in order", "kept"), rows)


def _growth_table(found: Found) -> str:
    rows = []
    for name, grown in found["growths"].items():
        opened = grown["milliseconds_to_open"]
        rows.append(
            (
                name,
                f"{grown['conversations'][1]:,}",
                f"{grown['time_per_turn_times']:.2f}",
                f"{grown['time_per_turn_times_alone']:.2f}",
                f"{opened[0]:.1f} ms, {opened[1]:.1f} ms",
            )
        )
    head = ("store", "conversations", "time of a turn, times that with 1,000", "alone", "to open: few, many")
    return _table(head, rows)


def _scales_table(found: Found) -> str:
    parts = []
    for key, what in (
        ("at_once", "conversations at once"), ("bytes", "bytes in a record"), ("processes", "processes"),
    ):  # fmt: skip
        scales = {name: scale[key] for name, scale in found["scales"].items()}
        numbers = list(next(iter(scales.values())))
        rows = [(name, *[f"{scale[number]:,.0f}" for number in numbers]) for name, scale in scales.items()]
        parts.append(_table((f"turns/s by {what}", *[f"{int(number):,}" for number in numbers]), rows))
    return "\n".join(parts)


def _persistence_table(found: Found) -> str:
    kept = found["persistence"]
    names = {"pickle": "PicklePersistence", "hitherto": "**HithertoPersistence**, SQLite"}
    rows = []
    for kind, name in names.items():
        start, pause = kept["starts"][kind], kept["milliseconds_the_loop_stood_still"][kind]
        loaded = f"{start['seconds']:.2f} s, {start['megabytes']:.0f} MB"
        rows.append((name, f"{kept['milliseconds'][kind]:.2f} ms", f"{pause:.2f} ms", loaded))
    head = (f"{kept['users']:,} users", "a changed user", "the loop stands still for", "a start")
    return _table(head, rows)


def _rest(found: Found) -> str:
    imported, size = (
        found["idle"][what] for what in ("import_milliseconds", "bytes_of_an_idle_conversation")
    )
    return (
        f"`import hitherto` takes {imported:.0f} ms in a fresh process; an idle conversation in "
        f"`MemoryStore`, with its record and a seen id, {size:,.0f} bytes.\n"
    )


# --------------------------------------------------------------------------------------------------- plots


def plots(found: Found, docs: Path) -> None:
    """The two pictures."""
    import matplotlib as mpl

    mpl.use("svg")
    mpl.rcParams.update({"svg.hashsalt": "hitherto", "svg.fonttype": "none", "font.size": 9})
    from matplotlib import pyplot

    names = [name for place in TITLES for name, way in found["steps"].items() if way["place"] == place][::-1]
    rates = [found["steps"][name]["100"] for name in names]
    figure, axes = pyplot.subplots(figsize=(8, 0.32 * len(names) + 1), layout="constrained")
    colours = [
        "#2f6f4f" if n.startswith("hitherto") else "#bbbbbb" if n.startswith("limit") else "#8a6fb0"
        for n in names
    ]
    around = [[r["median"] - r["low"] for r in rates], [r["high"] - r["median"] for r in rates]]
    axes.barh(names, [r["median"] for r in rates], xerr=around, color=colours, ecolor="#777777")
    axes.set(xscale="log", xlabel="steps a second, 100 conversations at once (log scale)")
    _saved(figure, docs / "benchmarks-steps.svg")
    figure, axes = pyplot.subplots(figsize=(8, 3.5), layout="constrained")
    for name, scale in found["scales"].items():
        axes.plot(
            [int(number) for number in scale["at_once"]], list(scale["at_once"].values()), "o-", label=name
        )
    axes.set(xscale="log", yscale="log", xlabel="conversations at once", ylabel="turns a second")
    axes.legend(frameon=False)
    _saved(figure, docs / "benchmarks-scale.svg")


def _saved(figure: Any, path: Path) -> None:
    for axes in figure.axes:
        axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, metadata={"Date": None, "Creator": None})


# ---------------------------------------------------------------------------------------------- the README


def figures(found: Found) -> str:
    """The README's figures."""
    sqlite = min(
        ratio(found, "sqlite", name) for name in ("aiogram-sqlite-storage", "aiogram-fsm-sqlitestorage")
    )
    bare = ratio(found, "sqlite", "limit, SQLite")
    redis, alone = ratio(found, "redis", "aiogram, Redis"), ratio(found, "redis", "aiogram, Redis", "1")
    postgres = ratio(found, "postgres", "Chat SDK for Python, PostgreSQL")
    mine = found["crowds"]["hitherto, Redis"]["milliseconds"]
    theirs = found["crowds"]["aiogram, Redis"]
    grown = max(growth["time_per_turn_times"] for growth in found["growths"].values())
    return "\n".join(
        [
            f"- SQLite, every commit synced: {sqlite:.0f} times the SQLite storages published for aiogram, "
            f"{bare:.2f} of a bare loop.",
            f"- Redis: two round trips a turn; {redis:.1f} times aiogram's storage with its lock at 100 "
            f"conversations, {alone:.1f} times alone.",
            f"- PostgreSQL: {postgres:.0f} times the Chat SDK for Python.",
            f"- Twenty messages of one person at once, 5 ms each, on Redis: {mine:.0f} ms, in order; aiogram "
            f"takes {theirs['milliseconds']:.0f} ms, {'in' if theirs['in_order'] else 'out of'} order.",
            f"- A million conversations: a turn takes at most {grown:.2f} times as long as with a thousand.",
        ]
    )


def filled(readme: str, found: Found) -> str:
    """The README with these figures in it."""
    pattern = re.compile(f"{re.escape(BEGIN)}.*?{re.escape(END)}", re.DOTALL)
    if not pattern.search(readme):
        raise ValueError(f"the README has no place for the figures: {BEGIN} … {END}")
    return pattern.sub(lambda _: f"{BEGIN}\n{figures(found)}\n{END}", readme)


if __name__ == "__main__":
    write(json.loads(RESULTS.read_text()), ROOT / "docs")
