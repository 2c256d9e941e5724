"""Faults that a new user meets in the first hour: programs that end, files, and workers that
die."""
import contextlib
import json
import os
import pathlib
import re
import signal
import subprocess

import daemons
import json_client
from promised_faults.harness import (API, FOUR, SUM, Fault, Program, Skip, Watch, devices, error_of,
                                     live_operations, read, run, sessions_of, write)


class ProgramsEnd(Fault):
    number, name = "16", "a program of the SDK ends"
    KEEPALIVE, GRACE = 1, 5

    def start(self):
        if not (daemons.bin_dir() / "promises_client").exists():
            raise Skip(f"{daemons.bin_dir()}/promises_client is not built")
        self.running, self.caller = self.cluster(coordinator_flags=[
            f"--keepalive-ms={1000 * self.KEEPALIVE}",
            f"--keepalive-timeout-ms={1000 * self.KEEPALIVE}",
            f"--session-grace-ms={1000 * self.GRACE}"])

    def round(self, result):
        # The device has 64 MiB. If the first program left its array behind, the second would have
        # no room.
        for turn in ("first", "second"):
            program = Program(self.running, "promises_client", "hold", 40)
            with contextlib.closing(program):
                program.await_text("ready")
                status = program.wait()
                watch = Watch()
                result.holds(f"the {turn} of two programs works", status == 0, program.complaint())
                result.took(f"the session of the {turn} is gone", 1,
                            watch.until(lambda: not sessions_of(self.caller, program.pid)))
        for number, bound in ((signal.SIGINT, 2), (signal.SIGTERM, 2),
                              (signal.SIGKILL, self.GRACE + 2 * self.KEEPALIVE + 1)):
            self.killed(result, number, bound)

    def killed(self, result, number, bound):
        name = signal.Signals(number).name
        with contextlib.closing(Program(self.running, "promises_client", "queue", 4)) as program:
            program.await_text("ready")
            (session,) = sessions_of(self.caller, program.pid)
            daemons.eventually(lambda: live_operations(self.caller, session), what="a run")
            watch = Watch()
            program.process.send_signal(number)

            def ended():
                if session not in sessions_of(self.caller, program.pid):
                    return True
                return number == signal.SIGKILL and not live_operations(self.caller, session)
            what = "its runs end" if number == signal.SIGKILL else "its session is gone"
            result.took(f"{name}: {what}", bound, watch.until(ended, 20))
        # The killed program may not hold any device any more.
        watch = Watch()
        failure = error_of(lambda: run(self.caller, SUM, [1, 2, 3, 4]))
        result.took(f"after {name}: another's run", 2, None if failure else watch.seconds())


class Files(Fault):
    number, name = "17", "saving and loading"

    def start(self):
        self.files = self.folder()
        self.running, self.caller = self.cluster(worker_flags=[f"--files-dir={self.files}"])
        self.small = self.folder()
        mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", self.small],
                                 capture_output=True, text=True, check=False)
        self.full = None
        if mounted.returncode == 0:
            self._stack.callback(subprocess.run, ["umount", "-l", self.small], check=False)
            self.full = self.cluster(worker_flags=[f"--files-dir={self.small}"])
        self.apart = self.cluster(workers=0)
        for worker in (0, 1):
            self.apart[0]._worker_flags = [f"--files-dir={self.folder()}"]
            self.apart[0].start_worker(worker)
        self.apart[0].await_devices(4)
        self.serial = 0

    def operation(self, client, operation):
        return client.call(API + "OperationService/WaitOperation",
                           {"operation": operation["id"], "timeout": "60s"})

    def save(self, client, array, path):
        """Saves an array. Returns the ended operation, or one made from the error of the call."""
        request = {"path": path, "arrays": [{"name": "a", "array": array}]}
        try:
            return self.operation(client, client.call(API + "ArrayService/SaveArrays", request))
        except json_client.Error as error:
            return {"state": "OPERATION_STATE_FAILED",
                    "error": {"message": error.message, "details": error.details}}

    def load(self, client, path):
        answer = client.call(API + "ArrayService/LoadArrays", {
            "path": path, "arrays": [{"name": "a", "placement": FOUR}]})
        self.operation(client, answer["operation"])
        return read(client, answer["arrays"][0]["id"])

    def round(self, result):
        self.serial += 1
        values = [float(i * self.serial) for i in range(16)]
        path = f"promises/{self.serial}.safetensors"
        saved = self.save(self.caller, write(self.caller, values), path)
        result.holds("what was saved is loaded",
                     saved["state"] == "OPERATION_STATE_DONE"
                     and self.load(self.caller, path) == values, str(saved))
        if self.full:
            self.no_space(result)
        self.not_shared(result, values)
        self.resume(result)

    def resume(self, result):
        """Checks that mlp_digits goes on from its last checkpoint after it was killed."""
        args = ["--mesh", "data=2,model=2", "--no-explain", "--checkpoint",
                f"promises/mlp-{self.serial}.safetensors", "--epochs", "8"]
        with contextlib.closing(Program(self.running, "mlp_digits", *args)) as first:
            first.await_text(r"epoch +3/")
            first.process.kill()
            first.process.wait()
            while first.more(5):
                pass
            reached = max(map(int, re.findall(r"epoch +(\d+)/", first.said)))
        with contextlib.closing(Program(self.running, "mlp_digits", *args)) as second:
            status = second.wait()
            epochs = [int(e) for e in re.findall(r"epoch +(\d+)/", second.said)]
            result.holds("mlp_digits resumes after kill -9",
                         status == 0 and epochs and 1 < epochs[0] <= reached + 1
                         and epochs[-1] == 8,
                         f"exit {status}, killed in epoch {reached + 1}, then {epochs}: "
                         f"{second.complaint()}")

    def no_space(self, result):
        _, client = self.full
        array = write(client, [1.0] * (1 << 18))  # 1 MiB
        ended = self.save(client, array, f"{self.serial}.safetensors")
        result.holds("a full disk is NO_SPACE",
                     ended["state"] == "OPERATION_STATE_FAILED"
                     and "NO_SPACE" in json.dumps(ended.get("error", {})), json.dumps(ended))
        client.call(API + "ArrayService/DeleteArrays", {"arrays": [array]})
        # The workers put a mark of their own into the folder, which does not count.
        left = [str(p) for p in self.small.rglob("[!.]*") if p.is_file()]
        result.none("files left by a save that failed", left)

    def not_shared(self, result, values):
        """Every worker has a folder of its own. The save must either work or be refused at once."""
        _, client = self.apart
        array = write(client, values)
        path = f"apart-{self.serial}.safetensors"
        watch = Watch()
        ended = self.save(client, array, path)
        result.took("without shared files: saved or refused", 5, watch.seconds())
        if ended["state"] == "OPERATION_STATE_DONE":
            back = []
            failure = error_of(lambda: back.extend(self.load(client, path)))
            result.holds("without shared files: what was saved is loaded", back == values,
                         str(failure))
        client.call(API + "ArrayService/DeleteArrays", {"arrays": [array]})


