"""Tests that the release has all sources that its examples need.

scripts/release_check builds the examples in bare systems, which is slow. This test only reads the
lists of files."""
import pathlib
import re
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
LISTED = {line.split()[1] for line in (ROOT / "deploy/images/release.files").read_text().splitlines()
          if line.startswith("examples/")}
BUILT = set(re.findall(r"\w+\.cc", (ROOT / "deploy/release/examples.cmake").read_text()))


class ReleaseFilesTest(unittest.TestCase):
    def test_what_examples_include_is_there(self):
        sources = [path for path in LISTED if path.endswith((".cc", ".h"))]
        self.assertIn("examples/mlp_digits.cc", sources)
        for path in sources:
            for header in re.findall(r'#include "(examples/[^"]+)"', (ROOT / path).read_text()):
                self.assertIn(header, LISTED, f"{path} includes it")
                source = header[:-2] + ".cc"
                if (ROOT / source).exists():
                    self.assertIn(source, LISTED, f"{path} uses it")

    def test_all_sources_are_built(self):
        self.assertEqual({path.removeprefix("examples/") for path in LISTED if path.endswith(".cc")},
                         BUILT)


if __name__ == "__main__":
    unittest.main()
