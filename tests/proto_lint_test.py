"""Reads the wire contract as protoc describes it and fails on what its conventions forbid.

Every message, field, enum value, service and method has a comment. The comment of every method or of
its service lists status codes with reasons that exist. Names, packages and enums follow the AIPs.
Methods that list things use pages, and methods that change something take a request_id. docs/rpcs.md,
which lists the methods, is written from the comments and server/rpc/methods.def.
proto_contract_test.py checks that the contract keeps what it promised before.

    proto_lint_test.py [--rewrite]
"""

import re
import sys
import unittest

from proto_contract import ROOT, describe

DOCS = ROOT / "docs/rpcs.md"
CODES = {
    "CANCELLED", "INVALID_ARGUMENT", "DEADLINE_EXCEEDED", "NOT_FOUND", "ALREADY_EXISTS",
    "PERMISSION_DENIED", "RESOURCE_EXHAUSTED", "FAILED_PRECONDITION", "ABORTED", "UNIMPLEMENTED",
    "INTERNAL", "UNAVAILABLE", "DATA_LOSS", "UNAUTHENTICATED",
}
VERBS = (
    "Attach Cancel Compile Connect Cordon Create Delete Drain Enroll Execute Explain Get Hold Inspect List "
    "Load Read Renew Reshard Revoke Run Save Set Uncordon Upload Wait Watch Write"
).split()
PREPOSITIONS = "for from with to of in on by at via per".split()

# Methods whose name is not VerbNoun, and why.
NAMED_OTHERWISE = {
    "DataService.Write": "the service names the one thing that it writes",
    "DataService.Read": "the service names the one thing that it reads",
    "WorkerService.Connect": "the stream of a worker's daemon",
    "WorkerService.Attach": "the stream of an executor",
    "ProgramService.ExecuteAndWatch": "two verbs, since it does two things in one call",
    "OperationService.ExplainPending": "explains why an operation is pending",
    "EnrollmentService.Enroll": "the service names what it enrols",
}
# Enums in which the value 0 has a meaning, and why.
WITH_A_ZERO = {
    "AxisType": "an axis without a type is Auto, in the text form too",
    "ProgramFormat": "bytes that come without a format are Tessera's own, as they always were",
}
# Methods that change something but take no request_id, and why repeating them is safe.
WITHOUT_REQUEST_ID = {
    "SessionService.RenewSession": "renewing twice is renewing",
    "OperationService.CancelOperation": "cancelling an operation that has ended changes nothing",
    "AdminService.CordonWorker": "sets a state",
    "AdminService.UncordonWorker": "sets a state",
    "AdminService.DrainWorker": "sets a state, and waits",
    "AdminService.DeleteWorker": "deleting a deleted worker says that there is none",
    "AdminService.SetLogLevel": "sets a state",
    "AdminService.RevokeToken": "revoking a revoked token changes nothing",
    "ProgramService.UploadProgram": "known by the hash of the bytes",
    "ProgramService.RunProgram": "keeps nothing",
    "ArrayService.CreateReadTickets": "changes nothing at the server",
    "ArrayService.CreateWriteTickets": "changes nothing at the server",
    "DataService.Write": "a stream, known by its ticket and offset",
    "EnrollmentService.Enroll": "another certificate does no harm",
    "WorkerService.Connect": "a stream",
    "WorkerService.Attach": "a stream",
}
READS = ("Get", "List", "Read", "Wait", "Watch", "Explain", "Inspect")
# List methods without pages, and why.
UNPAGED = {"ClusterService.ListTopPrograms": "bounded by the server to a few"}


FILES = [f for f in describe(comments=True).file if f.name.startswith("tessera/")]


def reasons():
    """Maps each reason in base/error_kinds.def to its status code."""
    text = (ROOT / "base/error_kinds.def").read_text()
    row = re.compile(r'^TESSERA_ERROR_KIND\(\w+, "([A-Z_]+)", k(\w+),', re.MULTILINE)
    return {
        reason: re.sub(r"(?<!^)(?=[A-Z])", "_", code).upper() for reason, code in row.findall(text)
    }


REASONS = reasons()


def comments(file):
    """Maps the path of each descriptor, a tuple of numbers, to its leading comment."""
    return {tuple(l.path): l.leading_comments.strip() for l in file.source_code_info.location}


