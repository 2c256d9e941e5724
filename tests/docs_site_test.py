#!/usr/bin/env python3
"""Tests two parts of scripts/docs that need no MkDocs: the changes of Markdown (docs/site/dialect.py), and the check of
the site that was made (docs/site/check_site.py)."""
import os
import pathlib
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "docs/site"))

import check_site  # noqa: E402
import dialect  # noqa: E402


class Dialect(unittest.TestCase):
    """The Markdown that MkDocs wants."""

    def assert_same(self, text):
        self.assertEqual(dialect.for_mkdocs(text), text)

    def test_a_list_below_a_paragraph_gets_an_empty_line(self):
        self.assertEqual(dialect.for_mkdocs("Text:\n- one\n- two\n\nText.\n"), "Text:\n\n- one\n- two\n\nText.\n")

    def test_the_parts_of_an_item_are_indented_by_four(self):
        self.assertEqual(dialect.for_mkdocs("1. `a`: one\n   more\n\n   ```sh\n   x\n   ```\n2. two\n"),
                         "1. `a`: one\n    more\n\n    ```sh\n    x\n    ```\n\n2. two\n")
        self.assertEqual(dialect.for_mkdocs("- one\n\n      code\n- two\n"), "- one\n\n        code\n\n- two\n")

    def test_a_list_ends(self):
        self.assertEqual(dialect.for_mkdocs("- one\nmore\n\nText.\n\n    code\n"), "- one\nmore\n\nText.\n\n    code\n")

    def test_code_and_headings_stay(self):
        self.assert_same("# A\n\nText\n\n```\ntext\n- no list\n```\n\n    text\n    - no list\n")

    def test_bars_in_the_code_of_tables(self):
        self.assertEqual(dialect.with_bars("<td><code>a \\|\\| b</code></td><p>\\|</p>"),
                         "<td><code>a || b</code></td><p>\\|</p>")


class CheckSite(unittest.TestCase):
    """The check of a site that was made. Each test adds one page to a site without faults."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.site = pathlib.Path(folder.name)
        self.write("index.html", '<a href="docs/a.html#x">x</a> <a href="https://a.example">y</a> <a href="cpp/">z</a>'
                                 '<link rel="stylesheet" href="a.css"><link rel="canonical" href="https://a.example">')
        self.write("docs/a.html", '<h1 id="x">X</h1><a href="../index.html">y</a><a href="#x">z</a>')
        self.write("cpp/index.html", '<a href="../docs/a.html">x</a>')
        self.write("a.css", "a { background: url(a.svg) }")

    def write(self, path, text):
        os.makedirs((self.site / path).parent, exist_ok=True)
        (self.site / path).write_text(text, encoding="utf-8")

    def faults(self, text, path="docs/b.html"):
        self.write(path, text)
        return check_site.faults(self.site)[1]

    def test_a_site_without_faults(self):
        self.assertEqual(check_site.faults(self.site)[1], [])

    def test_what_comes_from_another_host_is_named(self):
        for text in ('<script src="https://a.example/x.js"></script>', '<img src="//a.example/x.png">',
                     '<img srcset="x.png, https://a.example/x.png 2x">', '<div class="a mermaid">',
                     '<link rel="preconnect" href="https://a.example">', '<iframe src="http://a.example">',
                     "<style>a { b: url('https://a.example/x') }</style>",
                     '<p style="background: url(//a.example/x)">'):
            self.assertEqual(len(self.faults(text)), 1, text)
        self.write("docs/b.html", "")
        self.assertEqual(len(self.faults('@import "https://a.example/x.css";', "b.css")), 1)

    def test_broken_links_are_named(self):
        self.assertEqual(self.faults('<a href="c.html">x</a>'), ["docs/b.html: (c.html): there is no such file"])
        self.assertEqual(self.faults('<a href="a.html#y">x</a>'), ["docs/b.html: (a.html#y): there is no such anchor"])
        self.assertEqual(self.faults('<a href="../cpp/x.html">x</a>'),
                         ["docs/b.html: (../cpp/x.html): there is no such file"])


if __name__ == "__main__":
    unittest.main()
