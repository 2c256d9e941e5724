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
        "returns the reports of the processes that answered, and for each other process "
        "`DEADLINE_EXCEEDED` with what is known without its answer"),
    "AdminService.SetLogLevel": (
        "each process to answer", "timeout inquiry_wait",
        "returns the levels of the processes that answered, and `DEADLINE_EXCEEDED` for each other "
        "process, which may have set the level nevertheless"),
    "AdminService.DrainWorker": (
        "the runs on the worker to end", "timeout result_wait_ms_max",
        "returns the worker as it is then; call again to go on waiting"),
    "ArrayService.CreateArray": (
        "lost executors to be back", "recovery_wait", "fails with `WORKER_LOST`"),
    "ArrayService.GetArray": (
        "executors to leave the ended run that the array was donated to", "cancel_grace_ms",
        "fails with `DEADLINE_EXCEEDED`, after twice this time"),
    "ArrayService.CreateReadTickets": (
        "the array to be ready", "timeout result_wait_ms_max", "fails with `DEADLINE_EXCEEDED`"),
    "ArrayService.ReadArray": (
        "the array to be ready, then its shards to arrive", "timeout result_wait_ms_max",
        "fails with `DEADLINE_EXCEEDED`, which names the executor that did not send"),
    "ArrayService.WriteArray": (
        "lost executors to be back, then the executors to take the shards",
        "recovery_wait ticket_ms", "fails with `WORKER_LOST` in the first wait, and in the second "
        "with `DEADLINE_EXCEEDED`, which names the executor"),
    "ArrayService.LoadArrays": (
        "a worker to look at the file", "result_wait_ms_max",
        "fails with `DEADLINE_EXCEEDED`, which names the executor"),
    "ArrayService.GetFile": (
        "a worker to look at the file", "result_wait_ms_max",
        "fails with `DEADLINE_EXCEEDED`, which names the executor"),
    "DataService.Write": (
        "the next chunk from the client", "upload_idle_ms",
        "fails with `DEADLINE_EXCEEDED`; the upload is kept for `upload_keep_ms` and may go on"),
    "DataService.Read": (
        "the shard's producer, until the caller's deadline; then the client to take each chunk",
        "read_idle_ms", "fails with `DEADLINE_EXCEEDED` in the first wait; cuts the stream in the second"),
    "OperationService.WaitOperation": (
        "the operation to end", "timeout result_wait_ms_max",
        "returns the operation as it is then; call again to go on waiting"),
    "OperationService.WatchOperation": (
        "the operation to change", "result_wait_ms_max",
        "ends the stream with the operation as it is then; call again to go on watching"),
    **{f"ProgramService.{name}": (
        "a free thread that reads programs, then the program to be read",
        "jail_timeout_ms result_wait_ms_max",
        "fails with `LIMIT_EXCEEDED`, or with `DEADLINE_EXCEEDED` if no thread was free")
       for name in ("UploadProgram", "GetProgram", "InspectProgram", "ListPrograms")},
    "ProgramService.CompileProgram": (
        "the program to be read and planned, each executor to compile it, and lost executors to be back",
        "jail_timeout_ms compile_timeout_ms recovery_wait",
        "fails with `LIMIT_EXCEEDED` or `WORKER_LOST`, or with `COMPILE_TIMEOUT`, which names the "
        "executor; the executor goes on compiling, so call again"),
    "ProgramService.ExplainProgram": (
        "the program to be read and planned", "jail_timeout_ms compile_timeout_ms",
        "fails with `LIMIT_EXCEEDED` or `COMPILE_TIMEOUT`"),
    "ProgramService.ExecuteAndWatch": (
        "the run to end", "result_wait_ms_max",
        "returns the operation as it is then; call WaitOperation to go on waiting. The bounds of the "
        "run itself are below"),
    "ProgramService.ExecutePrograms": (
        "each run to end", "result_wait_ms_max",
        "returns the operation as it is then; call WaitOperation to go on waiting"),
    "ProgramService.RunProgram": (
        "the compilation, the run and its results", "timeout result_wait_ms_max",
        "fails with `DEADLINE_EXCEEDED`; the run is cancelled"),
    "SessionService.HoldSession": (
        "the client to be alive, for as long as the stream lasts",
        "keepalive_ms keepalive_timeout_ms session_grace_ms",
        "the first two bounds find a dead connection; after the third, the session's operations are "
        "cancelled"),
    "WorkerService.Connect": (
        "the worker's heartbeats; at the worker, any sign of life of the coordinator",
        "lease_ms heartbeat_ms link_timeout_ms",
        "the worker counts as away; its arrays and runs are kept for `outage_grace_ms`, and are lost "
        "if it has not registered again by then"),
    "WorkerService.Attach": (
        "an executor to attach once its daemon has registered it", "attach_wait",
        "the executor counts as lost"),
}

