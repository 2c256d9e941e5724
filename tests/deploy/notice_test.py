"""Tests that the NOTICE of a staged tree names the libraries in it and their licences."""
import pathlib
import subprocess
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]


class NoticeTest(unittest.TestCase):
    def test_every_library_is_named_with_its_licence(self):
        wanted = [line for line in (ROOT / "deploy/images/common.files").read_text().splitlines()
                  if "openblas" in line or "NOTICE" in line]
        self.assertEqual(len(wanted), 2)
        with tempfile.TemporaryDirectory() as folder:
            tree = pathlib.Path(folder)
            (tree / "some.files").write_text("\n".join(wanted) + "\n")
            subprocess.run([ROOT / "scripts/stage", tree / "some.files", tree, tree / "out"], check=True)
            about = tree / "out/share/doc/tessera"
            notice = (about / "NOTICE").read_text()
            self.assertTrue(notice.startswith((ROOT / "NOTICE").read_text()))
            lines = notice.splitlines()
            for package, licence, library in (
                    ("libopenblas0-pthread", "BSD-3-clause", "libopenblas.so.0"),
                    ("libgfortran5", "GPL-3 with the GCC Runtime Library Exception", "libgfortran.so.5"),
                    ("libquadmath0", "LGPL-2.1 or later", "libquadmath.so.0")):
                if package == "libquadmath0" and not (tree / "out/lib" / library).exists():
                    continue  # Debian 13's OpenBLAS does not need it
                at = next(i for i, line in enumerate(lines) if line.startswith(package + ": "))
                self.assertIn(licence, lines[at])
                self.assertEqual(lines[at + 1], "  " + library)
                self.assertTrue((about / f"third_party/{package}.txt").stat().st_size > 0)
            held = {path.name for path in (tree / "out/lib").rglob("*.so*")}
            named = {word for line in lines if line.startswith("  ") for word in line.split()}
            self.assertEqual(held, named)


if __name__ == "__main__":
    unittest.main()
