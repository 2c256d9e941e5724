#!/usr/bin/env python3
"""Checks a documentation site that scripts/docs has made.

    docs/site/check_site.py SITE

Fails if a browser would load anything from another host for a page, and if a link within the site leads nowhere. MkDocs
checks the links of the pages itself; this check adds the pages of Doxygen, and the links between both.
"""
import html.parser
import pathlib
import posixpath
import re
import sys
import urllib.parse

# A browser loads the values of these attributes, by tag, and the targets of <link>s of these kinds.
LOADED = {"script": ["src"], "img": ["src", "srcset"], "source": ["src", "srcset"], "iframe": ["src"],
          "embed": ["src"], "object": ["data"], "video": ["src", "poster"], "audio": ["src"], "track": ["src"],
          "input": ["src"], "use": ["href", "xlink:href"], "image": ["href", "xlink:href"]}
LOADED_LINKS = {"stylesheet", "icon", "shortcut", "preload", "prefetch", "preconnect", "dns-prefetch", "manifest",
                "modulepreload", "apple-touch-icon"}
# Elements for which the theme's script loads something from another host: charts, and figures of a public repository.
LOADERS = re.compile(r"(^|\s)mermaid(\s|$)")
OTHER_HOST = re.compile(r"\s*(https?:)?//", re.I)
CSS_LOADS = re.compile(r"""url\(\s*["']?((?:https?:)?//[^)"']*)|@import\s+["']((?:https?:)?//[^"']*)""", re.I)


class Page(html.parser.HTMLParser):
    """Collects the anchors of a page, its links, and what it loads from other hosts."""

    def __init__(self, text):
        super().__init__()
        self.anchors, self.links, self.loads = set(), [], []
        self.in_style = False
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        attrs = {name: value or "" for name, value in attrs}
        self.in_style = tag == "style"
        self.anchors |= {attrs[name] for name in ("id", "name") if name in attrs}
        if tag == "a" and "href" in attrs:
            self.links.append(attrs["href"])
        loaded = [attrs[name] for name in LOADED.get(tag, []) if name in attrs]
        if tag == "link" and LOADED_LINKS & set(attrs.get("rel", "").lower().split()):
            loaded.append(attrs.get("href", ""))
        self.loads += [text for text in loaded if any(OTHER_HOST.match(part) for part in text.split(","))]
        self.loads += css_loads(attrs.get("style", ""))
        if LOADERS.search(attrs.get("class", "")) or attrs.get("data-md-component") == "source":
            self.loads.append(self.get_starttag_text())

    def handle_data(self, data):
        if self.in_style:
            self.loads += css_loads(data)


def css_loads(text):
    return [found[0] or found[1] for found in CSS_LOADS.findall(text)]


def link_fault(pages, files, page, link):
    """Returns what is wrong with a link of a page, or ""."""
    parts = urllib.parse.urlsplit(link)
    if parts.scheme or parts.netloc or not link:
        return ""
    path = urllib.parse.unquote(parts.path)
    target = posixpath.normpath(posixpath.join(posixpath.dirname(page), path)) if path else page
    if target + "/index.html" in pages or target == ".":
        target = posixpath.normpath(target + "/index.html")
    if target not in files:
        return "there is no such file"
    anchor = urllib.parse.unquote(parts.fragment)
    # Doxygen 1.9 heads some pages with links to parts that they do not have.
    summary = page == target and page.startswith("cpp/")
    if anchor and not summary and target in pages and anchor not in pages[target].anchors:
        return "there is no such anchor"
    return ""


def faults(site):
    """Returns the pages of a site by their paths, and a line for each fault."""
    files = {path.relative_to(site).as_posix(): path for path in site.rglob("*") if path.is_file()}
    pages = {name: Page(path.read_text(encoding="utf-8")) for name, path in files.items() if name.endswith(".html")}
    found = []
    for name, page in sorted(pages.items()):
        found += [f"{name}: a browser would load {load} from another host" for load in page.loads]
        # The page for addresses that do not exist has links from the root of a server.
        found += [f"{name}: ({link}): {fault}" for link in page.links if name != "404.html"
                  if (fault := link_fault(pages, files, name, link))]
    for name, path in sorted(files.items()):
        if name.endswith((".css", ".svg")):
            found += [f"{name}: a browser would load {load} from another host"
                      for load in css_loads(path.read_text(encoding="utf-8"))]
    return pages, found


def main():
    site = pathlib.Path(sys.argv[1])
    pages, found = faults(site)
    for fault in found:
        print(f"docs/site/check_site.py: {fault}", file=sys.stderr)
    if not found:
        print(f"docs/site/check_site.py: {len(pages)} pages: no link is broken, and nothing comes from another host")
    sys.exit(bool(found))


if __name__ == "__main__":
    main()
