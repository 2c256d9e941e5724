#!/usr/bin/env python3
"""Breaks rules of the scheduler one at a time and says whether the simulation notices.

  scripts/sim_mutations.py [build/mutations] [--only PATTERN] [--seeds 24] [--jobs N] [--list]

A mutation replaces a piece of a file of server/scheduler or base. Some mutations take back the repair of an earlier
fault. The changed file is compiled in a folder of its own and linked into tessera-sim, which runs a few seeds, and more
seeds if these notice nothing. A mutation is noticed if a promise is broken, a check fails or a run does not end, unless
the unchanged program fails in the same way. The script builds tessera-sim, but otherwise touches neither the tree nor
the build.

The exit status is 1 if the repair of a fault can be taken back unnoticed, or if more than one in ten of the other
mutations goes unnoticed. It is 2 if a piece is not in its file exactly once (--list checks this).
"""
import argparse
import concurrent.futures
import fnmatch
import os
import pathlib
import re
import subprocess
import sys
import tempfile

from mutate_rules import ROOT, Build

LIBRARIES = {"base": "tessera_base", "server/scheduler": "tessera_server_scheduler"}
FIRST_SEEDS = 4
SECONDS_MAX = 300  # time limit of a run; the unchanged program needs about one second for a seed

# Repairs of earlier faults: a name, a file, a piece of the file, and the piece that replaces it.
REPAIRS = [
    # Without this, leases go on while the coordinator is paused.
    ("paused-coordinator-clock", "base/clock.cc",
     "std::clamp<int64_t>(steady - last_steady_, 0, kMaxStepNanos);",
     "std::max<int64_t>(steady - last_steady_, 0);"),
    # Without this, the coordinator serves its timers after a pause before the heartbeats that waited.
    ("paused-coordinator-queue", "loop.cc", "events_before_timer_ = events_.size();",
     "events_before_timer_ = 0;"),
    # Without this, ids begin again after a restart.
    ("ids-after-restart", "step.cc", "state.ownership.Begin(config.life.first_id);",
     "state.ownership.Begin(0);"),
    # A launch that consumes its arguments is sent only when its operation is durable.
    ("donation-before-durable", "loop.cc",
     "const bool waits = (consumes || command.when_durable) && last_commit > durable_commit;",
     "const bool waits = command.when_durable && last_commit > durable_commit;"),
    # A save too is sent only when its operation is durable. Otherwise a repeated call would find the file there
    # already.
    ("save-before-durable", "save.cc",
     "Send(cluster_.executor(name), save, /*when_durable=*/true);",
     "Send(cluster_.executor(name), save);"),
    # An array that another executor reads is not donated.
    ("donation-of-what-is-read", "run.cc", " && !HasPeerReaders(a)", ""),
    # An array that was donated to a run that never began is usable again.
    ("donation-given-back", "operations.cc", "if (op.outstanding.empty()) SettleDonated(op);", ""),
    # An array is usable again too if the run would have read a copy of it.
    ("original-given-back", "arrays.cc", "if (IsKeptOriginal(id, a)) return;", ""),
    # A repeated call with the same request id makes nothing new.
    ("request-log", "repeated_calls.cc", "return request_id.empty() ? nullptr",
     "return !request_id.empty() ? nullptr"),
    # A repeated call makes nothing new after a restart either.
    ("request-log-after-restart", "restore.cc", "s_.answers.Restore(key->id, std::move(restored));",
     ""),
    # An array of which living executors hold every shard is not lost with another executor.
    ("replicas-are-kept", "holders.cc",
     "return missing.empty() ? absl::OkStatus() : errors.Of(a, missing, devices);",
     "return errors.Of(a, missing, devices);"),
    # A run gets copies of the shards that its devices have lost.
    ("lost-arguments-copied", "operations.cc",
     'if (program != nullptr && !HasArguments(*op.run(), op, /*executor=*/""))\n    return CopyLostArguments(op);',
     ""),
]