def messages(file):
    """Yields (path, full name, descriptor) of every message, also of nested ones, but not of map entries."""

    def walk(path, prefix, message):
        if message.options.map_entry:
            return
        name = f"{prefix}.{message.name}"
        yield path, name, message
        for i, nested in enumerate(message.nested_type):
            yield from walk(path + (3, i), name, nested)

    for i, message in enumerate(file.message_type):
        yield from walk((4, i), file.package, message)


def enums(file):
    for i, enum in enumerate(file.enum_type):
        yield (5, i), enum
    for path, _, message in messages(file):
        for i, enum in enumerate(message.enum_type):
            yield path + (4, i), enum


def methods(file):
    """Yields (service comment, method comment, "Service.Method", descriptor) of every method."""
    said = comments(file)
    for i, service in enumerate(file.service):
        for k, method in enumerate(service.method):
            yield (said.get((6, i), ""), said.get((6, i, 2, k), ""),
                   f"{service.name}.{method.name}", method)


MESSAGES = {name: m for f in FILES for _, name, m in messages(f)}


def fields_of(type_name):
    """Returns the fields of a message by name."""
    message = MESSAGES[type_name.lstrip(".")]
    return {f.name: f for f in message.field}


def listed(comment):
    """Returns (code, reasons) for each status code in a comment: "NOT_FOUND (A, B)", or a code alone."""
    found = re.findall(r"\b([A-Z]+(?:_[A-Z]+)*)\b(?:\s*\(([A-Z_,\s]+)\))?", comment)
    return [(code, [r.strip() for r in why.split(",") if r.strip()])
            for code, why in found if code in CODES]


def roles():
    """Maps (service, method) to the least role that may call it, from server/rpc/methods.def."""
    text = (ROOT / "server/rpc/methods.def").read_text()
    rows = re.findall(r"^TESSERA_METHOD\((\w+), (\w+), k(\w+),", text, re.MULTILINE)
    return {(service, method): least.lower() for service, method, least in rows}


def first_sentence(comment):
    return re.split(r"(?<=[.:])\s", " ".join(comment.split()), maxsplit=1)[0].rstrip(":.")


def documented():
    """Returns the text of docs/rpcs.md."""
    least = roles()
    lines = [
        "# Methods", "",
        "For people who call the service by gRPC: every method, and the least role that may call it.", "",
        "Generated by `tests/proto_lint_test.py --rewrite` from `proto/tessera/v1/` and "
        "`server/rpc/methods.def`.", "",
        "The comment of each method in the protos lists the status codes that the method may answer, "
        "says why, and whether to\nretry; [errors.md](errors.md) lists the reasons. The column *role* "
        "names the least role that may call the method\n([security.md](security.md)). A call with a "
        "`request_id` may be repeated: it takes effect once.\n[adding_an_rpc.md](adding_an_rpc.md) "
        "shows how to add a method."]
    for file in sorted((f for f in FILES if f.service), key=lambda f: f.service[0].name):
        lines += ["", f"## {file.service[0].name}", "",
                  "| method | role | request_id | what it does |", "|---|---|---|---|"]
        for _, own, name, m in methods(file):
            service, method = name.split(".")
            stream = {(1, 1): " (streams)", (1, 0): " (a stream up)", (0, 1): " (a stream)"}.get(
                (m.client_streaming, m.server_streaming), "")
            repeats = "yes" if "request_id" in fields_of(m.input_type) else ""
            lines.append(f"| `{method}`{stream} | {least.get((service, method), 'ticket')} | {repeats} "
                         f"| {first_sentence(own)} |")
    return "\n".join(lines) + "\n"