class WorkersDie(Fault):
    number, name = "19", "a worker dies under up and under join"
    # The first restart comes after a pause of one second.
    BACK = 5

    def bring_up(self):
        """Starts new processes. Each round needs new ones, because a daemon that ends repeatedly is
        restarted after longer pauses."""
        self.state = self.folder()
        self.up = self.own(Program(None, "tessera", "--json", "up", f"--dir={self.state}/up",
                                   "--listen=127.0.0.1:0", "--name=here", "--devices=2"))
        said = self.up.document()
        self.address, self.token = (said["joinCommand"].split()[k] for k in (2, 4))
        ca = pathlib.Path(said["caFile"]).read_bytes()
        bearer = pathlib.Path(said["tokenFile"]).read_text().strip()
        self.caller = json_client.Client(self.address,
                                         json_client.grpc.ssl_channel_credentials(ca),
                                         [("authorization", f"Bearer {bearer}")])
        self._stack.callback(self.caller.channel.close)
        self.joined = self.own(self.join("first"))
        self.joined.document()
        daemons.eventually(lambda: self.healthy() == ["here", "here", "there"], 30, "three devices")

    def join(self, folder, *args):
        return Program(None, "tessera", "--json", "join", self.address,
                       f"--token={self.token}", f"--dir={self.state}/{folder}", "--name=there",
                       "--devices=1", "--data-listen=127.0.0.1:0", "--peer-listen=127.0.0.1:0",
                       *args)

    def healthy(self):
        return sorted(d["worker"] for d in devices(self.caller) if d.get("healthy"))

    @staticmethod
    def worker_of(program):
        """Returns the process id of the worker's daemon."""
        for pid in program.children():
            args = pathlib.Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
            if args[0].endswith(b"tessera-worker"):
                return pid
        raise AssertionError("it has no worker")

    def round(self, result):
        self.bring_up()
        try:
            self.kill_and_join(result)
        finally:
            self._stack.close()

    def kill_and_join(self, result):
        everybody = ["here", "here", "there"]
        for how, program, name in (("up", self.up, "here"), ("join", self.joined, "there")):
            os.kill(self.worker_of(program), signal.SIGKILL)
            watch = Watch()
            result.took(f"{how}: the loss is seen", 2,
                        watch.until(lambda: name not in self.healthy()))
            result.took(f"{how}: the worker is back", self.BACK,
                        watch.until(lambda: self.healthy() == everybody))
            result.holds(f"{how}: it goes on", program.process.poll() is None, program.complaint())
        before = self.worker_of(self.joined)
        absences = []
        with contextlib.closing(self.join("second")) as second:
            watch = Watch()

            def ended():
                there = self.healthy()
                if there != everybody:
                    absences.append(f"after {watch.seconds():.1f} s only {there}")
                return second.process.poll() is not None
            result.took("a second join under a name ends", 10, watch.until(ended, 15))
            status = second.process.poll()
            result.holds("it fails and names the worker",
                         status not in (0, None) and "there" in second.complaint(),
                         f"exit {status}: {second.complaint()} {second.said}")
        result.none("the first one's absences", absences)
        result.holds("the first one's daemon is the same", self.worker_of(self.joined) == before)