# Other rules, in the same form.
RULES = [
    ("old-incarnation", "workers.cc",
     "if (x == nullptr || !x->alive() || x->info.incarnation != e.report.incarnation) return;",
     "if (x == nullptr || !x->alive()) return;"),
    ("end-not-kept", "operations.cc", "op.ended_at = now_;\n  MarkChanged(op);", "op.ended_at = now_;"),
    ("failure-not-passed-on", "arrays.cc", "for (uint64_t op : IdSet(a.readers)) Fail(op, reported);",
     ""),
    ("deleted-while-read", "arrays.cc", "if (HasPeerReaders(a)) return;", ""),
    ("loss-of-arrays", "workers.cc", "if (!a.error.ok() || !IsHeldBy(a, x)) continue;", "continue;"),
    ("start-before-arguments", "operations.cc",
     "if (a.state != ArrayState::kReady && a.state != ArrayState::kScheduled) return;", ""),
    ("lease-after-restart", "restore.cc",
     "session.lease_until = now_ + std::max(session.lease, s_.config.outage_grace);",
     "session.lease_until = now_;"),
    ("inventory-not-compared", "restore.cc", "if (a.state == ArrayState::kReady || (scheduled",
     "if ((scheduled"),
    ("answer-before-durable", "loop.cc", "if (last_commit <= durable_commit_ || DependsOnNoCommit(reply))",
     "if (true)"),
    ("communicator-kept", "operations.cc", "if (op.generation != 0) order_.Retire(op.generation);",
     ""),
    ("lease-not-renewed", "sessions.cc",
     "if (access == Access::kChange) it->lease_until = now_ + it->lease;", ""),
    ("arrays-of-ended-session", "sessions.cc", "for (uint64_t array : arrays) Delete(array);", ""),
    ("peers-not-stopped", "operations.cc",
     "if (x.alive() && x.info.incarnation == incarnation) Send(x, api::CancelLaunch{id, stop_error});",
     ""),
    ("others-arrays", "arrays.cc",
     "if (it != nullptr && !it->deleted && Allowed(caller, it->tenant, access)) return it;",
     "if (it != nullptr && !it->deleted) return it;"),
    ("readers-not-left", "operations.cc", "      it->readers.erase(id);\n", ""),
    ("lingering-not-killed", "operations.cc",
     "if (!is_next || op.started_in_commit > s_.durable_commit) op.executors_behind.insert(name);\n    }\n"
     "    RestartKillTimer(op);",
     "if (!is_next || op.started_in_commit > s_.durable_commit) op.executors_behind.insert(name);\n    }"),
    ("run-without-deadline", "operations.cc", "  StartRunDeadline(op);\n  // Operations",
     "  // Operations"),
    ("deadline-not-armed", "operations.cc",
     "  Arm(op.deadline, kDeadlineTimer, id);\n  MarkChanged(op);", "  MarkChanged(op);"),
    ("verdict-never-reached", "operations.cc", "      Arm(op.verdict_until, kVerdictTimer, launch);\n",
     ""),
    ("starts-where-drained", "operations.cc",
     "      order_.Hold(id);\n      Unblock(op);\n      return;", "      break;"),
    ("donated-though-read-later", "run.cc", "!IsReadLater(s_, op, a) && ", ""),
    ("donation-not-recorded", "run.cc", "catalogue_.array(e.body.args[i]).donated_to = id;", ";"),
    ("upload-never-ready", "arrays.cc", "if (it->unwritten.empty()) {", "if (false) {"),
    ("ready-not-kept", "arrays.cc", "a.state = ArrayState::kReady;\n  MarkChanged(id, a);",
     "a.state = ArrayState::kReady;"),
    ("waits-for-what-is-deleted", "arrays.cc", "if (!it->waiters.empty())\n", "if (false)\n"),
    ("lease-ends-early", "sessions.cc",
     "if (it->lease_until > now_) return Arm(it->lease_until, kSessionTimer, key);", ""),
    ("program-not-kept", "uploaded_programs.cc",
     "s_.uploads.Keep(key);\n    MarkChanged(core::RowKind::kProgram, NameInRow(key));",
     "s_.uploads.Keep(key);"),
    ("workers-lease-ends-early", "workers.cc",
     "if (ends > now_) return Arm(ends, kLeaseTimer, registration_id);", ""),
    ("blocked-not-retried", "workers.cc",
     "for (uint64_t op : IdSet(order_.blocked())) TryStart(op);", ""),
    ("reads-not-sent-again", "workers.cc",
     "for (const auto& [request, array] : reads) TrySendRead(request, catalogue_.array(array));", ""),
    ("away-for-ever", "restore.cc",
     "if (away.empty()) return;\n  AnswerFailFastWaits();\n  Arm(until, kAwayTimer, registration_id);",
     "if (away.empty()) return;\n  AnswerFailFastWaits();"),
    ("connection-is-death", "workers.cc", "BeginAway(worker, e.why.ok()", "LoseWorker(worker, e.why.ok()"),
    ("grace-goes-on-in-a-pause", "step.cc", "if (WasPaused(state)) machine.RestartGrace();", ""),
    ("farewell-not-heard", "workers.cc", "(!x->alive() && !x->away) || x->info.incarnation != incarnation",
     "!x->alive() || x->info.incarnation != incarnation"),
    ("loaded-where-away", "restore.cc",
     "for (uint64_t op : catalogue_.MarkUnloaded(name)) TryStart(op);", ""),
    ("not-sent-again", "restore.cc", "    Resend(id, x.name);\n", ""),
    ("gang-not-completed", "restore.cc", "if (!op.ended()) Resend(op.id, name);", "{}"),
    ("replica-not-read", "holders.cc", "if (presence[best[first[k]]] > presence[k]) k = best[first[k]];",
     "k += 0;"),
    ("reads-stay-where-lost", "workers.cc", "for (uint64_t id : kept) UseOtherHolders(id, name);", ""),
    ("orphans-kept", "restore.cc",
     "if (!unknown.empty()) Send(x, api::DeleteBuffers{",
     "if (false) Send(x, api::DeleteBuffers{"),
]


