"""Runs every grpcurl command of the documentation against real daemons.

The commands of a file run in one shell, in order, beside workers w0 and w1 with two CPU devices
each. Each file has a cluster of its own, except the runbooks, which share one. The shell has what a
reader would have:

  localhost:8470   stands for the cluster's address, and so does TESSERA_ADDRESS. Commands with -cacert
                   get the address of a cluster with TLS and tokens, others that of one without;
  TESSERA_CA_FILE, TESSERA_TOKEN
                   the file of its authority, and an administrator's token;
  WORKER, SESSION, ARRAY, EXECUTABLE, OPERATION
                   ids of things that exist. The operation waits for an upload that never comes.
"""
import contextlib
import os
import pathlib
import re
import shlex
import subprocess
import sys

import pytest

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
sys.path.insert(0, str(ROOT / "tests/service"))

import commands  # noqa: E402
import daemons  # noqa: E402

PATIENCE = 240  # seconds for all commands of a file
PROGRAM = """mesh (x=2)
func main(%a: f32[4] P('x')) -> (f32[4] P('x')) {
  %b = add(%a, %a)
  return %b
}
"""


def pages():
    found = [ROOT / "README.md"]
    for folder in ("docs", "deploy"):
        found += sorted((ROOT / folder).rglob("*.md"))
    return {str(p.relative_to(ROOT)): commands.commands_of(p.read_text()) for p in found}


PAGES = pages()


def test_the_documentation_has_commands():
    with_some = [page for page, found in PAGES.items() if found]
    assert "docs/grpcurl.md" in with_some
    assert len(PAGES["docs/grpcurl.md"]) >= 15


def examples(client):
    """Makes one of each thing that the commands name. Returns the ids as variables of the shell."""
    def call(method, request):
        return client.call(f"tessera.v1.{method}", request)

    session = call("SessionService/CreateSession", {"displayName": "documentation"})["id"]
    compiled = call("ProgramService/CompileProgram", {"text": PROGRAM, "name": "double"})
    written = call("ArrayService/WriteArray",
                   {"spec": compiled["in"][0], "json": [1, 2, 3, 4], "session": session})
    awaited = call("ArrayService/CreateArray", {"spec": compiled["in"][0], "session": session})
    run = call("ProgramService/ExecuteProgram",
               {"executable": compiled["executable"], "args": [awaited["array"]],
                "session": session})
    return {"WORKER": "w0", "SESSION": session, "EXECUTABLE": compiled["executable"],
            "ARRAY": written["array"], "OPERATION": run["operation"]}


def is_secure(command):
    return "-cacert" in command.text


def script(found, folder, addresses):
    """Returns a script that runs each command and writes its output to files. A command that fails
    does not stop the next. `addresses` holds the clusters' addresses, by whether they are
    secure."""
    lines = ["set -u -o pipefail"]
    for number, command in enumerate(found):
        text = re.sub(r"\b(localhost|127\.0\.0\.1):8470\b", "$TESSERA_ADDRESS", command.text)
        here = shlex.quote(str(folder / str(number)))
        lines.append(f"TESSERA_ADDRESS={addresses[is_secure(command)]}")
        if command.variable:
            lines.append(f"{{\n{text}\necho $? >{here}.rc\n"
                         f'printf "%s" "${command.variable}" >{here}.out\n}} 2>{here}.err')
        else:
            lines.append(f"{{\n{text}\n}} >{here}.out 2>{here}.err\necho $? >{here}.rc")
    return "\n".join(lines) + "\n"


def prints_json(text):
    """Returns whether the command is a call whose answer is not piped into another program."""
    head = re.sub(r"(<<.*)\n(.|\n)*", r"\1", text)  # without the text of the here-document
    bare = re.sub(r"'[^']*'|\"[^\"]*\"", "", head)
    return "|" not in bare and not re.search(r"\s(list|describe)(\s|$)", bare)


def check(command, rc, out, err):
    """Returns what is wrong with a command's result, or "" if it is right."""
    fails = command.kind == "text" and command.expected.startswith("ERROR:")
    if fails:
        if rc < 64:
            return f"it was to fail, and exits {rc}: {out}{err}"
        return commands.text_mismatch(command.expected, err)
    if rc != 0:
        return f"it exits {rc}: {err}"
    if not out.strip():
        return "it prints nothing"
    if command.variable or command.kind == "text":
        return commands.text_mismatch(command.expected, out) if command.expected else ""
    if not prints_json(command.text):
        return ""
    try:
        printed = commands.documents(out)
    except ValueError:
        return f"it prints no JSON: {out}"
    if command.expected is None:
        return "" if printed else "it prints no JSON"
    return commands.mismatch(commands.documents(command.expected), printed)


@pytest.fixture(scope="module")
def shared_cluster():
    with daemons.Cluster(secure=True) as cluster:
        yield cluster


@pytest.fixture
def clusters(request, page):
    """The clusters that the commands of the page need, by whether they are secure."""
    kinds = {is_secure(command) for command in PAGES[page]}
    if page.startswith("docs/runbooks/") and kinds == {True}:
        yield {True: request.getfixturevalue("shared_cluster")}
        return
    with contextlib.ExitStack() as stack:
        yield {k: stack.enter_context(daemons.Cluster(secure=k)) for k in sorted(kinds)}


@pytest.mark.parametrize("page", [page for page, found in PAGES.items() if found])
def test_the_commands_of(page, clusters, tmp_path):
    shim = tmp_path / "bin" / "grpcurl"
    shim.parent.mkdir()
    shim.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} '
                    f'{shlex.quote(str(HERE / "grpcurl.py"))} "$@"\n')
    shim.chmod(0o755)
    with clusters[min(clusters)].connect() as client:
        known = examples(client)
    env = {**os.environ, **known, "PATH": f"{shim.parent}:{os.environ['PATH']}"}
    if True in clusters:
        env.update(TESSERA_CA_FILE=str(clusters[True].ca), TESSERA_TOKEN=clusters[True].token)
    addresses = {secure: cluster.address for secure, cluster in clusters.items()}
    subprocess.run(["bash", "-c", script(PAGES[page], tmp_path, addresses)], env=env, cwd=tmp_path,
                   timeout=PATIENCE, check=False)
    wrong = []
    for number, command in enumerate(PAGES[page]):
        parts = [tmp_path / f"{number}.{part}" for part in ("rc", "out", "err")]
        rc, out, err = (p.read_text() if p.exists() else "" for p in parts)
        fault = check(command, int(rc), out, err) if rc else "it was not reached"
        if fault:
            wrong.append(f"{page}:{command.line}: {command.text}\n{fault}")
    assert not wrong, "\n\n".join(wrong)
