"""The environment variables of Tessera, by which a misspelt name is found.

A name that is misspelt has no effect. A program that was to run on a cluster would run on JAX's own CPU instead, and
nothing would say so. Therefore `initialize()` names every variable that begins with TESSERA_ and does not exist.
"""

from __future__ import annotations

import difflib
import re
import sys
from collections.abc import Iterable

PREFIX = "TESSERA_"

# The variables that a JAX program reads: what each does, its values, and its default. docs/jax.md has this table, and
# tests/python/docs_test.py compares the two.
OF_JAX = {
    "TESSERA_ADDRESS": (
        "The coordinator of the cluster whose devices JAX gets.", "HOST:PORT", "none"),
    "TESSERA_EMBEDDED": (
        "The number of CPU devices of a cluster inside the process. Has no effect beside `TESSERA_ADDRESS`.",
        "1 to 256", "none"),
    "TESSERA_MIN_DEVICES": (
        "How many healthy devices the coordinator must have before JAX lists them. JAX waits for them for at most 30 "
        "seconds; then it fails with NOT_ENOUGH_DEVICES. Has no effect on an embedded cluster.", "0 or more", "1"),
    "TESSERA_RECONNECT": (
        "How many seconds calls wait for a coordinator that has gone away or does not answer; after that they fail with "
        "UNREACHABLE until it is back ([below](#when-something-is-away)). A coordinator from which nothing comes back at "
        "all is noticed after 13 seconds at the earliest. Has no effect on an embedded cluster.",
        "0 to 86400", "30"),
    "TESSERA_TOKEN": (
        "The text of the token that the coordinator asks for. Has no effect on an embedded cluster.", "a text",
        "no token"),
    "TESSERA_CA_FILE": (
        "The file with the certificate of the cluster's authority; the connection then uses TLS. Without it the "
        "connection is plain text, which is allowed to this machine only. Has no effect on an embedded cluster.",
        "a PEM file", "none"),
    "TESSERA_PJRT_PLUGIN": (
        "The plugin. While `pip` builds the package: the plugin to copy into it.", "a file",
        "the plugin in the package; while `pip` builds it, the one in `build/release` or else in `build/dev`"),
    "TESSERA_JAX_DUMP": (
        "The folder that keeps what JAX wrote, what Tessera read, and the plan, for each program that is compiled "
        "([below](#looking-inside)).", "a folder", "none"),
    "TESSERA_DUMP": (
        "The folder that keeps each program as text after every stage of planning and compiling "
        "([planner.md](planner.md)). Has an effect on an embedded cluster only: other clusters read the variable "
        "where their daemons start.", "a folder", "none"),
}

# The variables that other programs read, without the prefix, so that none of them is taken for a mistake: the options
# of the daemons (base/options.def), then those of other clients, of containers, and of builds and tests.
_OF_OTHERS = """
    LOG_LEVEL LOG_FILE LOG_FORMAT DUMP MAX_PROGRAM_BYTES MAX_MESSAGE_BYTES MAX_OPS MAX_RANK MAX_MESH_DEVICES JAIL
    JAIL_MEMORY_BYTES_MAX JAIL_TIMEOUT_MS QUEUE_BOUND COLLECTIVE_TIMEOUT_MS COMMUNICATOR_TIMEOUT_MS
    RUN_DEADLINE_MS CANCEL_GRACE_MS
    UNRESPONSIVE_MS LEASE_MS OUTAGE_GRACE_MS HEARTBEAT_MS LINK_TIMEOUT_MS RESULT_WAIT_MS_MAX UPLOAD_IDLE_MS
    UPLOAD_KEEP_MS READ_IDLE_MS FILES_DIR KEEPALIVE_MS KEEPALIVE_TIMEOUT_MS ARRAYS_MAX SESSIONS_MAX
    SESSION_LEASE_MS SESSION_LEASE_MS_MAX SESSION_GRACE_MS MESHES_MAX PROGRAMS_MAX PROGRAMS_BYTES_MAX
    EXECUTABLES_MAX
    RELAY_BYTES_MAX OPERATIONS_KEPT REQUEST_IDS_MAX REQUEST_ID_MS LISTEN PORT_FILE INSECURE STATE_DIR
    STORE_RETRY_MS STORE_ANSWER_MS TLS_CERT_FILE TLS_KEY_FILE TLS_CA_FILE CA_KEY_FILE TOKENS_FILE TOKEN_FILE
    TICKET_MS RATE_LIMIT_PER_SECOND TENANT_CALLS_MAX METRICS_LISTEN METRICS_PORT_FILE METRICS_SERIES_MAX
    CANARY_INTERVAL_MS CANARY_TIMEOUT_MS CACHE_DIR CACHE_BYTES_MAX COMPILE_JOBS COMPILE_ALWAYS
    COMPILE_MEMORY_BYTES_MAX COMPILE_TIMEOUT_MS CUDA_PLUGIN CUDA_TF32
    DEBUG_NANS CUDA_CUBLASLT CUDA_DRIVER CUDA_MATMUL_TRIALS CUDA_NCCL CUDA_NVML
    COORDINATOR DEVICES HOST WORKER_CPUS WORKER_FLAGS WORKER_MEMORY
    BIN_DIR CUT_SECONDS DEVICE_TEST_PLUGIN FAKE FAKE_FILE FAKE_PTX_FOLDER FEWER_SEEDS JAX_OUTCOMES JAX_TESTS JAX_TESTS_SEED
    OLD_BIN_DIR PYTHON_DIR RANDOM_PROGRAMS RECORDED_PROGRAMS REWRITE SHARD_MAPS SHARED SUITE_ADDRESS TEST_TIMES
"""

KNOWN = frozenset(OF_JAX).union(PREFIX + name for name in _OF_OTHERS.split())

# Kubernetes gives each container variables for every service of its namespace, such as TESSERA_PORT_8470_TCP for a
# service that is called tessera.
_OF_KUBERNETES = re.compile(r"_SERVICE_(HOST|PORT(_\w+)?)$|_PORT(_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)?$")


def unknown(names: Iterable[str]) -> list[tuple[str, str | None]]:
    """Returns the names that begin with TESSERA_ and are no variable of Tessera, in order, each with the name of the
    variable that is spelt most like it, or with None if no name is."""
    found = []
    for name in sorted(names):
        if name.startswith(PREFIX) and name not in KNOWN and not _OF_KUBERNETES.search(name):
            # The variables of JAX programs go first, because those are meant most often.
            near = (difflib.get_close_matches(name, OF_JAX, n=1, cutoff=0.8)
                    or difflib.get_close_matches(name, KNOWN, n=1, cutoff=0.8))
            found.append((name, near[0] if near else None))
    return found


def warn_of_unknown(names: Iterable[str]) -> None:
    """Says on stderr which of the names are misspelt."""
    for name, near in unknown(names):
        hint = f"did you mean {near}?" if near else "docs/jax.md lists those that JAX programs read"
        print(f"tessera_jax: {name} is not a variable of Tessera; {hint}", file=sys.stderr, flush=True)


def markdown() -> str:
    """Returns OF_JAX as the table of docs/jax.md."""
    rows = ["| variable | what it does | values | default |", "|---|---|---|---|"]
    rows += [f"| `{name}` | {what} | {values} | {default} |" for name, (what, values, default) in OF_JAX.items()]
    return "\n".join(rows) + "\n"
