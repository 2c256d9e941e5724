"""Reads the Markdown pages of a checkout: which pages there are, in which order docs/README.md has them, and where
their links lead. Uses the standard library only.

The four paths of docs/README.md are the navigation of the site: the links below each heading, in their order. The links
above the first heading come first. The entry of a folder (`records/`, `runbooks/README.md`) brings all pages of the
folder.
"""
import dataclasses
import os
import pathlib
import posixpath
import re
import urllib.parse

INDEX = "docs/README.md"
BUILT = "build"  # the folder at the root that no commit has

_FENCE = re.compile(r"^\s*(```+|~~~+)")
_INDENTED = re.compile(r"^( {4}|\t)")
_LIST_ITEM = re.compile(r"^\s*([-*+]|\d+[.)])\s")
_CODE_SPAN = re.compile(r"(`+)(?!`)((?!\n\n).)+?(?<!`)\1(?!`)", re.S)  # ends within its paragraph
_HEADING = re.compile(r"^#{1,6}\s+(.*?)\s*#*$")
_LINK = re.compile(r'\]\(\s*<?([^)\s>]+)>?(?:\s+"[^"]*")?\s*\)|^\[[^\]]+\]:\s+(\S+)|\b(?:href|src)="([^"]*)"', re.M)


@dataclasses.dataclass
class Path:
    """A section of the navigation: its title and its entries, which are paths from the root of the checkout."""
    title: str
    entries: list


@dataclasses.dataclass
class Link:
    """A link of a page that does not lead to another host."""
    page: str
    line: int
    text: str  # the link as it is written
    path: str  # path of the target from the root of the checkout; "" if the link leads out of the checkout
    anchor: str


def _spaces(match):
    return re.sub(r"[^\n]", " ", match[0])


def without_code(text):
    """Returns the text with spaces in place of code and comments. Lines and columns stay."""
    lines, fence, before, in_list = [], None, "", False
    for line in re.sub(r"<!--.*?-->", _spaces, text, flags=re.S).split("\n"):
        found = _FENCE.match(line)
        if fence:
            if found and found[1].startswith(fence):
                fence = None
            line = ""
        elif found:
            fence, line = found[1], ""
        elif _INDENTED.match(line) and not before.strip() and not in_list:
            line = ""  # `before` stays empty: the next indented line is code, too
        elif line.strip():
            in_list = bool(_LIST_ITEM.match(line)) or in_list and line[0] in " \t"
        lines.append(line)
        before = line
    return _CODE_SPAN.sub(_spaces, "\n".join(lines))


def slug(heading):
    """Returns the anchor that GitHub gives to a heading."""
    heading = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", heading)
    return re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-")


def anchors(text):
    """Returns the anchors of a page. A heading that is repeated has only its first anchor here, so that no link leads
    to the second one: the number behind it would be another with each renderer."""
    found = set(re.findall(r'\b(?:id|name)="([^"]+)"', without_code(text)))
    plain = without_code(text).split("\n")
    for line, bare in zip(text.split("\n"), plain):
        if (heading := _HEADING.match(line)) and bare.startswith("#"):
            found.add(slug(heading[1]))
    return found


def links(page, text):
    """Returns the links of a page that do not lead to another host. `page` is its path from the root."""
    found, plain = [], without_code(text)
    for match in _LINK.finditer(plain):
        target = next(group for group in match.groups() if group)
        parts = urllib.parse.urlsplit(target)
        if parts.scheme or parts.netloc:
            continue
        path = urllib.parse.unquote(parts.path)
        joined = posixpath.normpath(posixpath.join(posixpath.dirname(page), path)) if path else page
        outside = path.startswith("/") or joined == ".." or joined.startswith("../")
        found.append(Link(page, plain.count("\n", 0, match.start()) + 1, target, "" if outside else joined,
                          urllib.parse.unquote(parts.fragment)))
    return found


