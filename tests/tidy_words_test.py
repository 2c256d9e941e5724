"""Reads the comments of all sources in C++, protobuf and Python, and the docstrings. Fails when a folder holds more
sentences that open with a stand-in for a noun than its ceiling in tests/golden/word_ceilings.txt, when a .cc file does
not open with a comment, and when a C++ function of more than 25 lines has no comment above it.

  tests/tidy_words_test.py [FOLDER...]    lists the sentences of these folders instead
"""
import ast
import io
import pathlib
import re
import sys
import tokenize
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent
CEILINGS = ROOT / "tests/golden/word_ceilings.txt"
# A sentence that opens with one of these has lost its noun: "Of the arrays.", "Null: no such call.", "One that is."
OPENERS = re.compile(
    r"(Of|Those|That of|That which|Whose|Its|Their|Ones|Nobody|Nothing|Such|The same|Also|Else)\b"
    r"|(What|Who)\b(?!.*\?$)|As\b(?! (an?|if|long|of|soon|well)\b)|One (that|of|is|each)\b|Once,|(Null|None)[:;,]"
    r"|(0|-1|Empty)[:;] |(To|By|In|For) what\b")
LONGEST_WITHOUT_COMMENT = 25  # lines of a function
# Preprocessor lines, strings, comments and characters, which are no code for the scanner of functions.
BLANKED = re.compile(r'^[ \t]*#(?:.*\\\n)*.*$|R"([^(\s]*)\((?:.|\n)*?\)\1"|"(?:\\.|[^"\\\n])*"|//[^\n]*'
                     r"|/\*(?:.|\n)*?\*/|'(?:\\.|[^'\\\n])'", re.M)
# The words that begin the definition of anything but a function.
NO_FUNCTION = re.compile(r" *(namespace|using|struct|class|enum|union|public|private|protected|return|if|for|while|switch"
                         r"|INSTANTIATE_\w+\(|})")
TEST = re.compile(r"(TYPED_)?TEST(_[FP])?\(|TESSERA_\w+\(")  # A test's name says what it is for.


def sources(folder=None):
    """Returns the paths of the sources in the folder, or in all folders, relative to the root."""
    folders = [folder] if folder else [path.name for path in ROOT.iterdir()
                                       if path.is_dir() and path.name != "build" and path.name[0] != "."]
    return sorted(str(path.relative_to(ROOT)) for name in folders for path in (ROOT / name).rglob("*")
                  if path.suffix in (".h", ".cc", ".def", ".proto", ".py"))


def comments(text):
    """Yields (line, text) of each comment of C++: consecutive lines of comments are one, and so is a comment behind
    code."""
    block, first = [], 0
    for number, line in enumerate(text.split("\n") + [""], 1):
        if whole := re.match(r"\s*//+ ?(.*)$", line):
            first = first if block else number
            block.append(whole[1])
            continue
        if block:
            yield first, " ".join(block)
            block = []
        if (behind := re.search(r"[;,{})]\s+// (.+)$", line)) and '"' not in line:
            yield number, behind[1]


def python_comments(text):
    """Yields (line, text) of each comment of Python, like comments()."""
    block, first = [], 0
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type != tokenize.COMMENT or token.string.startswith("#!"):
            continue
        line, column = token.start
        words = token.string.lstrip("#").strip()
        behind_code = bool(token.line[:column].strip())
        if block and (behind_code or line != first + len(block)):
            yield first, " ".join(block)
            block = []
        if behind_code:
            yield line, words
        else:
            first = first if block else line
            block.append(words)
    if block:
        yield first, " ".join(block)


def docstrings(text):
    """Yields (line, text) of each paragraph and each list item in the docstrings of Python."""
    for node in ast.walk(ast.parse(text)):
        if not isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            continue
        lines = (ast.get_docstring(node, clean=False) or "").split("\n")
        block, first = [], 0
        for line, words in enumerate([*map(str.strip, lines), ""], node.body[0].lineno if node.body else 0):
            if block and (not words or words.startswith("- ")):
                yield first, " ".join(block)
                block = []
            if words:
                first = first if block else line
                block.append(words.removeprefix("- "))


def telegrams(text, python=False):
    """Yields (line of the comment, sentence) of each sentence that opens with a stand-in for a noun."""
    for line, comment in [*python_comments(text), *docstrings(text)] if python else comments(text):
        for sentence in re.split(r"(?<=[.;:])\s+(?=[A-Z])", comment):
            if len(sentence) >= 8 and OPENERS.match(sentence):
                yield line, sentence


def telegrams_of(path):
    """Returns the telegrams of the source with this path relative to the root."""
    return list(telegrams((ROOT / path).read_text(), python=path.endswith(".py")))


def functions(text):
    """Yields (first line, last line) of each function with a body, by the layout that clang-format gives."""
    lines = BLANKED.sub(lambda m: re.sub(r"[^\n]", " ", m[0]), text).split("\n")
    at = 0
    while at < len(lines):
        end = body_end(lines, at)
        if end is None:
            at += 1
        else:
            yield at, end
            at = end + 1


