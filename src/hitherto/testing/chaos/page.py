"""The report of a run as one HTML page that needs nothing else: figures, two plots, the violations."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

from hitherto import __version__
from hitherto.testing.chaos.report import Report, Span

WIDTH, HEIGHT, LEFT, BOTTOM = 960, 220, 48, 24
_COLOURS = (
    "#4e79a7", "#f28e2b", "#e15759", "#76b7b2", "#59a14f", "#edc948", "#b07aa1", "#ff9da7", "#9c755f",
    "#1b2a41", "#86bc25", "#8c1c13", "#5f4bb6", "#b8b8b8",
)  # fmt: skip
_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 62rem; padding: 0 1rem; }
table { border-collapse: collapse; } td { padding: .1rem 1.5rem .1rem 0; }
svg { width: 100%; height: auto; } .good { color: #2a7d2a; } .bad { color: #b00020; }
.key span { display: inline-block; margin-right: 1rem; } .key i { display: inline-block; width: .8em;
height: .8em; margin-right: .3em; } text { font: 11px system-ui, sans-serif; fill: #666; }
"""


def page(report: Report) -> str:
    """The whole page."""
    kept = not report.violations
    verdict = "kept: 0 violations" if kept else f"broken: {len(report.violations)} violations"
    found = "".join(f"<li>{escape(text)}</li>" for text in report.violations)
    names = sorted({span.name for span in report.spans})
    return f"""<!doctype html>
<html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>chaos: {verdict}</title><style>{_STYLE}</style>
<h1 class="{"good" if kept else "bad"}">The promise was {verdict}</h1>
<p>hitherto {__version__} on <code>{escape(report.url)}</code>, seed <code>{report.seed}</code></p>
<ul class="bad">{found}</ul>
<table>{"".join(_row(name, value) for name, value in _figures(report))}</table>
<h2>Commits in each second, and the faults</h2>
{_throughput(report, names)}
<p class="key">{_key(names)}</p>
<h2>From the SIGKILL of its owner to a conversation's next commit</h2>
{_recoveries(report)}
</html>
"""


def _figures(report: Report) -> Iterable[tuple[str, object]]:
    yield "seconds", f"{report.seconds:.1f}"
    yield "events accepted", report.events
    yield (
        "deliveries, of which duplicates and out of order",
        (f"{report.deliveries}, {report.duplicates}, {report.reordered}"),
    )
    yield "commits seen", report.commits
    yield "workers killed, paused", f"{report.kills}, {report.pauses}"
    yield "commits that were fenced", report.fenced
    yield "turns recovered", report.recovered
    yield "slowest recovery", f"{report.slowest_recovery:.2f} s"
    yield "drained after the last fault", f"{report.drained:.2f} s"
    yield "conversations looked at meanwhile", report.looks
    if report.lost:
        yield "accepted events lost in failovers", report.lost
    for name, number in sorted(report.named_faults.items()):
        yield f"fault: {name}", number


def _row(name: str, value: object) -> str:
    return f"<tr><td>{escape(name)}</td><td>{escape(str(value))}</td></tr>"


def _key(names: Sequence[str]) -> str:
    return "".join(
        f'<span><i style="background:{_colour(names, name)}"></i>{escape(name)}</span>' for name in names
    )


def _colour(names: Sequence[str], name: str) -> str:
    return _COLOURS[list(names).index(name) % len(_COLOURS)]


class _Plot:
    """Axes from zero to what is given, and marks on them."""

    def __init__(self, seconds: float, top: float, unit: str) -> None:
        self.seconds = max(seconds, 1.0)
        self.top = max(top, 0.001)
        self.unit = unit
        self.marks: list[str] = []

    def x(self, second: float) -> float:
        return LEFT + (WIDTH - LEFT) * min(second / self.seconds, 1.0)

    def y(self, value: float) -> float:
        return (HEIGHT - BOTTOM) * (1 - value / self.top)

    def band(self, span: Span, colour: str) -> None:
        left, width = self.x(span.begin), max(self.x(span.end) - self.x(span.begin), 1.5)
        self.marks.append(
            f'<rect x="{left:.1f}" y="0" width="{width:.1f}" height="{HEIGHT - BOTTOM}" fill="{colour}" '
            f'opacity=".35"><title>{escape(span.name)} at {span.begin:.1f} s</title></rect>'
        )

    def line(self, values: Sequence[float]) -> None:
        points = " ".join(f"{self.x(at + 0.5):.1f},{self.y(value):.1f}" for at, value in enumerate(values))
        self.marks.append(f'<polyline points="{points}" fill="none" stroke="#333" stroke-width="1.2"/>')

    def dot(self, at: float, value: float) -> None:
        self.marks.append(f'<circle cx="{self.x(at):.1f}" cy="{self.y(value):.1f}" r="1.6" fill="#4e79a7"/>')

    def svg(self) -> str:
        axes = f'<path d="M{LEFT} 0V{HEIGHT - BOTTOM}H{WIDTH}" fill="none" stroke="#999"/>'
        texts = [
            f'<text x="0" y="{max(self.y(value), 10):.1f}">{value:.3g}{self.unit}</text>'
            for value in (self.top, self.top / 2, 0)
        ]
        texts += [
            f'<text x="{self.x(self.seconds * part):.0f}" y="{HEIGHT - 6}" '
            f'text-anchor="{"end" if part == 1 else "middle"}">{self.seconds * part:.0f} s</text>'
            for part in (0.25, 0.5, 0.75, 1)
        ]
        inside = "".join([axes, *texts, *self.marks])
        return f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img">{inside}</svg>'


def _throughput(report: Report, names: Sequence[str]) -> str:
    plot = _Plot(report.seconds, max(report.throughput, default=1), "/s")
    for span in report.spans:
        plot.band(span, _colour(names, span.name))
    plot.line(report.throughput)
    return plot.svg()


def _recoveries(report: Report) -> str:
    plot = _Plot(report.seconds, max((took for _, took in report.recoveries), default=1.0), " s")
    for at, took in report.recoveries:
        plot.dot(at, took)
    return plot.svg()
