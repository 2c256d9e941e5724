"""Writes a checksum of all headers that a precompiled header contains.

    pch_sum.py COMPILER INCLUDE_DIRECTORIES DEPFILE OUT... -- HEADER...

INCLUDE_DIRECTORIES are separated by ";". Each OUT is the name of a precompiled header with ".sum" added. ccache uses
the content of such a file in place of a checksum of the precompiled header. The precompiled header itself contains
absolute paths, so with its own checksum a checkout in another folder would find nothing in the cache.
"""
import hashlib
import pathlib
import subprocess
import sys


def included(compiler, directories, headers):
    """Returns the paths of the files that the compiler reads for the headers, in the order in which it reads them."""
    includes = [f"-I{directory}" for directory in directories.split(";") if directory]
    source = "".join(f"#include {header}\n" for header in headers)
    rule = subprocess.run([compiler, "-std=c++20", "-pthread", *includes, "-M", "-x", "c++", "-"],
                          input=source, stdout=subprocess.PIPE, text=True, check=True).stdout
    # The compiler writes a rule for make, which also names standard input, "-".
    return [word for word in rule.replace("\\\n", " ").split(":", 1)[1].split() if word != "-"]


def main():
    compiler, directories, depfile, *rest = sys.argv[1:]
    outputs, headers = rest[:rest.index("--")], rest[rest.index("--") + 1:]
    files = included(compiler, directories, headers)
    digest = hashlib.sha256()
    for file in files:
        digest.update(hashlib.sha256(pathlib.Path(file).read_bytes()).digest())
    for output in outputs:
        pathlib.Path(output).write_text(digest.hexdigest() + "\n")
    pathlib.Path(depfile).write_text(f"{outputs[0]}: {' '.join(files)}\n")


if __name__ == "__main__":
    main()