class ProtoLint(unittest.TestCase):
    def test_everything_has_a_comment(self):
        for file in FILES:
            said = comments(file)
            missing = []
            for path, name, message in messages(file):
                missing += [name] if not said.get(path) else []
                missing += [f"{name}.{f.name}" for i, f in enumerate(message.field)
                            if not said.get(path + (2, i))]
            for path, enum in enums(file):
                missing += [enum.name] if not said.get(path) else []
                missing += [v.name for i, v in enumerate(enum.value) if not said.get(path + (2, i))]
            for i, service in enumerate(file.service):
                missing += [service.name] if not said.get((6, i)) else []
            missing += [name for _, comment, name, _ in methods(file) if not comment]
            self.assertEqual(missing, [], file.name)

    def test_methods_list_their_errors(self):
        for file in FILES:
            for of_service, own, name, _ in methods(file):
                found = listed(of_service) + listed(own)
                refers = re.search(r"\bAs [A-Z]\w+", own)
                self.assertTrue(found or refers, f"{name} lists no status code")
                for code, why in found:
                    for reason in why:
                        self.assertIn(reason, REASONS, f"{name} lists a reason that no error has")
                        self.assertEqual(REASONS[reason], code,
                                         f"{name} lists {reason} under another code")

    def test_errors_of_methods_have_reasons(self):
        """A status code without a reason in brackets does not tell a program what went wrong."""
        for file in FILES:
            for _, own, name, _ in methods(file):
                if not name.startswith(("DataService", "WorkerService")):
                    for line in own.splitlines():
                        starts = re.match(r"\s*([A-Z]+(?:_[A-Z]+)*)\b(.?.?)", line)
                        if starts and starts[1] in CODES and "as for" not in line.lower():
                            self.assertEqual(starts[2], " (", f"{name}: no reason: {line}")

    def test_names(self):
        for file in FILES:
            folder = file.name.rsplit("/", 1)[0]
            self.assertEqual(file.package, folder.replace("/", "."), file.name)
            self.assertEqual(file.syntax, "proto3", file.name)
            for used in file.dependency:
                self.assertTrue(used.startswith(("google/", "tessera/v1/")), used)
            for _, name, message in messages(file):
                self.assertRegex(message.name, r"^([A-Z][a-z0-9]*)+$", name)
                for f in message.field:
                    self.assertRegex(f.name, r"^[a-z][a-z0-9]*(_[a-z0-9]+)*$", name)
            for _, _, name, m in methods(file):
                words = re.findall(r"[A-Z][a-z0-9]*", m.name)
                for word in words:
                    self.assertNotIn(word.lower(), PREPOSITIONS, f"{name} has a preposition")
                if name not in NAMED_OTHERWISE:
                    self.assertIn(words[0], VERBS, f"{name} does not begin with a verb")
                    self.assertGreater(len(words), 1, f"{name} names nothing")

    def test_enums_begin_with_unspecified(self):
        for file in FILES:
            for _, enum in enums(file):
                prefix = re.sub(r"(?<!^)(?=[A-Z])", "_", enum.name).upper()
                if enum.name in WITH_A_ZERO:
                    continue
                self.assertEqual((enum.value[0].number, enum.value[0].name),
                                 (0, f"{prefix}_UNSPECIFIED"))
                for value in enum.value:
                    self.assertTrue(value.name.startswith(prefix + "_"), value.name)

    def test_lists_go_by_pages(self):
        seen = set()
        for file in FILES:
            for _, _, name, m in methods(file):
                if not m.name.startswith("List"):
                    continue
                seen.add(name)
                asked, answered = fields_of(m.input_type), fields_of(m.output_type)
                repeated = [f.name for f in answered.values() if f.label == f.LABEL_REPEATED]
                self.assertEqual(len(repeated), 1, name)
                self.assertIn("page_size", asked, name)
                if name not in UNPAGED:
                    self.assertIn("page_token", asked, name)
                    self.assertIn("next_page_token", answered, name)
        self.assertLessEqual(set(UNPAGED), seen)

    def test_what_changes_something_takes_a_request_id(self):
        named = set()
        for file in FILES:
            for _, _, name, m in methods(file):
                named.add(name)
                if m.name.startswith(READS) and name not in WITHOUT_REQUEST_ID:
                    continue
                has = "request_id" in fields_of(m.input_type)
                if m.server_streaming or m.client_streaming:
                    continue
                self.assertNotEqual(has, name in WITHOUT_REQUEST_ID,
                                    f"{name}: request_id, or a reason in the list, and not both")
        self.assertLessEqual(set(WITHOUT_REQUEST_ID) - named, set(), "rows of methods that are gone")

    def test_every_method_has_a_role(self):
        rows = set(roles())
        ours = {tuple(name.split(".")) for f in FILES for _, _, name, _ in methods(f)}
        self.assertEqual(rows, {m for m in ours if m[0] != "DataService"})

    def test_the_fuzzers_seeds_are_of_the_methods_that_they_name(self):
        """The first byte of a seed must be the row number of its method (server/requests_fuzz.cc)."""
        names = [method for _, method in roles()]
        for seed in (ROOT / "tests/fuzz/requests").iterdir():
            method = seed.name.partition("Of")[0]
            self.assertEqual(names[seed.read_bytes()[0]], method, seed.name)

    def test_the_docs_list_every_method(self):
        self.assertEqual(DOCS.read_text(), documented(), "run tests/proto_lint_test.py --rewrite")


if __name__ == "__main__":
    if "--rewrite" in sys.argv:
        DOCS.write_text(documented())
    else:
        unittest.main()
