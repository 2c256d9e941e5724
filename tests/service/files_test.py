"""Tests that workers save arrays to and load them from files of NumPy and safetensors.

The package `safetensors` is used if it is installed. In any case the tests also parse its format
themselves.
"""
import base64
import json
import os
import pathlib
import signal
import struct
import tempfile
import threading
import time
import unittest

import numpy as np

import daemons
import json_client

try:
    import safetensors.numpy as safetensors
except ImportError:
    safetensors = None

ARRAYS = "tessera.v1.ArrayService/"
OPERATIONS = "tessera.v1.OperationService/"
ROWS = {"mesh": {"axes": [{"name": "x", "size": "4"}]}, "spec": {"dims": [{"axes": ["x"]}]},
        "devices": ["0", "1", "2", "3"]}
COLUMNS = {"mesh": {"axes": [{"name": "x", "size": "2"}]},
           "spec": {"dims": [{}, {"axes": ["x"]}]}, "devices": ["3", "1"]}
# This program returns SIZE elements, each equal to the argument.
FILL = """mesh (x=4)
func main(%a: f32[]) -> (f32[SIZE] P('x')) {
  %b = broadcast_in_dim(%a) {shape=[SIZE], broadcast_dimensions=[]}
  return %b
}
"""
ONE = {"mesh": {"axes": [{"name": "x", "size": "1"}]}, "spec": {}, "devices": ["2"]}


def read_safetensors(path):
    """Returns {name: (dtype, shape, bytes)} of a file, read only by the description of the
    format."""
    data = path.read_bytes()
    size = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8:8 + size])
    header.pop("__metadata__", None)
    body = data[8 + size:]
    assert sum(e["data_offsets"][1] - e["data_offsets"][0] for e in header.values()) == len(body)
    return {name: (e["dtype"], e["shape"], body[slice(*e["data_offsets"])])
            for name, e in header.items()}


class FilesTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory(prefix="tessera-files-")
        cls.files = pathlib.Path(cls.folder.name)
        cls.cluster = daemons.Cluster(worker_flags=[f"--files-dir={cls.files}"])
        cls.client = json_client.Client(cls.cluster.address)
        # Every tenant has a folder of its own. Without tokens there is one tenant, "default".
        cls.own = cls.files / "default"

    @classmethod
    def tearDownClass(cls):
        cls.client.__exit__(None, None, None)
        cls.cluster.close()
        cls.folder.cleanup()

    def write(self, dtype, values, placement):
        spec = {"dtype": dtype, "shape": [str(n) for n in values.shape], "placement": placement}
        answer = self.client.call(ARRAYS + "WriteArray", {
            "spec": spec, "data": base64.b64encode(values.tobytes()).decode()})
        return answer["array"]

    def read(self, array):
        answer = self.client.call(ARRAYS + "ReadArray", {"array": array, "timeout": "20s"})
        return answer["type"], base64.b64decode(answer["literal"].get("data", ""))

    def wait(self, operation):
        done = self.client.call(OPERATIONS + "WaitOperation",
                                {"operation": operation["id"], "timeout": "30s"})
        self.assertEqual(done["state"], "OPERATION_STATE_DONE", done)
        return done

    def save(self, path, named, **more):
        return self.wait(self.client.call(ARRAYS + "SaveArrays", {
            "path": path, "arrays": [{"name": n, "array": a} for n, a in named.items()], **more}))

    def load(self, path, placements):
        answer = self.client.call(ARRAYS + "LoadArrays", {
            "path": path,
            "arrays": [{"name": n, "placement": p} for n, p in placements.items()]})
        self.wait(answer["operation"])
        return [a["id"] for a in answer["arrays"]]

    def test_sharded_arrays_make_one_file_that_others_read(self):
        rows = np.arange(32, dtype=np.float32).reshape(8, 4)
        columns = np.arange(12, dtype=np.int64).reshape(3, 4)
        bf16 = np.arange(8, dtype=np.uint16)
        operation = self.save("runs/7/model.safetensors", {
            "rows": self.write("f32", rows, ROWS), "columns": self.write("s64", columns, COLUMNS),
            "half": self.write("bf16", bf16, ROWS)})
        self.assertEqual(operation["kind"].lower(), "save")
        path = self.own / "runs/7/model.safetensors"
        self.assertEqual(read_safetensors(path), {
            "rows": ("F32", [8, 4], rows.tobytes()), "columns": ("I64", [3, 4], columns.tobytes()),
            "half": ("BF16", [8], bf16.tobytes())})
        self.assertEqual([p.name for p in path.parent.iterdir()], [path.name], "nothing beside it")
        # The file can be loaded with any other placement.
        half, again = self.load("runs/7/model.safetensors", {"half": ONE, "rows": COLUMNS})
        self.assertEqual(self.read(half), ("bf16[8]", bf16.tobytes()))
        self.assertEqual(self.read(again), ("f32[8,4]", rows.tobytes()))

    def test_numpy_reads_and_writes_the_same(self):
        for dtype, name in [(np.float64, "f64"), (np.int32, "s32"), (np.bool_, "bool"),
                            (np.complex64, "c64"), (np.float16, "f16"), (np.uint8, "u8")]:
            values = (np.arange(16) % 3).astype(dtype).reshape(4, 4)
            self.save(f"{name}.npy", {"": self.write(name, values, ROWS)})
            back = np.load(self.own / f"{name}.npy", allow_pickle=False)
            self.assertEqual(back.dtype, values.dtype)
            np.testing.assert_array_equal(back, values)
            np.save(self.own / f"of-{name}.npy", values + values)
            (array,) = self.load(f"of-{name}.npy", {"": COLUMNS})
            self.assertEqual(self.read(array), (f"{name}[4,4]", (values + values).tobytes()))

    @unittest.skipIf(safetensors is None, "the package safetensors is not installed")
    def test_safetensors_reads_and_writes_the_same(self):
        values = {"a": np.arange(24, dtype=np.float32).reshape(4, 6),
                  "b/c": np.arange(8, dtype=np.int16), "empty": np.zeros((0, 4), np.float64)}
        self.own.mkdir(exist_ok=True)
        safetensors.save_file(values, self.own / "theirs.safetensors", {"format": "np"})
        arrays = self.load("theirs.safetensors", {"a": ROWS, "b/c": ROWS, "empty": ONE})
        for array, (name, value) in zip(arrays, values.items()):
            self.assertEqual(self.read(array)[1], value.tobytes(), name)
        self.save("ours.safetensors", dict(zip(values, arrays)))
        ours = safetensors.load_file(self.own / "ours.safetensors")
        self.assertEqual(set(ours), set(values))
        for name, value in values.items():
            np.testing.assert_array_equal(ours[name], value)

    def test_what_cannot_be_done_says_why(self):
        array = self.write("f32", np.zeros(4, np.float32), ROWS)
        self.save("taken.npy", {"": array})

        def refuse(reason, text, method, request):
            with self.assertRaises(json_client.Error) as raised:
                answer = self.client.call(ARRAYS + method, request)
                done = self.client.call(OPERATIONS + "WaitOperation", {
                    "operation": answer["id"], "timeout": "30s"})
                self.assertEqual(done["state"], "OPERATION_STATE_FAILED", done)
                self.assertIn(text, done["error"]["message"])
                self.assertIn(reason, json.dumps(done["error"]))
                raise json_client.Error(json_client.grpc.StatusCode.OK, text, [
                    {"@type": "/google.rpc.ErrorInfo", "reason": reason}])
            self.assertEqual(raised.exception.reason, reason)
            self.assertIn(text, raised.exception.message)

        named = [{"name": "a", "array": array}]
        refuse("VALUE_ERROR", "begins with a dot", "SaveArrays",
               {"path": "../out.npy", "arrays": named})
        refuse("VALUE_ERROR", "relative", "SaveArrays", {"path": "/etc/x.npy", "arrays": named})
        refuse("VALUE_ERROR", ".safetensors or .npy", "SaveArrays",
               {"path": "x.pickle", "arrays": named})
        refuse("ALREADY_EXISTS", "overwrite", "SaveArrays", {"path": "taken.npy", "arrays": named})
        refuse("FILE_NOT_FOUND", "does not exist", "LoadArrays",
               {"path": "no.npy", "arrays": [{"placement": ONE}]})
        (self.own / "broken.npy").write_bytes(b"\x93NUMPY\x01\x00\x10\x00{'descr': 'O'}  ")
        refuse("FILE_CORRUPT", "broken.npy", "LoadArrays",
               {"path": "broken.npy", "arrays": [{"placement": ONE}]})
        (self.own / "link.npy").symlink_to("/etc/passwd")
        refuse("VALUE_ERROR", "link", "LoadArrays",
               {"path": "link.npy", "arrays": [{"placement": ONE}]})
        self.save("taken.npy", {"": array}, overwrite=True)


    def corrupt(self, name):
        """Returns whether a load fails with FILE_CORRUPT and names the file."""
        try:
            answer = self.client.call(ARRAYS + "LoadArrays", {
                "path": name, "arrays": [{"name": "a", "placement": ROWS}]})
        except json_client.Error as error:
            return error.reason == "FILE_CORRUPT" and name in error.message
        done = self.client.call(OPERATIONS + "WaitOperation", {
            "operation": answer["operation"]["id"], "timeout": "30s"})
        said = json.dumps(done.get("error", {}))
        return "FILE_CORRUPT" in said and name in said

    def test_a_file_that_is_cut_or_damaged_is_refused_and_an_older_one_is_read(self):
        values = np.arange(1 << 18, dtype=np.float32)
        self.save("older.safetensors", {"a": self.write("f32", values, ROWS)})
        whole = (self.own / "older.safetensors").read_bytes()
        header = 8 + struct.unpack("<Q", whole[:8])[0]
        torn = [whole[:size] for size in [0, 7, header - 1, *range(header, len(whole), 1 << 16),
                                          len(whole) - 1]]
        # Bits are flipped only in the header, because neither format has a checksum for the
        # contents.
        for at in range(8):
            torn.append(whole[:at] + bytes([whole[at] ^ 0x80]) + whole[at + 1:])
        torn.append(whole.replace(b"F32", b"F33", 1))
        torn.append(whole.replace(b'"shape"', b'"shapf"', 1))
        for number, data in enumerate(torn):
            (self.own / "torn.safetensors").write_bytes(data)
            self.assertTrue(self.corrupt("torn.safetensors"), f"{number}: {len(data)} bytes")
        (array,) = self.load("older.safetensors", {"a": ROWS})
        self.assertEqual(self.read(array)[1], values.tobytes())