def body_end(lines, begin):
    """Returns the last line of the function that begins at line `begin`, or None if none does."""
    if not re.match(r" {0,2}[A-Za-z_\[~]", lines[begin]) or NO_FUNCTION.match(lines[begin]):
        return None
    head, at = "", begin
    while "{" not in head:
        if at == len(lines) or at - begin > 12 or ";" in head:
            return None
        head += lines[at]
        at += 1
    if "(" not in head.split("{")[0]:
        return None
    depth, last = 0, at - 1
    for at in range(begin, len(lines)):
        depth += lines[at].count("{") - lines[at].count("}")
        if at >= last and depth == 0:
            return at
    return None


def uncommented(text):
    """Yields (line, number of lines) of each long function without a comment above it."""
    lines = text.split("\n")
    for begin, end in functions(text):
        if end - begin + 1 <= LONGEST_WITHOUT_COMMENT or TEST.match(lines[begin]):
            continue
        above = begin - 1
        while above >= 0 and re.match(r"\s*(template|requires)\b", lines[above]):
            above -= 1
        if above < 0 or not re.match(r"\s*//", lines[above]):
            yield begin + 1, end - begin + 1


class Scanners(unittest.TestCase):
    def test_a_sentence_without_its_noun_is_found(self):
        text = "int a;  // of the arrays\n// Returns it. Null: no such call.\n// One that is.\nint b;  // Of the x.\n"
        self.assertEqual([line for line, _ in telegrams(text)], [2, 2, 4])
        plain = "// What is next?\nint a;  // once it is full\n// As a rule, it drops. One may ask.\n"
        self.assertEqual(list(telegrams(plain)), [])

    def test_it_is_found_in_a_comment_of_python(self):
        text = """#!/usr/bin/python3
# Returns a. Null: there
# is none.
a = "# Of the x."  # Its name.
b = 1  # the name of b
# Also the
# name.

# None: no name.
"""
        self.assertEqual(list(telegrams(text, python=True)),
                         [(2, "Null: there is none."), (4, "Its name."), (6, "Also the name."), (9, "None: no name.")])
        plain = "# What is next?\na = 1  # once it is full\n# of the x\nb = '''\n# Of the x.\n'''\n"
        self.assertEqual(list(telegrams(plain, python=True)), [])

    def test_it_is_found_in_a_docstring(self):
        text = '''"""The head of a module
of two lines. What it does.

    module.py [FOLDER...]

The same for a folder:
- Nothing is
  written.
- a list
"""
class Box:
    """Of the boxes."""

    def size(self):
        """Returns the size. As in JAX, it
        is a number. As a rule, it is small.

        Args:
            unit (str): Those of the box.
        """
        return """Of the sizes."""
'''
        self.assertEqual(list(telegrams(text, python=True)), [
            (1, "What it does."), (6, "The same for a folder:"), (7, "Nothing is written."), (12, "Of the boxes."),
            (15, "As in JAX, it is a number."), (18, "Those of the box.")])

    def test_a_macro_is_no_function(self):
        self.assertEqual(list(uncommented("#define ASK(a) \\\n  Ask(a)\n" + "// Text.\nint a;\n" * 30)), [])

    def test_a_long_function_wants_a_comment(self):
        body = "  int a = '{';  // {\n" * 25
        self.assertEqual(list(uncommented(f"// Opens.\nint F(int x,\n      int y) {{\n{body}}}\n")), [])
        self.assertEqual(list(uncommented(f"int x;\nint F() {{\n{body}}}\n")), [(2, 27)])
        self.assertEqual(list(uncommented(f"int x;\nint F() {{\n{body[:-21]}}}\n")), [(2, 26)])
        self.assertEqual(list(uncommented(f"// Why.\ntemplate <class T>\nint F() {{\n{body}}}\n")), [])
        self.assertEqual(list(uncommented(f"TEST(A, B) {{\n  Each([] {{\n{body}  }});\n}}\nstruct S {{\n{body}}};\n")), [])
        self.assertEqual(list(uncommented("int x;\nint F() {\n" + "  a();\n" * 23 + "}\n")), [])


class Tree(unittest.TestCase):
    def test_no_folder_is_above_its_ceiling(self):
        """A ceiling is the number of such sentences, so that it can only fall."""
        ceilings = dict(line.split() for line in CEILINGS.read_text().splitlines() if not line.startswith("#"))
        found = {folder: sum(len(telegrams_of(path)) for path in sources(folder))
                 for folder in {path.split("/")[0] for path in sources()}}
        for folder, count in sorted(found.items()):
            with self.subTest(folder=folder):
                self.assertLessEqual(count, int(ceilings.get(folder, 0)),
                                     f"see tests/tidy_words_test.py {folder}; write sentences that name their nouns")
                self.assertGreaterEqual(count, int(ceilings.get(folder, 0)), f"lower the ceiling in {CEILINGS.name}")

    def test_each_cc_file_opens_with_a_comment(self):
        bare = [path for path in sources() if path.endswith(".cc") and not (ROOT / path).read_text().startswith("//")]
        self.assertEqual(bare, [])

    def test_each_long_function_has_a_comment(self):
        bare = [f"{path}:{line}: {length} lines" for path in sources() if path.endswith(".cc")
                for line, length in uncommented((ROOT / path).read_text())]
        self.assertEqual(bare, [])


if __name__ == "__main__":
    if len(sys.argv) > 1 and not sys.argv[1].startswith("-"):
        for name in (path for folder in sys.argv[1:] for path in sources(folder)):
            for where, words in telegrams_of(name):
                print(f"{name}:{where}: {words[:110]}")
    else:
        unittest.main()
