"""Turns the Markdown that GitHub shows into the Markdown that MkDocs shows.

Both show these pages alike, except for lists and for `\\|` in the code of a table. MkDocs wants an empty line above a
list and after an item of several paragraphs, and four spaces before what belongs to an item.
"""
import re

import pages

_ITEM = re.compile(r"(?:[-*+]|\d+[.)]) +")
_CELL = re.compile(r"<t[dh]\b.*?</t[dh]>", re.S)


def for_mkdocs(text):
    """Returns the page as MkDocs wants it."""
    out, plain = [], pages.without_code(text).split("\n")
    width = 0  # columns of the marker of the list item around the line; 0 outside of lists
    parts = False  # whether the item has several paragraphs
    for line, bare in zip(text.split("\n"), plain):
        item = _ITEM.match(line) if bare[:1].strip() else None
        if item:
            if (parts or not width) and out and out[-1].strip():
                out.append("")
            width, parts = len(item[0]), False
        elif width and line[:width].strip():
            # A line that is not indented continues the paragraph of the item, or ends the list.
            width = width if out[-1].strip() else 0
        elif width and line.strip():
            parts = parts or not out[-1].strip()
            line = "    " + line[width:]
        out.append(line)
    return "\n".join(out)


def with_bars(html):
    """Returns the HTML of a page with `|` where the code of a table has `\\|`."""
    return _CELL.sub(lambda cell: cell[0].replace("\\|", "|"), html)
