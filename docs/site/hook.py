"""Gives MkDocs the pages of the checkout and their navigation (mkdocs.yml).

Pages keep their paths: docs/jax.md is docs/jax.html of the site, so that links between pages work as they are. Links to
other files of the repository lead to pages that show the file as text. They need neither a public address of the
repository nor a browser that shows sources, and they show the version that the page is about. A folder without a README
becomes a page that lists its files.
"""
import logging
import pathlib
import posixpath
import re
import sys

from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, InclusionLevel
from mkdocs.structure.nav import Link

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import dialect  # noqa: E402
import pages  # noqa: E402

LOG = logging.getLogger("mkdocs.tessera")
CHECKOUT = pages.Checkout(pathlib.Path(__file__).resolve().parents[2])
# scripts/docs puts the C++ API there, once the pages are made. The entry of the API comes behind the page about the C++
# client.
CPP = Link("C++ API", "cpp/index.html")
CPP_BEHIND = "docs/cpp.md"
IMAGES = (".svg", ".png")
LANGUAGES = {".h": "cpp", ".cc": "cpp", ".def": "cpp", ".py": "python", ".proto": "protobuf", ".yml": "yaml",
             ".yaml": "yaml", ".Dockerfile": "docker", ".service": "ini", "CMakeLists.txt": "cmake"}


class ShownFile(File):
    """A page that shows a file or lists a folder. It has the path of the file or folder, so that links find it."""

    def is_documentation_page(self):
        return True


def language(path, text):
    if text.startswith("#!"):
        return "python" if "python" in text.split("\n", 1)[0] else "bash"
    return next((name for end, name in LANGUAGES.items() if path.endswith(end)), "text")


def shown_file(path):
    text = CHECKOUT.text(path)
    fence = "`" * (2 + max([1] + [len(run) for run in re.findall("`+", text)]))
    return f"# {path}\n\n{fence}{language(path, text)}\n{text}\n{fence}\n"


def title(page):
    return re.search(r"^# (.*)$", CHECKOUT.text(page), re.M)[1]


def shown_folder(path, files):
    name = posixpath.basename(path).capitalize() if path.startswith("docs/") else path
    rows = [f"- [{title(file) if file.endswith('.md') else posixpath.basename(file)}]"
            f"({posixpath.relpath(file, posixpath.dirname(path))})" for file in files]
    return f"# {name}\n\n" + "\n".join(rows) + "\n"


def folder_files(path):
    return sorted(f"{path}/{file.name}" for file in (CHECKOUT.root / path).iterdir()
                  if file.is_file() and not file.name.startswith("."))


def nav_pages(entry):
    """Returns the pages of an entry. The first one stands for a folder."""
    found = CHECKOUT.entry_pages(entry)
    return found if found[0] == entry or found[0].endswith("/README.md") else [entry] + found


def section(entries):
    """Returns the navigation of entries: a page, or the pages of a folder under its name."""
    nav = []
    for entry in entries:
        found = nav_pages(entry)
        folder = posixpath.basename(posixpath.dirname(found[-1])).capitalize()
        nav.append({folder: found} if len(found) > 1 else entry)
    return nav


def navigation():
    """Returns the pages above the four paths, then the paths, and last the READMEs of the folders."""
    opening, *paths = CHECKOUT.paths()
    first = ["README.md", pages.INDEX] + [entry for entry in opening.entries if entry != "README.md"]
    folders = [{posixpath.dirname(page): page} for page in CHECKOUT.folder_readmes()]
    return section(first) + [{path.title: section(path.entries)} for path in paths] + [{"The folders": folders}]


def nav_paths(nav):
    for item in nav:
        if isinstance(item, str):
            yield item
        else:
            for value in item.values():
                yield from [value] if isinstance(value, str) else nav_paths(value)


def on_config(config):
    if faults := CHECKOUT.faults():
        raise PluginError("\n".join(faults))
    config.nav = navigation()
    # Headings have the anchors that they have elsewhere.
    config.mdx_configs["toc"]["slugify"] = lambda heading, separator: pages.slug(heading)
    return config


def add_file(files, config, path, in_nav):
    """Adds the page or image of a path, and returns the paths that it leads to."""
    real = CHECKOUT.root / path
    inclusion = InclusionLevel.INCLUDED if in_nav else InclusionLevel.NOT_IN_NAV
    if path.endswith((".md",) + IMAGES):
        files.append(File.generated(config, path, abs_src_path=str(real), inclusion=inclusion))
        if not path.endswith(".md"):
            return []
        return [link.path for link in pages.links(path, CHECKOUT.text(path))]
    inside = folder_files(path) if real.is_dir() else []
    text = shown_folder(path, inside) if real.is_dir() else shown_file(path)
    if not path.startswith("docs/"):
        # The search is about the pages, not about sources. Wide code needs the room of the table of contents.
        text = "---\nsearch: {exclude: true}\nhide: [toc]\n---\n" + text
    file = ShownFile.generated(config, path, content=text, inclusion=inclusion)
    if real.is_dir():
        file.name = "index"
        file.dest_uri = f"{path}/index.html"
    else:
        file.dest_uri = f"{path}.html"
    files.append(file)
    return inside


def on_files(files, config):
    """Adds the pages of the navigation, and all files that they lead to."""
    in_nav = list(nav_paths(config.nav))
    left, known = list(in_nav), set()
    while left:
        path = left.pop(0)
        if path not in known:
            known.add(path)
            left += add_file(files, config, path, path in in_nav)
    made = files.documentation_pages()
    shown = sum(isinstance(file, ShownFile) for file in made)
    LOG.info("made: %d pages, %d files as text", len(made) - shown, shown)
    return files


def on_nav(nav, config, files):
    page = files.get_file_from_path(CPP_BEHIND).page
    CPP.parent = page.parent
    siblings = page.parent.children
    siblings.insert(siblings.index(page) + 1, CPP)
    return nav


def on_page_markdown(markdown, page, config, files):
    return markdown if isinstance(page.file, ShownFile) else dialect.for_mkdocs(markdown)


def on_page_content(html, page, config, files):
    return html if isinstance(page.file, ShownFile) else dialect.with_bars(html)