class Mutation:
    """A changed file, which Build compiles."""

    def __init__(self, name, file, was, now):
        self.name, self.was = name, was
        self.path = ROOT / (file if "/" in file else f"server/scheduler/{file}")
        text = self.path.read_text()
        self.fits = text.count(was) == 1
        self.text = text.replace(was, now)

    def __str__(self):
        return f"{self.name} ({self.path.name})"


class SimBuild(Build):
    def object_of(self, path):
        folder = str(path.parent.relative_to(ROOT))
        return f"{folder}/CMakeFiles/{LIBRARIES[folder]}.dir/{path.name}.o"


def kind_of(violation):
    return re.sub(r"\d+", "#", violation)


def run(binary, first, seeds):
    """Runs seeds. Returns the messages of the seeds that fail, by kind. If the run stops or does not end, all its seeds
    have that message."""
    command = [binary, "--first", str(first), "--seeds", str(seeds), "--no-shrink"]
    try:
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              timeout=SECONDS_MAX, text=True, errors="replace")
    except subprocess.TimeoutExpired:
        return {"a run does not end": ["a run does not end"] * seeds}
    said = {}
    for violation in re.findall(r"^seed \d+ fails: (.*)", done.stdout, re.M):
        said.setdefault(kind_of(violation), []).append(violation)
    if done.returncode != 0 and not said:
        check = re.search(r"^.*check.*failed.*$", done.stdout, re.M | re.I)
        text = f"the process stops: {check.group().strip() if check else done.returncode}"
        said[kind_of(text)] = [text] * seeds
    return said