class KilledTest(unittest.TestCase):
    def test_a_save_that_is_killed_leaves_a_file_that_is_whole(self):
        folder = self.enterContext(tempfile.TemporaryDirectory(prefix="tessera-files-"))
        with daemons.Cluster(worker_flags=[f"--files-dir={folder}"]) as cluster, \
                cluster.connect() as client:
            file = pathlib.Path(folder) / "default/a.npy"
            size = 16 << 20  # elements
            program = client.call("tessera.v1.ProgramService/CompileProgram", {"text": FILL.replace(
                "SIZE", str(size))})
            before, torn, took = None, 0, 0.0
            for number in range(8):
                cluster.await_devices(4)
                spec = {"dtype": "f32", "shape": [], "placement": {
                    **ROWS, "spec": {}}}
                scalar = client.call(ARRAYS + "WriteArray", {"spec": spec, "json": number})["array"]
                run = client.call("tessera.v1.ProgramService/ExecuteProgram",
                                  {"executable": program["executable"], "args": [scalar]})
                save = client.call(ARRAYS + "SaveArrays", {
                    "path": "a.npy", "arrays": [{"array": run["outputs"][0]}], "overwrite": True})
                if number % 2:
                    # The kill comes at one of four points in the duration of a save.
                    threading.Event().wait(took * number / 12)
                    os.kill(cluster.executor_pids(1)[0], signal.SIGKILL)
                began = time.monotonic()
                done = client.call(OPERATIONS + "WaitOperation", {
                    "operation": save["id"], "timeout": "30s"})
                took = time.monotonic() - began
                well = done["state"] == "OPERATION_STATE_DONE"
                torn += not well
                [found] = np.unique(np.load(file, allow_pickle=False))
                # An executor that dies before it reports the finished file leaves that file, which
                # must be whole.
                self.assertIn(found, {number} if well else {before, number})
                before = found
                client.call(ARRAYS + "DeleteArrays", {"arrays": [scalar, run["outputs"][0]]})
            print(f"{torn} of 4 saves were broken off")
            self.assertGreater(torn, 0)


class NoFolderTest(unittest.TestCase):
    def test_without_a_folder_it_is_off(self):
        with daemons.Cluster(workers=1, devices=1) as cluster, \
                json_client.Client(cluster.address) as client:
            with self.assertRaises(json_client.Error) as raised:
                client.call(ARRAYS + "LoadArrays", {"path": "x.npy", "arrays": [{
                    "placement": {**ONE, "devices": ["0"]}}]})
            self.assertEqual(raised.exception.reason, "FILES_DISABLED")
            self.assertIn("--files-dir", raised.exception.message)


if __name__ == "__main__":
    unittest.main()
