"""Tests `tessera init`, `up` and `join` as an operator uses them."""
import base64
import json
import os
import pathlib
import select
import shutil
import signal
import stat
import subprocess
import tempfile
import unittest

import daemons
import grpc
import json_client
import secure_cluster
import stopwatch

CLUSTER = "tessera.v1.ClusterService"
PATIENCE = 60


class Command:
    """A `tessera` command in the foreground that prints one JSON document as soon as it serves."""

    def __init__(self, *args, flags=("--json",)):
        env = {k: v for k, v in os.environ.items() if not k.startswith("TESSERA_")}
        env["TESSERA_METRICS_LISTEN"] = "off"
        command = daemons.dying_with_us([daemons.bin_dir() / "tessera", *flags, *args])
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                        env=env)
        self.said = b""

    def document(self):
        """Returns the JSON document that the command prints. Raises AssertionError with its errors if it ends
        instead."""
        fd = self.process.stdout.fileno()
        while True:
            try:
                return json.loads(self.said)
            except ValueError:
                pass
            ready, _, _ = select.select([fd], [], [], PATIENCE)
            more = os.read(fd, 65536) if ready else b""
            if not more:
                raise AssertionError(f"it says {self.said!r} and {self.errors()}")
            self.said += more

    def error_line(self):
        """Returns the next line of the command's standard error."""
        fd = self.process.stderr.fileno()
        line = b""
        while not line.endswith(b"\n"):
            ready, _, _ = select.select([fd], [], [], PATIENCE)
            more = os.read(fd, 1) if ready else b""
            if not more:
                raise AssertionError(f"no line; {line!r}")
            line += more
        return line.decode().rstrip()

    def errors(self):
        self.process.kill()
        return self.process.communicate()[1].decode()

    def children(self):
        pid = self.process.pid
        return [int(c) for c in pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]

    def end(self, number=signal.SIGTERM):
        """Sends the signal and returns the exit status."""
        self.process.send_signal(number)
        try:
            return self.process.wait(30)
        finally:
            self.close()

    def close(self):
        self.process.kill()
        self.process.communicate()


def mode(path):
    return stat.S_IMODE(os.stat(path).st_mode)