def noticed(said, seeds, known, known_seeds):
    """Returns the first violation that distinguishes the changed program from the unchanged one, and how often it
    occurs.

    Every mutation changes the course of each seed. So a violation that the unchanged program has in some of its seeds
    proves nothing, unless it is ten times as frequent and occurs in at least three seeds."""
    for kind, violations in sorted(said.items(), key=lambda item: -len(item[1])):
        before = len(known.get(kind, []))
        often = len(violations) >= 3 and len(violations) * known_seeds >= 10 * before * seeds
        if before == 0 or often:
            return f"{len(violations)} of {seeds} seeds: {violations[0]}"
    return None


def verdict_on(build, mutation, seeds, known, known_seeds):
    """Returns the violation that the mutation causes, or None if the seeds run as before."""
    with tempfile.TemporaryDirectory(prefix="sim_mutations.") as folder:
        return verdict_in(pathlib.Path(folder), build, mutation, seeds, known, known_seeds)


def verdict_in(scratch, build, mutation, seeds, known, known_seeds):
    error = build.compile(mutation, scratch)
    if error is not None:
        raise RuntimeError(f"{mutation} does not compile: {error}")
    binary = build.link("tessera_sim_binary", scratch)[0]
    first = min(FIRST_SEEDS, seeds)
    said = run(binary, 1, first)
    verdict = noticed(said, first, known, known_seeds)
    if verdict or seeds == first:
        return verdict
    for kind, violations in run(binary, first + 1, seeds - first).items():
        said.setdefault(kind, []).extend(violations)
    return noticed(said, seeds, known, known_seeds)


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("build", nargs="?", default="build/mutations")
    parser.add_argument("--only", default="*", help="names of mutations, as patterns separated by commas")
    parser.add_argument("--seeds", type=int, default=24, help="largest number of seeds for each mutation")
    parser.add_argument("--unchanged", type=int, default=144,
                        help="number of seeds of the unchanged program; a promise that it breaks does not count as "
                             "noticed")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="how many mutations are tried at once")
    parser.add_argument("--list", action="store_true", help="only check that each mutation fits its file")
    args = parser.parse_args()
    chosen = [Mutation(*row) for row in REPAIRS + RULES
              if any(fnmatch.fnmatch(row[0], name) for name in args.only.split(","))]
    if not chosen:
        sys.exit("no mutation has this name")
    misfits = [m for m in chosen if not m.fits]
    for m in misfits:
        print(f"{m}: this piece is not in its file exactly once: {m.was}")
    if misfits:
        sys.exit(2)
    if args.list:
        print("\n".join(map(str, chosen)))
        return
    build = SimBuild((ROOT / args.build).resolve())
    subprocess.run(["ninja", "tessera_sim_binary"], cwd=build.folder, check=True,
                   stdout=subprocess.DEVNULL)
    known_seeds = args.unchanged
    known = run(build.folder / "bin/tessera-sim", 1, known_seeds)
    for kind, violations in known.items():
        print(f"the unchanged program, {len(violations)} of {known_seeds} seeds: {violations[0]}",
              flush=True)
    unnoticed = []
    with concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
        verdicts = pool.map(lambda m: verdict_on(build, m, args.seeds, known, known_seeds), chosen)
        for m, verdict in zip(chosen, verdicts):
            if verdict is None:
                unnoticed.append(m.name)
            print(f"{m}\n    {verdict or 'UNNOTICED'}", flush=True)
    repairs = {row[0] for row in REPAIRS}
    rules = [m for m in chosen if m.name not in repairs]
    lost = [name for name in unnoticed if name in repairs]
    missed = len(unnoticed) - len(lost)
    print(f"{len(chosen) - len(rules) - len(lost)} of {len(chosen) - len(rules)} repairs and "
          f"{len(rules) - missed} of {len(rules)} other rules are guarded")
    sys.exit(1 if lost or 10 * missed > len(rules) else 0)


if __name__ == "__main__":
    main()
