"""The declared graph of a flow as text: Mermaid, Graphviz, a Markdown table, and lines for a terminal.

Pure functions of a ``FlowSpec``.  States and edges come in the order of declaration, so that the drawing of
an unchanged flow never changes, and names and labels are escaped, so that none of them can alter the drawing.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hitherto.flows import FlowSpec, State

_MERMAID_WORDS = frozenset(
    {
        *(
            "accdescr",
            "acctitle",
            "as",
            "choice",
            "class",
            "classdef",
            "click",
            "default",
            "direction",
            "end",
        ),
        *(
            "fork",
            "hide",
            "href",
            "join",
            "left",
            "note",
            "right",
            "root",
            "scale",
            "state",
            "style",
            "title",
        ),
        *("constructor", "prototype", "hasownproperty", "isprototypeof", "tostring", "valueof"),
    }
)
_UNDECLARED = "no to= is declared: any state may follow any other"


def plain(text: str) -> str:
    """The text with a space for every control character, line separator and lone surrogate."""
    if text.isprintable():
        return text
    from unicodedata import category

    return "".join(" " if category(one) in {"Cc", "Cs", "Zl", "Zp"} else one for one in text)


def mermaid(spec: FlowSpec) -> str:
    """A Mermaid ``stateDiagram-v2``; states whose names Mermaid cannot take as they are get an alias."""
    ids = _mermaid_ids(spec)
    lines = ["stateDiagram-v2"] + ([] if spec.declared else [f"%% {_UNDECLARED}"])
    for state, alias in ids.items():
        caption = _caption(state)
        lines.append(alias if alias == caption else f'state "{_mermaid_text(caption)}" as {alias}')
    if spec.initial is not None:
        lines.append(f"[*] --> {ids[spec.initial]}")
    lines += [f"{ids[start]} --> {ids[end]}" for start, end in _edges(spec)]
    lines += [f"{alias} --> [*]" for state, alias in ids.items() if state.final]
    return "\n    ".join(lines)


def dot(spec: FlowSpec) -> str:
    """A Graphviz digraph; the start is the node of the empty name, which no state can have."""
    lines = [f"digraph {_quoted(spec.name)} {{", "rankdir=LR;", "node [shape=box, style=rounded];"]
    if not spec.declared:
        lines.append(f"// {_UNDECLARED}")
    for state in spec.states.values():
        label = _quoted(_caption(state).replace("&", "&amp;"))
        lines.append(f"{_quoted(state.name)} [label={label}{', peripheries=2' if state.final else ''}];")
    if spec.initial is not None:
        lines += ['"" [shape=point];', f'"" -> {_quoted(spec.initial.name)};']
    lines += [f"{_quoted(start.name)} -> {_quoted(end.name)};" for start, end in _edges(spec)]
    return "\n    ".join(lines) + "\n}"


def table(spec: FlowSpec) -> str:
    """A Markdown table that also reads as it is; ``*`` stands for any state."""
    rows = [["state", "to", "mark", "label"], ["", "", "", ""], *_rows(spec, _cell, "*")]
    lines = [f"| {' | '.join(row)} |" for row in _padded(rows)]
    lines[1] = lines[1].replace(" ", "-")
    return "\n".join(lines)


def lines(spec: FlowSpec, current: State | None = None) -> str:
    """One state a line for a terminal, under the flow's name; ``=>`` stands before the current one."""
    rows = _padded(_rows(spec, plain, "(any)"))
    marked = [
        f"{'=>' if state is current else '  '} {'  '.join(row)}".rstrip()
        for state, row in zip(spec.states.values(), rows, strict=True)
    ]
    return "\n".join([f"{plain(spec.name)} (version {spec.version})", *marked])


DRAWINGS: dict[str, Callable[[FlowSpec], str]] = {"mermaid": mermaid, "dot": dot, "table": table}


def _edges(spec: FlowSpec) -> list[tuple[State, State]]:
    return [(start, end) for start, ends in spec.edges.items() for end in ends]


def _caption(state: State) -> str:
    return plain(state.label).strip() or state.name


def _mermaid_ids(spec: FlowSpec) -> dict[State, str]:
    ids: dict[State, str] = {}
    for place, (name, state) in enumerate(spec.states.items()):
        safe = re.fullmatch(r"[A-Za-z][A-Za-z0-9_]*", name) and name.lower() not in _MERMAID_WORDS
        alias = name if safe else f"s{place}"
        while not safe and alias in spec.states:
            alias += "_"
        ids[state] = alias
    return ids


def _mermaid_text(text: str) -> str:
    return re.sub(r"[^\w .,()!?'/+=@*-]", lambda match: f"#{ord(match[0])};", text)


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _cell(text: str) -> str:
    return re.sub(r"([\\`*\[\]<>|&~$,]|(?<!\w)_|_(?!\w))", r"\\\1", plain(text))


def _rows(spec: FlowSpec, write: Callable[[str], str], anything: str) -> list[list[str]]:
    rows = []
    for state in spec.states.values():
        ends = ", ".join(write(end.name) for end in spec.edges[state]) if spec.declared else anything
        marks = ["initial"] * state.initial + ["final"] * state.final
        rows.append([write(state.name), ends, ", ".join(marks), write(state.label)])
    return rows


def _padded(rows: list[list[str]]) -> list[list[str]]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [[cell.ljust(width) for cell, width in zip(row, widths, strict=True)] for row in rows]
