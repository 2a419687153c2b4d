# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""The report as a single HTML file with text, tables and pictures."""

from __future__ import annotations

import base64
import io
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

import pandas as pd
from matplotlib.figure import Figure

from monai_afire.analysis.study import StudyResult

__all__ = ["report_page"]

_STYLE = """
:root { color-scheme: light dark;
  --line: #d0d7de; --soft: #f6f8fa; --ink: #1f2328; --paper: #ffffff; --accent: #0b5cad; }
@media (prefers-color-scheme: dark) {
  :root { --line: #3d444d; --soft: #161b22; --ink: #e6edf3; --paper: #0d1117; --accent: #79b8ff; }
}
body { font: 16px/1.55 system-ui, sans-serif; color: var(--ink); background: var(--paper);
       max-width: 62rem; margin: 0 auto; padding: 2rem 1.2rem 4rem; }
h1 { font-size: 1.8rem; margin-bottom: .3rem; }
h2 { font-size: 1.3rem; margin-top: 3rem; padding-top: 1rem; border-top: 1px solid var(--line); }
a { color: var(--accent); text-decoration: none; }
p, li { max-width: 46rem; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-size: .9rem; margin: 1rem 0; font-variant-numeric: tabular-nums; }
th, td { padding: .35rem .8rem; border-bottom: 1px solid var(--line); text-align: right; }
th:first-child { text-align: left; }
tbody th { white-space: nowrap; }
thead th { background: var(--soft); vertical-align: bottom; }
figure { margin: 1.5rem 0; }
figure img { max-width: 100%; height: auto; background: #ffffff; border: 1px solid var(--line); border-radius: 4px; }
figcaption, summary { font-size: .9rem; margin-top: .4rem; }
.facts td { text-align: left; }
.remark { background: var(--soft); border-left: 3px solid var(--accent); padding: .5rem 1rem; }
"""


def report_page(
    title: str, facts: Mapping[str, Any], results: Sequence[StudyResult], remarks: Sequence[str] = ()
) -> str:
    """
    The page of a report.

    Args:
        title: of the page.
        facts: how the numbers came about, shown at the end.
        results: a section each.
        remarks: sentences on what is missing, shown on top.

    Returns:
        HTML in which nothing refers to another file.

    Example:
        >>> table = pd.DataFrame({"error [%]": [5.0, 11.52]}, index=["AFiRe", "untrained"])
        >>> page = report_page("Studies", {"seed": 0}, [StudyResult("Landmarks", "How far off?", table)])
        >>> "<td>11.5</td>" in page, page.count("<h2")
        (True, 2)
    """
    contents = "".join(
        f'<li><a href="#study-{number}">{escape(result.title)}</a></li>' for number, result in enumerate(results)
    )
    body = [f"<h1>{escape(title)}</h1>", *(f'<p class="remark">{escape(remark)}</p>' for remark in remarks)]
    body += [f"<ol>{contents}</ol>", *(_section(number, result) for number, result in enumerate(results))]
    rows = "".join(
        f"<tr><th>{escape(str(name))}</th><td>{escape(str(value))}</td></tr>" for name, value in facts.items()
    )
    body.append(f'<h2 id="facts">How this report came about</h2><table class="facts">{rows}</table>')
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title><style>{_STYLE}</style></head>\n<body>" + "\n".join(body) + "</body></html>\n"
    )


def _section(number: int, result: StudyResult) -> str:
    parts = [f'<h2 id="study-{number}">{escape(result.title)}</h2>']
    parts += [f"<p>{escape(paragraph)}</p>" for paragraph in result.question.split("\n\n")]
    parts.append(_table(result.table))
    parts += [_picture(caption, figure) for caption, figure in result.figures.items()]
    parts += [
        f"<details><summary>{escape(caption)}</summary>{_table(table)}</details>"
        for caption, table in result.details.items()
    ]
    return "\n".join(parts)


def _table(table: pd.DataFrame) -> str:
    named = not isinstance(table.index, pd.RangeIndex)
    head = "".join(
        f"<th>{escape(str(name)).replace('_', '_<wbr>')}</th>" for name in ([""] if named else []) + list(table.columns)
    )
    rows = []
    for name, row in zip(table.index, table.itertuples(index=False), strict=True):
        cells = [f"<td>{escape(_number(value))}</td>" for value in row]
        rows.append(f"<tr>{f'<th>{escape(str(name))}</th>' if named else ''}{''.join(cells)}</tr>")
    return f'<div class="wide"><table><thead><tr>{head}</tr></thead><tbody>{"".join(rows)}</tbody></table></div>'


def _number(value: Any) -> str:
    """Three digits that count, whole numbers as they are."""
    if not isinstance(value, float):
        return str(value)
    if value != value:
        return "not defined"
    return f"{value:.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def _picture(caption: str, figure: Figure) -> str:
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png")
    data = base64.b64encode(buffer.getvalue()).decode("ascii")
    text = escape(caption, quote=True)
    return f'<figure><img alt="{text}" src="data:image/png;base64,{data}"><figcaption>{text}</figcaption></figure>'
