#!/usr/bin/env python3
"""Prints the paths of the public headers of the C++ client: client/tessera.h, and those of client/ and ir/ that it
includes, directly or not. cmake/tessera_install.cmake installs them, with the few of base/ that they need and the
headers of client/ that only forward to one of them."""
import pathlib
import re

ROOT = pathlib.Path(__file__).resolve().parents[2]


def public_headers(root):
    found, left = [], ["client/tessera.h"]
    while left:
        header = left.pop()
        if header not in found and (root / header).is_file():
            found.append(header)
            left += re.findall(r'^#include "([^"]*)"', (root / header).read_text(encoding="utf-8"), re.M)
    return sorted(header for header in found if re.match(r"(client|ir)/.*\.h$", header))


if __name__ == "__main__":
    print("\n".join(public_headers(ROOT)))
