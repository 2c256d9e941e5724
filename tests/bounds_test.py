"""Writes docs/bounds.md, which lists what bounds each wait, and fails when the list is incomplete.

Every method of proto/tessera/v1 must have a row below, and the product must read every option that
is a duration. The defaults and help texts of options come from base/options.def. A fixed bound comes
from the source file that declares it. A row that names an option, a reason or a constant that does
not exist is an error.

    bounds_test.py [--rewrite]
"""

import pathlib
import re
import sys
import unittest

from proto_lint_test import FILES, REASONS, ROOT, methods

DOCS = ROOT / "docs/bounds.md"
LAYERS = "base client embed ir server worker".split()

# Methods that wait for nothing: the coordinator (or, for a shard, the worker that holds it) answers in one step,
# whatever else runs.
AT_ONCE = """
AdminService: CordonWorker UncordonWorker DeleteWorker CreateToken ListTokens RevokeToken
ArrayService: ListArrays CreateWriteTickets ReshardArray SaveArrays DeleteArrays
ClusterService: ListDevices ListWorkers GetWorker GetTopology GetCapabilities CreateMesh GetMesh
  ListMeshes DeleteMesh ListTopPrograms
DataService: GetShardStatus
EnrollmentService: GetAuthority Enroll
OperationService: GetOperation ListOperations ExplainPending CancelOperation
ProgramService: DeleteProgram ExecuteProgram
SessionService: CreateSession GetSession ListSessions RenewSession DeleteSession
"""

# The methods that wait. A row says what the method waits for, which options and fixed bounds (FIXED)
# limit the wait, and what happens at the limit. `timeout` and `deadline` are fields of the request.
WAITS = {
    "AdminService.GetDiagnostics": (
        "each process to answer", "timeout inquiry_wait",
        "what the others said; that of it which is known without it, with `DEADLINE_EXCEEDED`"),
    "AdminService.SetLogLevel": (
        "each process to answer", "timeout inquiry_wait",
        "what the others said; it may have taken the level, with `DEADLINE_EXCEEDED`"),
    "AdminService.DrainWorker": (
        "nothing runs on the worker", "timeout result_wait_ms_max",
        "the worker as it is then; call again to go on waiting"),
    "ArrayService.CreateArray": (
        "executors that were lost to be back", "recovery_wait", "`WORKER_LOST`"),
    "ArrayService.GetArray": (
        "executors to leave the ended run that the array was donated to", "cancel_grace_ms",
        "`DEADLINE_EXCEEDED`, after twice the time"),
    "ArrayService.CreateReadTickets": (
        "the array to be ready", "timeout result_wait_ms_max", "`DEADLINE_EXCEEDED`"),
    "ArrayService.ReadArray": (
        "the array to be ready, and its shards", "timeout result_wait_ms_max",
        "`DEADLINE_EXCEEDED`, which names the executor that did not send"),
    "ArrayService.WriteArray": (
        "lost executors to be back, then the executors to take the shards",
        "recovery_wait ticket_ms", "`WORKER_LOST`; `DEADLINE_EXCEEDED`, which names the executor"),
    "ArrayService.LoadArrays": (
        "a worker to look at the file", "result_wait_ms_max",
        "`DEADLINE_EXCEEDED`, which names the executor"),
    "ArrayService.GetFile": (
        "a worker to look at the file", "result_wait_ms_max",
        "`DEADLINE_EXCEEDED`, which names the executor"),
    "DataService.Write": (
        "the next chunk from the client", "upload_idle_ms",
        "`DEADLINE_EXCEEDED`; the upload is kept for `upload_keep_ms` and may go on"),
    "DataService.Read": (
        "the shard's producer, by the caller's deadline; the client to take a chunk",
        "read_idle_ms", "`DEADLINE_EXCEEDED`; the stream is cut"),
    "OperationService.WaitOperation": (
        "the end of the operation", "timeout result_wait_ms_max",
        "the operation as it is then; ask again"),
    "OperationService.WatchOperation": (
        "changes of the operation", "result_wait_ms_max",
        "the stream ends with the operation as it is then; ask again"),
    **{f"ProgramService.{name}": (
        "a thread that reads programs, then the reading", "jail_timeout_ms result_wait_ms_max",
        "`LIMIT_EXCEEDED`, or `DEADLINE_EXCEEDED` for want of a thread")
       for name in ("UploadProgram", "GetProgram", "InspectProgram", "ListPrograms")},
    "ProgramService.CompileProgram": (
        "the program to be read, the plan, and each executor to compile it; lost executors to be back",
        "jail_timeout_ms compile_timeout_ms recovery_wait",
        "`LIMIT_EXCEEDED`; `COMPILE_TIMEOUT`, which names the executor; it goes on: call again. "
        "`WORKER_LOST`"),
    "ProgramService.ExplainProgram": (
        "the program to be read, the plan", "jail_timeout_ms compile_timeout_ms",
        "`LIMIT_EXCEEDED`; `COMPILE_TIMEOUT`"),
    "ProgramService.ExecuteAndWatch": (
        "the end of the run", "result_wait_ms_max",
        "the operation as it is then; go on by WaitOperation. The run's own bounds are below"),
    "ProgramService.ExecutePrograms": (
        "the end of each run", "result_wait_ms_max",
        "the operation as it is then; go on by WaitOperation"),
    "ProgramService.RunProgram": (
        "the compilation, the run and its results", "timeout result_wait_ms_max",
        "`DEADLINE_EXCEEDED`; the run is cancelled"),
    "SessionService.HoldSession": (
        "the client to be alive, for as long as the stream lasts",
        "keepalive_ms keepalive_timeout_ms session_grace_ms",
        "a dead connection is found by the first two; the last one later the session's operations "
        "are cancelled"),
    "WorkerService.Connect": (
        "the worker's heartbeats; at the worker, any sign of the coordinator",
        "lease_ms heartbeat_ms link_timeout_ms",
        "the worker is away: what lies and runs there waits for `outage_grace_ms`, and is lost if it "
        "has not registered again by then"),
    "WorkerService.Attach": (
        "an executor whose daemon has registered it to attach", "attach_wait",
        "the executor is lost"),
}

