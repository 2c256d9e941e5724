#!/usr/bin/env python3
"""Tests what Doxygen reads: the comments of headers (docs/site/cpp_comments.py) and the list of the public headers
(docs/site/cpp_headers.py)."""
import pathlib
import sys
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "docs/site"))

import cpp_comments  # noqa: E402
import cpp_headers  # noqa: E402


class CppComments(unittest.TestCase):
    """The comments of headers in Doxygen's form."""

    def converted(self, text, path="client/some_thing.h"):
        lines = cpp_comments.Converter(path).convert(text.split("\n"))
        self.assertEqual(len(lines), text.count("\n") + 1, "lines keep their numbers")
        return "\n".join(lines)

    def assert_converted(self, text, expected):
        self.assertEqual(self.converted("namespace a {\n" + text), "namespace a {\n" + expected)

    def assert_stays(self, text):
        self.assert_converted(text, text)

    def test_the_comment_that_opens_a_file_describes_it(self):
        self.assertEqual(self.converted("// Things.\n//\n// More.\n#pragma once\n#include <b>  // c\n"),
                         "/// Things.\n///\n/// More.\n/// @file client/some_thing.h\n#include <b>  // c\n")

    def test_it_also_describes_the_type_with_the_name_of_the_file(self):
        self.assert_converted("class SomeThing {\n};", "/** @copydoc client/some_thing.h */ class SomeThing {\n};")
        self.assert_stays("class Other {\n};")
        self.assert_stays("class SomeThing;")
        self.assert_converted("// Own.\nclass SomeThing {", "/// Own.\nclass SomeThing {")

    def test_comments_above_declarations(self):
        for code in ("int F(int a);", "template <class T>\nvoid G(T t) {", "struct S {", "enum class E {",
                     "#define M(x) x", "[[nodiscard]] int H();", "using T = int;"):
            self.assert_converted(f"// Text.\n{code}", f"/// Text.\n{code}")
        self.assert_converted("class A : public B<C(D)> {\n public:\n  // Text.\n  int f();\n\n private:\n",
                              "class A : public B<C(D)> {\n public:\n  /// Text.\n  int f();\n\n private:\n")

    def test_comments_that_describe_nothing_stay(self):
        for text in ("// Text.\n\nint a;", "int F() {\n  // Text.\n  int a;\n}", "// Text.\n}",
                     "// ---- Part. ----\nint a;",
                     "int F(int a,\n      // Text.\n      int b);", "int F() { return 1;  // Text.\n}",
                     "auto f = [](int a) {\n  // Text.\n  return a;\n};", "// NOLINTNEXTLINE(x): y\nint a;",
                     "#define M \\\n  // Text. \\\n  int a;", "}  // namespace a"):
            self.assert_stays(text)

    def test_comments_behind_declarations(self):
        self.assert_converted("int a;    // one,\n          // and more\n// Text.\nint b;",
                              "int a;    ///< one,\n          ///< and more\n/// Text.\nint b;")
        self.assert_converted("enum E {\n  kA,  // one\n};", "enum E {\n  kA,  ///< one\n};")
        self.assert_converted('std::string s = "{//";  // one\nint b;  // two',
                              'std::string s = "{//";  ///< one\nint b;  ///< two')
        self.assert_converted("int f() const { return 1; }  // one", "int f() const { return 1; }  ///< one")
        self.assert_stays("Arg(int n) : n_(n) {}  // NOLINT(x): y")

    def test_text_is_shown_as_it_is(self):
        self.assert_converted('// a<b> @c #d 1% \\e [f](g) `h<i>` "j<k>"\nint a;',
                              '/// a\\<b\\> \\@c \\#d 1\\% \\\\e [f]\\(g) `h<i>` "j<k>"\nint a;')

    def test_indented_lines_are_code(self):
        self.assert_converted("// Text:\n//\n//   int a<b>;\n//     int c;\n//\n// - item\n//   more<a>\nint a;",
                              "/// Text:\n/// @code{.cpp}\n///     int a<b>;\n///       int c; @endcode\n///\n"
                              "/// - item\n///   more\\<a\\>\nint a;")
        self.assert_converted("// Text:\n//   a\nint a;", "/// Text: @code{.cpp}\n///     a @endcode\nint a;")


class CppHeaders(unittest.TestCase):
    def test_headers_that_the_client_includes_are_public(self):
        found = cpp_headers.public_headers(ROOT)
        self.assertLessEqual({"client/tessera.h", "client/array.h", "client/transform/jit.h", "ir/type.h"}, set(found))
        self.assertTrue(all(header.startswith(("client/", "ir/")) for header in found))
        self.assertNotIn("ir/text.h", found)


if __name__ == "__main__":
    unittest.main()