# Waits that go on after a method has answered: what is waited for, its bounds, and what happens at
# the bound.
GOES_ON = [
    ("a run to end, from the time when no earlier run is ahead of it on its devices",
     "deadline run_deadline_ms", "the operation ends with `DEADLINE_EXCEEDED`"),
    ("an executor to leave a run that was cancelled or is past its deadline", "cancel_grace_ms",
     "the executor's process is killed and another one started"),
    ("the peers of a collective", "collective_timeout_ms",
     "the collective fails with `COLLECTIVE_TIMEOUT` at every executor that waits"),
    ("the ranks of a new communicator between GPUs", "communicator_timeout_ms",
     "the launch that needs it fails with `COLLECTIVE_TIMEOUT`"),
    ("a launch on its way from the coordinator to a peer of a collective", "launch_patience",
     "the collective fails with `COLLECTIVE_TIMEOUT`, after `collective_timeout_ms` more"),
    ("the report of the first failure, once an executor has blamed a peer", "verdict_wait",
     "the operation ends with the earliest failure that is known"),
    ("the end of work on files", "file_deadline", "the operation ends with `DEADLINE_EXCEEDED`"),
    ("an upload to an array that CreateArray made", "ticket_ms",
     "the array fails with `DEADLINE_EXCEEDED`"),
    ("an executor to answer its daemon", "unresponsive_ms", "the executor's devices are not ready"),
    ("the return of a coordinator that is away, at the workers that keep arrays and runs for it",
     "outage_grace_ms", "the workers start their executors anew"),
    ("an executor to say what it holds, after its worker has come back",
     "outage_grace_ms", "the executor's process is killed and another one started"),
    ("an executor to start", "ready_timeout", "the executor's process is killed and another one started"),
    ("another call, at an idle process that makes long calls of libraries for an executor",
     "eval_idle", "the process ends, and a later call starts another one"),
    ("an uploaded program's next chunk", "program_upload_idle", "the upload is dropped"),
    ("an idle device to prove that it works", "canary_interval_ms canary_timeout_ms",
     "the device counts as not working"),
    ("a connection's TLS and HTTP/2 handshake", "handshake", "the connection is closed"),
    ("the other parts of a saved or loaded file to begin", "begin_timeout",
     "the operation ends with `DEADLINE_EXCEEDED`"),
    ("open calls to end, when the coordinator stops", "shutdown_grace",
     "the calls end with `SERVER_STOPPING` or are cut"),
    ("the return of a coordinator that is away or silent, in each call of a client, within the call's own bound",
     "reconnect", "the call fails with `UNREACHABLE`, which names the call, its time and the address"),
    ("the answer to a call of a client that does not block, if the bound above is shorter", "min_answer",
     "the call fails with `UNREACHABLE`"),
    ("the return of an executor that is away, in a transfer of a client, unless the coordinator has lost it",
     "reconnect", "the transfer fails with `WORKER_LOST`"),
    ("the acceptance of a run that was sent ahead, while the coordinator answers other calls", "accept_timeout",
     "the uses of its results fail with `DEADLINE_EXCEEDED`"),
    ("workers to find a coordinator again that has lost its state, in calls of a client that need devices",
     "return_timeout", "the call fails with `NOT_ENOUGH_DEVICES`"),
    ("the queue to have room, in the C++ SDK", "queue_wait", "the call throws `QUEUE_FULL`"),
    ("a coordinator, and devices, that a program of JAX or the C++ SDK connects to", "connect",
     "JAX raises a RuntimeError; the SDK throws `UNREACHABLE` or `NOT_ENOUGH_DEVICES`"),
    ("a device that is away, in `block_until_ready` of what a JAX program has put there", "device_wait",
     "JAX raises an error with `DEADLINE_EXCEEDED`"),
    ("the state of a device of JAX", "state_wait", "the state is `unknown`"),
    ("the coordinator to cancel the runs of `tessera_jax.cancel`", "cancel_all_wait",
     "it raises a RuntimeError; the cancellations go on"),
]