# Waits that go on after a method has answered: what is waited for, its bounds, and what happens at
# the bound.
GOES_ON = [
    ("a run, from when nothing stands before it on its devices", "deadline run_deadline_ms",
     "the operation ends with `DEADLINE_EXCEEDED`"),
    ("an executor to leave a run that was cancelled or is past its deadline", "cancel_grace_ms",
     "its process is killed and another one started"),
    ("the peers of a collective", "collective_timeout_ms",
     "`COLLECTIVE_TIMEOUT`, at every executor that waits"),
    ("the first failure, once an executor has blamed a peer", "verdict_wait",
     "the operation ends with the earliest failure that is known"),
    ("work on files", "file_deadline", "the operation ends with `DEADLINE_EXCEEDED`"),
    ("an upload to an array that CreateArray made", "ticket_ms",
     "the array fails with `DEADLINE_EXCEEDED`"),
    ("an executor to answer its daemon", "unresponsive_ms", "its devices are not ready"),
    ("a coordinator that is away, at the workers that keep arrays and runs for it",
     "outage_grace_ms", "their executors are started anew"),
    ("an executor that was away to say what it holds, though its worker is back",
     "outage_grace_ms", "its process is killed and another one started"),
    ("an executor to start", "ready_timeout", "its process is killed and another one started"),
    ("an uploaded program's next chunk", "program_upload_idle", "the upload is dropped"),
    ("an idle device to prove that it works", "canary_interval_ms canary_timeout_ms",
     "the device counts as not working"),
    ("a connection's TLS and HTTP/2 handshake", "handshake", "the connection is closed"),
    ("the other parts of a saved or loaded file to begin", "begin_timeout",
     "the operation ends with `DEADLINE_EXCEEDED`"),
    ("calls that are open when the coordinator stops", "shutdown_grace",
     "they end with `SERVER_STOPPING` or are cut"),
    ("a call of the C++ SDK that does not block", "call_timeout", "`UNREACHABLE`"),
    ("a coordinator that is away, at the calls of the C++ SDK, each within its own bound",
     "reconnect", "`UNREACHABLE`"),
    ("the queue to have room, in the C++ SDK", "queue_wait", "`QUEUE_FULL` is thrown"),
]

