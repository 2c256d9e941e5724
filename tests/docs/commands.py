"""Finds the grpcurl commands of a Markdown file, and the output that the file shows for them."""
import dataclasses
import json
import re

ELLIPSIS = "..."
_FENCE = re.compile(r"^(\s*)```+([^`]*)$")
_COMMAND = re.compile(r"^(?:(\w+)=\$\()?grpcurl\b")
_DOCUMENT = re.compile(r"<<-?\s*(['\"]?)(\w+)\1")


@dataclasses.dataclass
class Command:
    line: int  # number of its first line in the file
    text: str  # text for the shell, perhaps of several lines
    variable: str  # variable that its output is assigned to, or "" if it prints
    expected: str = None  # text of the block that follows it
    kind: str = None  # language of that block: "json" or "text"


def _blocks(text):
    """Yields (language, number of the first line, lines) of each fenced block. Yields None between
    two blocks if the lines between them are not all empty."""
    language, indent, block, start = None, 0, [], 0
    for number, line in enumerate(text.split("\n"), 1):
        fence = _FENCE.match(line)
        if language is not None:
            if fence and not fence[2].strip():
                yield language, start, block
                language = None
            else:
                block.append(line[indent:] if line[:indent].isspace() else line)
        elif fence:
            language, indent = fence[2].strip(), len(fence[1])
            start, block = number + 1, []
        elif line.strip():
            yield None
    assert language is None, f"the block that begins in line {start} does not end"


def _shell_commands(start, lines):
    at = 0
    while at < len(lines):
        first = at
        found = _COMMAND.match(lines[at])
        while lines[at].endswith("\\") and at + 1 < len(lines):
            at += 1
        document = _DOCUMENT.search("\n".join(lines[first:at + 1]))
        if document:
            while lines[at].strip() != document[2]:
                at += 1
                assert at < len(lines), f"line {start + first}: <<{document[2]} does not end"
            # The closing parenthesis of NAME=$(grpcurl ... <<EOF comes after the document.
            if found and found[1] and at + 1 < len(lines) and lines[at + 1].startswith(")"):
                at += 1
        at += 1
        if found:
            yield Command(start + first, "\n".join(lines[first:at]), found[1] or "")


def commands_of(text):
    """Returns every command of the ```sh blocks whose line begins with grpcurl or NAME=$(grpcurl.
    If a ```json or ```text block follows directly, it shows what the last command of the block
    prints."""
    found, last = [], None
    for block in _blocks(text):
        if block is None:
            last = None
            continue
        language, start, lines = block
        if language == "sh":
            new = list(_shell_commands(start, lines))
            found += new
            last = new[-1] if new else None
        else:
            if language in ("json", "text") and last and not last.variable:
                last.expected, last.kind = "\n".join(lines), language
            last = None
    return found


def documents(text):
    """Returns the JSON documents that follow each other in a text."""
    decoder, found, text = json.JSONDecoder(), [], text.strip()
    while text:
        value, end = decoder.raw_decode(text)
        found.append(value)
        text = text[end:].lstrip()
    return found


def mismatch(expected, actual, at="$"):
    """Returns "" if `actual` is what the documentation shows, and otherwise the difference. "..."
    stands for any value. At the end of a list "..." stands for any further items, and as a key it
    stands for any other fields."""
    if expected == ELLIPSIS:
        return ""
    if isinstance(expected, dict) and isinstance(actual, dict):
        named = {k: v for k, v in expected.items() if k != ELLIPSIS}
        if missing := [k for k in named if k not in actual]:
            return f"{at} has no {missing[0]!r}"
        if ELLIPSIS not in expected and (more := [k for k in actual if k not in named]):
            return f"{at} has {more[0]!r}, which the documentation does not show"
        found = (mismatch(v, actual[k], f"{at}.{k}") for k, v in named.items())
    elif isinstance(expected, list) and isinstance(actual, list):
        if expected and expected[-1] == ELLIPSIS and len(actual) >= len(expected) - 1:
            expected, actual = expected[:-1], actual[:len(expected) - 1]
        if len(expected) != len(actual):
            return f"{at} has {len(actual)} items, the documentation shows {len(expected)}"
        found = (mismatch(e, a, f"{at}[{i}]") for i, (e, a) in enumerate(zip(expected, actual)))
    elif isinstance(expected, str) and isinstance(actual, str) and ELLIPSIS in expected:
        return "" if _pattern(expected).fullmatch(actual) else (
            f"{at} is {actual!r}, the documentation shows {expected!r}")
    else:
        same = expected == actual and isinstance(expected, bool) == isinstance(actual, bool)
        return "" if same else f"{at} is {actual!r}, the documentation shows {expected!r}"
    return next((f for f in found if f), "")


def _pattern(text):
    return re.compile(".*".join(map(re.escape, text.split(ELLIPSIS))), re.DOTALL)


def text_mismatch(expected, actual):
    """Like mismatch, but for text: "..." stands for any text, and space at the ends of lines is
    ignored."""
    def bare(text):
        return re.sub(r"[ \t]+", " ", "\n".join(line.strip() for line in text.strip().split("\n")))

    if _pattern(bare(expected)).fullmatch(bare(actual)):
        return ""
    return f"it prints\n{actual}\nand the documentation shows\n{expected}"
