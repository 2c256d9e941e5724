"""Every grpcurl command of the documentation, run against real daemons.

A file's commands run in one shell, in order, beside a cluster of their own: workers w0 and w1 with two
CPU devices each. docs/grpcurl.md says what a reader has to have; here that is given:

  localhost:8470   is replaced by the cluster's address; TESSERA_ADDRESS is it too;
  -cacert FILE     becomes -plaintext: the cluster has no certificates;
  TESSERA_TOKEN    some text, which a cluster without tokens does not look at;
  WORKER, SESSION, ARRAY, EXECUTABLE, OPERATION
                   things that exist. The operation waits for an upload that does not come.
"""
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
import json_client  # noqa: E402

PATIENCE = 120  # for all commands of a file
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
    """Ids of things that exist, as variables."""
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


def script(found, folder):
    """Runs each command with its output in files; a command that fails does not stop the next."""
    lines = ["set -u -o pipefail"]
    for number, command in enumerate(found):
        text = re.sub(r"-cacert[ =]\S+", "-plaintext", command.text)
        text = re.sub(r"\b(localhost|127\.0\.0\.1):8470\b", "$TESSERA_ADDRESS", text)
        here = shlex.quote(str(folder / str(number)))
        end = f"\necho $? >{here}.rc"
        if command.variable:
            end += f'\nprintf "%s" "${command.variable}" >{here}.out'
        lines.append(f"{{\n{text}{end}\n}} >{here}.out 2>{here}.err"
                     if not command.variable else f"{{\n{text}{end}\n}} 2>{here}.err")
    return "\n".join(lines) + "\n"


def check(command, rc, out, err):
    """What is wrong; "" when nothing is."""
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
    if re.search(r"\b(list|describe)\b", command.text) or "|" in command.text.split("<<")[0]:
        return ""
    printed = commands.documents(out)
    if command.expected is None:
        return "" if printed else "it prints no JSON"
    return commands.mismatch(commands.documents(command.expected), printed)


@pytest.mark.parametrize("page", [page for page, found in PAGES.items() if found])
def test_the_commands_of(page, tmp_path):
    shim = tmp_path / "bin" / "grpcurl"
    shim.parent.mkdir()
    shim.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} '
                    f'{shlex.quote(str(HERE / "grpcurl.py"))} "$@"\n')
    shim.chmod(0o755)
    with daemons.Cluster() as cluster:
        with json_client.Client(cluster.address) as client:
            known = examples(client)
        env = {**os.environ, **known, "PATH": f"{shim.parent}:{os.environ['PATH']}",
               "TESSERA_ADDRESS": cluster.address, "TESSERA_TOKEN": "tsr_documentation",
               "TESSERA_CA_FILE": "ca.pem"}
        subprocess.run(["bash", "-c", script(PAGES[page], tmp_path)], env=env, cwd=tmp_path,
                       timeout=PATIENCE, check=False)
        wrong = []
        for number, command in enumerate(PAGES[page]):
            parts = [tmp_path / f"{number}.{part}" for part in ("rc", "out", "err")]
            rc, out, err = (p.read_text() if p.exists() else "" for p in parts)
            fault = check(command, int(rc), out, err) if rc else "it was not reached"
            if fault:
                wrong.append(f"{page}:{command.line}: {command.text}\n{fault}")
    assert not wrong, "\n\n".join(wrong)