# Bounds that no option sets: the file, and the declaration in it whose value the page shows.
FIXED = {
    "recovery_wait": ("server/scheduler/config.h", "absl::Duration recovery_wait"),
    "verdict_wait": ("server/scheduler/config.h", "absl::Duration verdict_wait"),
    "file_deadline": ("server/scheduler/config.h", "absl::Duration file_deadline"),
    "inquiry_wait": ("server/rpc/inquiries.h", "absl::Duration kInquiryWaitMax"),
    "attach_wait": ("server/rpc/worker_streams.cc", "absl::Duration kAttachWait"),
    "ready_timeout": ("worker/daemon/core.h", "absl::Duration ready_timeout"),
    "program_upload_idle": ("server/scheduler/config.h", "absl::Duration program_upload_idle"),
    "handshake": ("server/rpc/server.cc", "int kHandshakeMillis"),
    "begin_timeout": ("worker/files/task.h", "absl::Duration kBeginTimeout"),
    "shutdown_grace": ("server/main.cc", "absl::Duration kShutdownGrace"),
    "reconnect": ("client/session.h", "absl::Duration reconnect"),
    "call_timeout": ("client/remote/remote_service.h", "absl::Duration kCallTimeout"),
    "queue_wait": ("client/trace/session.cc", "absl::Duration kMaxQueueWait"),
}
REQUEST_FIELDS = ("timeout", "deadline")
SECONDS = {"Milliseconds": 0.001, "Seconds": 1, "Minutes": 60, "Hours": 3600}


def duration_text(seconds):
    for unit, size in (("h", 3600), ("min", 60), ("s", 1)):
        if seconds >= size and seconds % size == 0:
            return f"{seconds // size:.0f} {unit}"
    return f"{seconds * 1000:.0f} ms" if seconds < 1 else f"{seconds:g} s"


def durations():
    """Maps the name of each option that is a duration to (default in seconds, help text)."""
    rows = re.findall(
        r'^TESSERA_INT_OPTION\((\w+), ([\d\']+), [^"]*"ms", "([^"]*)"\)$',
        (ROOT / "base/options.def").read_text(), re.MULTILINE)
    return {name: (int(default.replace("'", "")) / 1000, said) for name, default, said in rows}


def fixed():
    """Maps each name in FIXED to its value in seconds, or to None if the source does not declare it."""
    found = {}
    for name, (path, declaration) in FIXED.items():
        match = re.search(rf"\b{re.escape(declaration)} = (?:absl::(\w+)\()?([\d']+)\)?[;,]",
                          (ROOT / path).read_text())
        number = match and int(match[2].replace("'", ""))
        found[name] = match and number * SECONDS[match[1] or "Milliseconds"]
    return found


OPTIONS = durations()
CONSTANTS = fixed()


def at_once():
    for line in AT_ONCE.replace("\n  ", " ").strip().splitlines():
        service, names = line.split(":")
        yield from (f"{service}.{name}" for name in names.split())


def bounds_text(names):
    def one(name):
        if name in REQUEST_FIELDS:
            return f"the request's `{name}`"
        if name in OPTIONS:
            return f"`{name}` ({duration_text(OPTIONS[name][0])})"
        return f"{duration_text(CONSTANTS[name])}, fixed"
    return ", ".join(one(n) for n in names.split())