# Bounds that no option sets: the file, and the declaration in it whose value the page shows.
FIXED = {
    "recovery_wait": ("server/scheduler/config.h", "absl::Duration recovery_wait"),
    "launch_patience": ("worker/runtime/communicator.h", "absl::Duration kLaunchPatience"),
    "verdict_wait": ("server/scheduler/config.h", "absl::Duration verdict_wait"),
    "file_deadline": ("server/scheduler/config.h", "absl::Duration file_deadline"),
    "inquiry_wait": ("server/rpc/inquiries.h", "absl::Duration kInquiryWaitMax"),
    "attach_wait": ("server/rpc/worker_streams.cc", "absl::Duration kAttachWait"),
    "ready_timeout": ("worker/daemon/core.h", "absl::Duration ready_timeout"),
    "eval_idle": ("worker/cpu/eval_child.h", "absl::Duration idle_time"),
    "program_upload_idle": ("server/scheduler/config.h", "absl::Duration program_upload_idle"),
    "handshake": ("server/rpc/server.cc", "int kHandshakeMillis"),
    "begin_timeout": ("worker/files/task.h", "absl::Duration kBeginTimeout"),
    "shutdown_grace": ("server/main.cc", "absl::Duration kShutdownGrace"),
    "reconnect": ("client/session.h", "absl::Duration reconnect"),
    "min_answer": ("client/remote/remote_service.h", "absl::Duration kMinAnswer"),
    "accept_timeout": ("client/remote/runs_ahead.cc", "absl::Duration kAcceptTimeout"),
    "return_timeout": ("client/remote/remote_service.cc", "absl::Duration kReturnTimeout"),
    "queue_wait": ("client/trace/session.cc", "absl::Duration kMaxQueueWait"),
    "connect": ("client/session.h", "absl::Duration timeout"),
    "device_wait": ("client/pjrt/buffer.cc", "absl::Duration kDeviceWaitMax"),
    "state_wait": ("client/pjrt/tessera_extension.cc", "absl::Duration kStateWait"),
    "cancel_all_wait": ("client/pjrt/live_runs.cc", "absl::Duration kCancelAllWait"),
}
CLIENT_OPTIONS = ("reconnect",)  # options of a client's connection
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
        if name in CLIENT_OPTIONS:
            return f"`{name}` ({duration_text(CONSTANTS[name])})"
        return f"{duration_text(CONSTANTS[name])} (fixed)"
    return ", ".join(one(n) for n in names.split())


def documented():
    """Returns the text of docs/bounds.md."""
    lines = [
        "# Bounds", "",
        "For operators, and for people who write clients or add a wait to the code: what bounds each "
        "wait, and what\nhappens at the bound.", "",
        "Generated by `tests/bounds_test.py --rewrite` from `base/options.def`, the protos, and the "
        "tables in that test.\nThe test fails if a method or an option has no row.", "",
        "Every wait has a bound, which is one of three things: an option, a field of the request, or a "
        "fixed time. The time\nin brackets behind an option is its default ([env.md](env.md) has its "
        "range). `reconnect` is an option of a client's\nconnection ([networking.md](networking.md)). If an "
        "option and a field of the request bound the same wait, the\nshorter time counts. The caller's own "
        "deadline ends the wait of every call as well; the comment of the method in\nthe protos says what "
        "then becomes of the work that the call began. A name such as `WORKER_LOST` is the reason of\nan "
        "error ([errors.md](errors.md)).", "",
        "## Methods that wait", "",
        "| method | waits for | at most | at the bound |", "|---|---|---|---|"]
    for name in sorted(WAITS):
        what, names, then = WAITS[name]
        lines.append(f"| `{name}` | {what} | {bounds_text(names)} | {then} |")
    lines += [
        "", "## Methods that do not wait", "",
        "These methods answer after one step of the coordinator. There is one exception: a call that "
        "repeats the\n`request_id` of a call that still runs waits for that call.", ""]
    services = {}
    for name in sorted(at_once()):
        service, method = name.split(".")
        services.setdefault(service, []).append(f"`{method}`")
    lines += [f"- {service}: {', '.join(names)}" for service, names in services.items()]
    lines += ["", "## Waits that go on after the answer", "",
              "| waits for | at most | at the bound |", "|---|---|---|"]
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