class UpTest(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="tessera-up-"))
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)

    def tearDown(self):
        result = self._outcome.result
        if not any(test is self for test, _ in result.failures + result.errors):
            return
        for log in sorted(self.folder.rglob("*.log")):
            print(f"---- {log.relative_to(self.folder)}\n{log.read_text(errors='replace')}")

    def up(self, *args):
        command = Command("up", f"--dir={self.folder}/state", "--listen=127.0.0.1:0",
                          "--name=here", "--devices=2", *args)
        self.addCleanup(command.close)
        return command

    def join(self, address, *args, name="there"):
        command = Command("join", address, f"--dir={self.folder}/{name}", f"--name={name}",
                          "--devices=1", "--data-listen=127.0.0.1:0", "--peer-listen=127.0.0.1:0",
                          *args)
        self.addCleanup(command.close)
        return command

    def client(self, document, token=True):
        ca = pathlib.Path(document["caFile"]).read_bytes()
        text = pathlib.Path(document["tokenFile"]).read_text().strip()
        metadata = [("authorization", f"Bearer {text}")] if token else []
        return json_client.Client(document["address"],
                                  grpc.ssl_channel_credentials(ca), metadata)

    def healthy(self, client):
        devices = client.call(f"{CLUSTER}/ListDevices").get("devices", [])
        return sorted(d["worker"] for d in devices if d.get("healthy"))

    def test_one_machine_comes_up_and_another_joins(self):
        up = self.up()
        said = up.document()
        state = self.folder / "state"
        for name in ("ca/ca.key", "coordinator/key.pem", "coordinator/tokens", "client/token",
                     "here/key.pem"):
            self.assertEqual(mode(state / name), 0o600, name)
        self.assertEqual(mode(state), 0o700)
        with self.client(said, token=False) as stranger:
            with self.assertRaises(json_client.Error) as raised:
                stranger.call(f"{CLUSTER}/ListDevices")
            self.assertEqual(raised.exception.reason, "TOKEN_MISSING")
        with self.client(said) as client:
            daemons.eventually(lambda: self.healthy(client) == ["here", "here"], PATIENCE,
                               "the first worker's devices")
            address, token = said["joinCommand"].split()[2], said["joinCommand"].split()[4]
            self.assertTrue(token.startswith("tsj_"))
            joined = self.join(address, f"--token={token}")
            self.assertEqual(joined.document()["worker"], "there")
            daemons.eventually(lambda: self.healthy(client) == ["here", "here", "there"], PATIENCE,
                               "the joined worker's device")
            self.assertEqual(mode(self.folder / "there/there/key.pem"), 0o600)
            # The program runs across both machines.
            answer = client.call("tessera.v1.ProgramService/RunProgram", {
                "text": "mesh (x=3)\nfunc main(%a: f32[3] P('x')) -> (f32[3]) {\n"
                        "  %b = add(%a, %a)\n  return %b\n}\n", "inputs": [[1, 2, 3]]})
            self.assertEqual(answer["outputs"], [[2, 4, 6]])
            # The second time the worker needs no token, because it has its certificate.
            self.assertEqual(joined.end(), 0)
            again = self.join(address)
            daemons.eventually(lambda: self.healthy(client).count("there") == 1, PATIENCE,
                               "the worker is back")
            self.assertEqual(again.end(signal.SIGINT), 0)
        children = up.children()
        self.assertEqual(len(children), 2)
        self.assertEqual(up.end(), 0)
        for pid in children:
            self.assertFalse(os.path.exists(f"/proc/{pid}"), "a daemon is left")

    def test_several_workers_come_up_on_one_machine(self):
        up = self.up("--workers=2")
        said = up.document()
        both = ["here-0", "here-0", "here-1", "here-1"]
        with self.client(said) as client:
            # `up` waits for both workers before it prints the document, so all devices are healthy
            # now.
            self.assertEqual(self.healthy(client), both)
            answer = client.call("tessera.v1.ProgramService/RunProgram", {
                "text": "mesh (x=4)\nfunc main(%a: f32[4] P('x')) -> (f32[]) {\n"
                        "  %b = reduce_sum(%a) {dimensions=[0]}\n  return %b\n}\n",
                "inputs": [[1, 2, 3, 4]]})
            self.assertEqual(answer["outputs"], [10])
            coordinator, first, second = up.children()
            os.kill(second, signal.SIGKILL)
            up.error_line()  # `up` reports the loss; the other worker goes on
            daemons.eventually(lambda: second not in up.children() and len(up.children()) == 3,
                               PATIENCE, "another process in its place")
            daemons.eventually(lambda: self.healthy(client) == both, PATIENCE, "its devices")
            self.assertEqual(up.children()[:2], [coordinator, first])
        children = up.children()
        for log in ("worker-0.log", "worker-1.log"):
            self.assertTrue((self.folder / "state" / log).exists(), log)
        self.assertEqual(up.end(), 0)
        for pid in children:
            self.assertFalse(os.path.exists(f"/proc/{pid}"), "a daemon is left")

    def test_numbers_of_workers_that_cannot_be_are_refused(self):
        for flags, says in ((["--workers=0"], "expected 1 to 64, or --no-worker for none"),
                            (["--workers=65"], "expected 1 to 64"),
                            (["--workers=2", "--no-worker"], "exclude each other")):
            with self.subTest(flags=flags):
                up = self.up(*flags)
                output, errors = up.process.communicate(timeout=PATIENCE)
                self.assertEqual(up.process.returncode, 2)
                self.assertIn(says, (output + errors).decode())

    def test_who_joins_checks_whom_and_is_checked(self):
        up = self.up("--no-worker")
        said = up.document()
        address, token = said["joinCommand"].split()[2], said["joinCommand"].split()[4]
        kind, identity, secret, print_ = token.split("_")
        other = "0" if print_[0] != "0" else "1"
        cases = {
            f"{kind}_{identity}_{secret}_{other}{print_[1:]}": "another fingerprint",
            f"{kind}_{identity}_{secret[::-1]}_{print_}": "TOKEN_UNKNOWN",
            f"{kind}_{identity}_{print_}": "does not have the form",
            "tsr_" + identity + "_" + secret: "--ca-file",
        }
        for bad, says in cases.items():
            with self.subTest(says=says):
                command = self.join(address, f"--token={bad}", "--no-start", name="bad")
                _, errors = command.process.communicate(timeout=PATIENCE)
                self.assertNotEqual(command.process.returncode, 0)
                self.assertIn(says, errors.decode() + command.said.decode())
                self.assertFalse((self.folder / "bad/bad/key.pem").exists())
        admin = pathlib.Path(said["tokenFile"]).read_text().strip()
        command = Command(f"--ca-file={said['caFile']}", "join", address, f"--token={admin}",
                          f"--dir={self.folder}/x", "--name=x", "--no-start")
        _, errors = command.process.communicate(timeout=PATIENCE)
        self.assertIn("ROLE_MISSING", errors.decode())

    def test_the_same_folder_is_the_same_cluster(self):
        first = self.up("--no-worker")
        said = first.document()
        ca, token = (pathlib.Path(said[k]).read_text() for k in ("caFile", "tokenFile"))
        second = self.up("--no-worker")
        _, errors = second.process.communicate(timeout=PATIENCE)
        self.assertNotEqual(second.process.returncode, 0)
        self.assertIn("another tessera runs from this folder", errors.decode())
        self.assertEqual(first.end(), 0)
        again = self.up("--no-worker")
        said = again.document()
        self.assertEqual(pathlib.Path(said["caFile"]).read_text(), ca)
        self.assertEqual(pathlib.Path(said["tokenFile"]).read_text(), token)
        with self.client(said) as client:
            self.assertEqual(self.healthy(client), [])
        self.assertEqual(again.end(), 0)

    def test_daemons_that_end_are_started_again(self):
        up = self.up()
        said = up.document()
        coordinator, worker = up.children()
        address, token = said["joinCommand"].split()[2], said["joinCommand"].split()[4]
        joined = self.join(address, f"--token={token}")
        joined.document()
        all_three = ["here", "here", "there"]
        for command, victim in ((up, worker), (joined, joined.children()[0]), (up, coordinator)):
            def told_to_clients():
                try:
                    with self.client(said) as client:
                        return self.healthy(client) == all_three
                except json_client.Error:
                    return False  # the coordinator is not back yet
            daemons.eventually(told_to_clients, PATIENCE, "every device")
            os.kill(victim, signal.SIGKILL)
            self.assertRegex(command.error_line(),
                             r"^tessera-\w+ was killed by signal 9; it starts again in 1s$")
            daemons.eventually(lambda: victim not in command.children()
                               and len(command.children()) == (2 if command is up else 1),
                               PATIENCE, "another process in its place")
        daemons.eventually(told_to_clients, PATIENCE, "every device is back")
        left = up.children() + joined.children()
        self.assertEqual([joined.end(), up.end(signal.SIGINT)], [0, 0])
        for pid in left:
            self.assertFalse(os.path.exists(f"/proc/{pid}"), "a daemon is left")

    def test_what_no_start_mends_is_said_and_ends_it(self):
        up = self.up("--no-worker")
        said = up.document()
        address, token = said["joinCommand"].split()[2], said["joinCommand"].split()[4]
        joined = self.join(address, f"--token={token}", f"--files-dir={self.folder}/nowhere")
        self.assertNotEqual(joined.process.wait(PATIENCE), 0)
        self.assertIn("nowhere: it does not open", joined.errors())

    def test_only_who_is_taken_says_that_it_works(self):
        up = self.up("--no-worker")
        said = up.document()
        address, token = said["joinCommand"].split()[2], said["joinCommand"].split()[4]
        joined = self.join(address, f"--token={token}")
        joined.document()
        with self.client(said) as client:
            self.assertEqual(self.healthy(client), ["there"], "taken before it was said")
        # Start other workers with the same certificate. They are refused when their daemons
        # register.
        others = {}
        for flags in ((), ("--json",)):
            folder = self.folder / f"other{len(others)}"
            shutil.copytree(self.folder / "there", folder)
            others[flags] = Command("join", address, f"--dir={folder}", "--name=there",
                                    "--devices=1", "--data-listen=127.0.0.1:0",
                                    "--peer-listen=127.0.0.1:0", flags=flags)
            self.addCleanup(others[flags].close)
        for flags, other in others.items():
            output, errors = (b.decode() for b in other.process.communicate(timeout=PATIENCE))
            self.assertEqual(other.process.returncode, 1)
            self.assertNotIn("works for", output + errors)
            if flags:
                self.assertNotIn("folder", json.loads(output), "what it prints once it is taken")
            else:
                self.assertIn(f"'there' asks the coordinator at {address} to accept it as a worker", errors)

    def test_arrays_are_saved(self):
        up = self.up()
        said = up.document()
        address, token = said["joinCommand"].split()[2], said["joinCommand"].split()[4]
        near = {"mesh": {"axes": [{"name": "x", "size": "2"}]}, "spec": {"dims": [{"axes": ["x"]}]},
                "devices": ["0", "1"]}
        arrays = "tessera.v1.ArrayService/"
        with self.client(said) as client:
            def array(placement):
                return client.call(arrays + "WriteArray", {
                    "spec": {"dtype": "f32", "shape": ["2"], "placement": placement},
                    "data": base64.b64encode(bytes(8)).decode()})["array"]

            def save(path, placement):
                return client.call(arrays + "SaveArrays", {
                    "path": path, "arrays": [{"array": array(placement)}]})

            daemons.eventually(lambda: len(self.healthy(client)) == 2, PATIENCE, "devices")
            done = client.call("tessera.v1.OperationService/WaitOperation", {
                "operation": save("a.npy", near)["id"], "timeout": "30s"})
            self.assertEqual(done["state"], "OPERATION_STATE_DONE", done)
            self.assertTrue(list((self.folder / "state/files").rglob("a.npy")))
            # The two machines share no folder, so the save is refused at once.
            far = {**near, "devices": ["1", "2"]}
            cases = {"there has no folder of files": (), "different folders": ("own",)}
            for number, (says, folders) in enumerate(cases.items()):
                flags = []
                for name in folders:
                    (self.folder / name).mkdir()
                    flags.append(f"--files-dir={self.folder / name}")
                joined = self.join(address, *([] if number else [f"--token={token}"]), *flags)
                daemons.eventually(lambda: len(self.healthy(client)) == 3, PATIENCE, "three devices")
                watch = stopwatch.Stopwatch()
                with self.assertRaises(json_client.Error) as raised:
                    save("b.npy", far)
                self.assertLess(watch.unhindered(), 2)
                self.assertEqual(raised.exception.reason, "FILES_DISABLED")
                self.assertIn(says, raised.exception.message)
                self.assertIn("--files-dir", raised.exception.message)
                self.assertEqual(joined.end(), 0)
                daemons.eventually(lambda: len(self.healthy(client)) == 2, PATIENCE, "it is gone")

    def test_what_cannot_start_says_why(self):
        up = Command("up", f"--dir={self.folder}/state", "--listen=127.0.0.1:70000", "--no-worker")
        _, errors = up.process.communicate(timeout=PATIENCE)
        self.assertNotEqual(up.process.returncode, 0)
        self.assertIn("is not HOST:PORT", errors.decode())

    def test_init_keeps_what_is_good(self):
        state = self.folder / "init"
        run = lambda *args: secure_cluster.run_tessera("init", f"--dir={state}", *args)
        run("--coordinator=a.example,10.0.0.1", "--worker=w0")

        def files():
            return {str(p.relative_to(state)): p.read_bytes() for p in state.rglob("*")
                    if p.is_file()}
        before = files()
        run("--coordinator=a.example", "--worker=w0", "--worker=w1")
        after = files()
        self.assertEqual({k: v for k, v in after.items() if not k.startswith("w1/")}, before)
        self.assertEqual({k for k in after if k.startswith("w1/")},
                         {"w1/ca.pem", "w1/cert.pem", "w1/key.pem"})
        token = before["client/token"].decode().strip()
        self.assertNotIn(token.split("_")[2], before["coordinator/tokens"].decode())
        # A name that the certificate lacks leads to a new certificate. The authority stays the
        # same.
        run("--coordinator=b.example")
        self.assertNotEqual(files()["coordinator/cert.pem"], before["coordinator/cert.pem"])
        self.assertEqual(files()["ca/ca.pem"], before["ca/ca.pem"])
        for bad in ("../x", "coordinator", ""):
            with self.assertRaisesRegex(AssertionError, "worker"):
                run(f"--worker={bad}")


if __name__ == "__main__":
    unittest.main(verbosity=2)