def documented():
    """Returns the text of docs/bounds.md."""
    lines = [
        "# Bounds", "",
        "Generated by `tests/bounds_test.py --rewrite` from `base/options.def`, the protos, and the "
        "rows of that\ntest, which fails when a method or an option has none.", "",
        "Every wait ends. What ends it is an option, whose default is in brackets ([env.md](env.md) "
        "has its range), a\nfield of the request, of which the shorter counts, or fixed. The "
        "caller's deadline ends the wait of every\ncall besides, and leaves what the call began as "
        "the method says. `UPPER_CASE` is the reason of the error\n([errors.md](errors.md)).", "",
        "## Methods that wait", "",
        "| method | for what | at most | then |", "|---|---|---|---|"]
    for name in sorted(WAITS):
        what, names, then = WAITS[name]
        lines.append(f"| `{name}` | {what} | {bounds_text(names)} | {then} |")
    lines += [
        "", "## Methods that do not wait", "",
        "They answer after one step of the coordinator. A call with the `request_id` of one that "
        "still runs waits for\nthat one.", ""]
    services = {}
    for name in sorted(at_once()):
        service, method = name.split(".")
        services.setdefault(service, []).append(f"`{method}`")
    lines += [f"- {service}: {', '.join(names)}" for service, names in services.items()]
    lines += ["", "## What goes on after the answer", "",
              "| for what | at most | then |", "|---|---|---|"]
    lines += [f"| {what} | {bounds_text(names)} | {then} |" for what, names, then in GOES_ON]
    lines += ["", "## Options that are durations", "",
              "| option | default | meaning |", "|---|---|---|"]
    lines += [f"| `{name}` | {duration_text(default)} | {said} |"
              for name, (default, said) in OPTIONS.items()]
    return "\n".join(lines) + "\n"


class Bounds(unittest.TestCase):
    def test_every_method_has_a_bound(self):
        ours = [name for f in FILES for _, _, name, _ in methods(f)]
        rows = [*at_once(), *WAITS]
        self.assertEqual(sorted(rows), sorted(ours), "say what bounds each method, once")

    def test_what_takes_a_timeout_waits(self):
        for file in FILES:
            fields = {m.name: {f.name for f in m.field} for m in file.message_type}
            for _, _, name, method in methods(file):
                takes = "timeout" in fields.get(method.input_type.rsplit(".", 1)[1], ())
                says = "timeout" in WAITS.get(name, ("", "", ""))[1].split()
                self.assertEqual(takes, says, f"{name}: its field, and its row")

    def test_rows_name_what_exists(self):
        known = {*OPTIONS, *FIXED, *REQUEST_FIELDS}
        used = set()
        for row in [*WAITS.values(), *GOES_ON]:
            *_, names, then = row
            used.update(names.split())
            self.assertLessEqual(set(names.split()), known, row)
            for reason in re.findall(r"`([A-Z_]+)`", then):
                self.assertIn(reason, REASONS, row)
        self.assertEqual(set(FIXED) - used, set(), "fixed bounds that no row names")
        self.assertEqual([n for n, v in CONSTANTS.items() if v is None], [],
                         "the source does not declare these as their rows say")

    def test_every_duration_is_found_and_read(self):
        text = (ROOT / "base/options.def").read_text()
        named = set(re.findall(r"^TESSERA_INT_OPTION\((\w+_ms(?:_max)?),", text, re.MULTILINE))
        self.assertEqual(set(OPTIONS), named, "durations end in _ms, have the unit ms and one line")
        source = "\n".join(
            p.read_text() for layer in LAYERS for p in (ROOT / layer).rglob("*.cc")
            if not p.name.endswith("_test.cc"))
        unread = [n for n in OPTIONS if not re.search(rf"(?:\.|->|::){n}\b", source)]
        self.assertEqual(unread, [], "options that bound nothing")

    def test_the_page_is_the_tables(self):
        self.assertEqual(DOCS.read_text(), documented(), "run tests/bounds_test.py --rewrite")


if __name__ == "__main__":
    if "--rewrite" in sys.argv:
        DOCS.write_text(documented())
    else:
        unittest.main()