class Checkout:
    """The pages of one checkout."""

    def __init__(self, root):
        self.root = pathlib.Path(root)
        self._texts = {}
        self._markdown = self._find_markdown()

    def text(self, path):
        if path not in self._texts:
            self._texts[path] = (self.root / path).read_text(encoding="utf-8")
        return self._texts[path]

    def markdown(self):
        """Returns the paths of all Markdown files."""
        return self._markdown

    def _find_markdown(self):
        found = []
        for folder, folders, files in os.walk(self.root):
            top = pathlib.Path(folder) == self.root
            folders[:] = sorted(name for name in folders if name[0] != "." and not (top and name == BUILT))
            found += [(pathlib.Path(folder) / name).relative_to(self.root).as_posix() for name in sorted(files)
                      if name.endswith(".md")]
        return found

    def folder_readmes(self):
        """Returns the READMEs of the top folders that are no part of docs/."""
        return [path for path in self.markdown() if re.fullmatch(r"(?!docs/)[^/]+/README\.md", path)]

    def entry_pages(self, entry):
        """Returns the pages that an entry of a path brings: all pages of a folder, or one page."""
        folder = posixpath.dirname(entry) if entry.endswith("/README.md") else entry
        if folder.startswith("docs/") and (self.root / folder).is_dir():
            inside = [page for page in self.markdown() if posixpath.dirname(page) == folder]
            return sorted(inside, key=lambda page: (not page.endswith("/README.md"), page))
        return [entry]

    def paths(self):
        """Returns the opening part and the paths of docs/README.md. The opening has the links above the first heading;
        the title of a path is its heading."""
        found = [Path("", [])]
        lines = without_code(self.text(INDEX)).split("\n")
        by_line = {}
        for link in links(INDEX, self.text(INDEX)):
            by_line.setdefault(link.line, []).append(link)
        for number, line in enumerate(lines, 1):
            if line.startswith("## "):
                found.append(Path(line[3:].strip(), []))
            known = {entry for path in found for entry in path.entries}
            for link in by_line.get(number, []):
                if link.path and link.path not in known:
                    found[-1].entries.append(link.path)
                    known.add(link.path)
        return found

    def reached(self):
        """Returns all pages that the paths bring."""
        return {page for path in self.paths() for entry in path.entries for page in self.entry_pages(entry)}

    def unreached(self):
        """Returns a line for each page of docs/ that is in no path."""
        reached = self.reached() | {INDEX}
        return [f"{page}: this page is in no path of {INDEX}" for page in self.markdown()
                if page.startswith("docs/") and page not in reached]

    def without_audience(self):
        """Returns a line for each page of docs/ that does not begin by saying whom it is for."""
        return [f"{page}: the first paragraph does not begin with \"For \", the readers that the page is for"
                for page in self.markdown()
                if page.startswith("docs/") and not re.match(r"# .*\n\nFor \S", self.text(page))]

    def unlisted(self):
        """Returns a line for each page of a folder below docs/ that the README of the folder does not list. An entry
        of the list is the title of the page as a link, a colon and a sentence."""
        found = []
        for page in self.markdown():
            folder, name = posixpath.split(page)
            index = f"{folder}/README.md"
            if folder.startswith("docs/") and page != index and index in self.markdown():
                title = re.match(r"# (.*)", self.text(page))[1]
                listed = re.escape(f"- [{title}]({name}):") + r"\s+[^-\s].*"
                if not re.search(f"^{listed}", self.text(index), re.M):
                    found.append(f"{index}: no entry \"- [{title}]({name}): A sentence.\"")
        return found

    def link_fault(self, link):
        """Returns what is wrong with a link, or ""."""
        if not link.path:
            return "leads out of the repository"
        if link.path.split("/")[0] == BUILT or not (self.root / link.path).exists():
            return f"there is no {link.path}"
        if (self.root / link.path / "README.md").exists():
            return f"leads to a folder that has a page: link to {link.path}/README.md"
        if link.anchor:
            if not link.path.endswith(".md"):
                return "only pages have anchors"
            if link.anchor not in anchors(self.text(link.path)):
                return f"{link.path} has no heading #{link.anchor}"
        return ""

    def broken_links(self):
        """Returns a line for each link of a Markdown file that leads nowhere."""
        return [f"{link.page}:{link.line}: ({link.text}): {fault}" for page in self.markdown()
                for link in links(page, self.text(page)) if (fault := self.link_fault(link))]

    def faults(self):
        return self.unreached() + self.broken_links()
