#!/usr/bin/env python3
"""Writes examples/data/digits.txt from scikit-learn's copy of the UCI handwritten digits.

    pip install scikit-learn && python3 scripts/make_digits.py examples/data/digits.txt

Each line is an image: 64 pixels, row by row, each 0..16 as one letter of base 17 (0-9, a-g), then a blank and the
digit. The file is committed; run this script only to check it.
"""
import sys

from sklearn.datasets import load_digits

LETTERS = "0123456789abcdefg"


def main():
    digits = load_digits()
    with open(sys.argv[1], "w", encoding="ascii") as out:
        for image, label in zip(digits.data.astype(int), digits.target):
            out.write("".join(LETTERS[p] for p in image) + f" {label}\n")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main()
