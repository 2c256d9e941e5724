#!/usr/bin/env python3
"""Tests that every page of docs/ is in a path of docs/README.md and says whom it is for, that the README of a folder
lists the pages of the folder, and that the links of all Markdown pages lead to something (docs/site/pages.py)."""
import os
import pathlib
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "docs/site"))

import pages  # noqa: E402


class ThisCheckout(unittest.TestCase):
    def test_every_page_is_in_a_path_and_every_link_leads_somewhere(self):
        checkout = pages.Checkout(ROOT)
        self.assertEqual(checkout.faults(), [])
        # Guards against a search that finds nothing.
        self.assertGreater(len(checkout.markdown()), 90)
        self.assertEqual(len(checkout.paths()), 5)
        self.assertGreater(sum(len(pages.links(page, checkout.text(page))) for page in checkout.markdown()), 300)

    def test_every_page_says_whom_it_is_for(self):
        self.assertEqual(pages.Checkout(ROOT).without_audience(), [])

    def test_every_decision_runbook_and_seed_is_listed(self):
        checkout = pages.Checkout(ROOT)
        self.assertEqual(checkout.unlisted(), [])
        for folder in ("decisions", "runbooks", "seeds"):  # a folder without a README would not be checked
            self.assertIn(f"docs/{folder}/README.md", checkout.markdown())


class MadeUpTree(unittest.TestCase):
    """A tree without faults, to which each test adds one."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)
        self.write("README.md", "# Readme\n")
        self.write("docs/README.md", "The [README](../README.md).\n\n## Use it\n\n1. [a.md](a.md), [b.md](b.md)\n"
                                     "2. [records](records/)\n\n## Run it\n\n1. [books](books/README.md)\n")
        self.write("docs/a.md", "# A\n\nSee [b](b.md#the-end-of-it), [c](../src/c.h), [there](https://a.example/x).\n")
        self.write("docs/b.md", "# B\n\n## The `end` of it\n")
        self.write("docs/records/0001.md", "# One\n")
        self.write("docs/books/README.md", "# Books\n\n- [One](One.md)\n")
        self.write("docs/books/One.md", "# One\n")
        self.write("src/c.h", "int c;\n")
        self.write("build/x.md", "[nothing](nothing.md)\n")

    def write(self, path, text):
        os.makedirs((self.root / path).parent, exist_ok=True)
        (self.root / path).write_text(text, encoding="utf-8")

    def faults(self):
        return pages.Checkout(self.root).faults()

    def assert_fault(self, text, fault):
        """Checks that a page with this text has exactly one fault."""
        self.write("docs/a.md", "# A\n\n" + text)
        self.assertEqual(self.faults(), [f"docs/a.md:3: {fault}"] if fault else [], text)

    def test_a_tree_without_faults(self):
        self.assertEqual(self.faults(), [])

    def test_a_page_in_no_path_is_named(self):
        self.write("docs/lost.md", "# Lost\n")
        self.assertEqual(self.faults(), ["docs/lost.md: this page is in no path of docs/README.md"])
        self.write("docs/other/README.md", "# Other\n\n[lost](../lost.md)\n")
        self.assertEqual(len(self.faults()), 2)

    def test_a_page_that_does_not_say_whom_it_is_for_is_named(self):
        self.write("docs/README.md", "# Documentation\n\nFor everybody.\n")
        self.write("docs/a.md", "# A\n\nFor users. Some text.\n")
        self.write("docs/b.md", "# B\n\nSome text.\n\nFor users.\n")
        self.write("docs/books/One.md", "# One\n")
        named = [line.split(":")[0] for line in pages.Checkout(self.root).without_audience()]
        self.assertEqual(named, ["docs/b.md", "docs/books/One.md", "docs/books/README.md", "docs/records/0001.md"])

    def test_a_page_that_the_readme_of_its_folder_does_not_list_is_named(self):
        index = "docs/books/README.md"
        for entry, is_listed in (("- [One](One.md): A sentence.", True), ("- [One](One.md):\n  A sentence.", True),
                                 ("- [One](One.md)", False), ("- [One](One.md):\n- [Two](x.md): Text.", False),
                                 ("- [Other](One.md): A sentence.", False), ("[One](One.md): A sentence.", False)):
            self.write(index, f"# Books\n\n{entry}\n")
            self.assertEqual(pages.Checkout(self.root).unlisted(),
                             [] if is_listed else [f'{index}: no entry "- [One](One.md): A sentence."'], entry)

    def test_an_entry_of_a_folder_brings_its_pages(self):
        reached = pages.Checkout(self.root).reached()
        self.assertLessEqual({"docs/records/0001.md", "docs/books/README.md", "docs/books/One.md"}, reached)

    def test_paths_have_their_order(self):
        self.assertEqual([(path.title, path.entries) for path in pages.Checkout(self.root).paths()],
                         [("", ["README.md"]), ("Use it", ["docs/a.md", "docs/b.md", "docs/records"]),
                          ("Run it", ["docs/books/README.md"])])

    def test_broken_links_are_named(self):
        self.assert_fault("[x](c.md)", "(c.md): there is no docs/c.md")
        self.assert_fault("![x](x.svg)", "(x.svg): there is no docs/x.svg")
        self.assert_fault("[x](b.md#end)", "(b.md#end): docs/b.md has no heading #end")
        self.assert_fault("[x](#b)", "(#b): docs/a.md has no heading #b")
        self.assert_fault("[x](../src/c.h#L1)", "(../src/c.h#L1): only pages have anchors")
        self.assert_fault("[x](../../x)", "(../../x): leads out of the repository")
        self.assert_fault("[x](/docs/b.md)", "(/docs/b.md): leads out of the repository")
        self.assert_fault("[x](../build/x.md)", "(../build/x.md): there is no build/x.md")
        self.assert_fault("[x](books)", "(books): leads to a folder that has a page: link to docs/books/README.md")
        self.assert_fault("[x]: c.md", "(c.md): there is no docs/c.md")
        self.assert_fault('<img src="x.png">', "(x.png): there is no docs/x.png")

    def test_links_that_lead_somewhere(self):
        for text in ("[x](b.md)", "[x](records)", "[x](#a)", '[x](b.md "title")', "[`x`](../src/c.h)",
                     "[x](mailto:a@b)"):
            self.assert_fault(text, "")

    def test_code_has_no_links(self):
        for text in ("`[](x.md)`", "```cpp\n[](x.md)\n```", "    f([](auto)\n\n    g([](auto)",
                     "- item\n\n  ```\n  [](x)\n  ```",
                     "<!-- [x](y)\n[z](w) -->"):
            self.assert_fault(text, "")
        self.assert_fault("`a` [x](y.md) `b`", "(y.md): there is no docs/y.md")

    def test_links_next_to_code_are_found(self):
        self.write("docs/a.md", "- item\n\n    [more](x.md)\n\nA ` by itself.\n\n[x](y.md) `code`\n")
        self.assertEqual(self.faults(), ["docs/a.md:3: (x.md): there is no docs/x.md",
                                         "docs/a.md:7: (y.md): there is no docs/y.md"])

    def test_anchors_are_those_of_github(self):
        text = ("# One, `two` & three\n## What it's for: a_b-c\n## [Link](x.md) *here*\n```\n# comment\n```\n"
                '<a id="by-hand"></a>\n')
        self.assertEqual(pages.anchors(text), {"one-two--three", "what-its-for-a_b-c", "link-here", "by-hand"})


if __name__ == "__main__":
    unittest.main()
