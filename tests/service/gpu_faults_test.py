"""Tests that faults of GPUs, which the fake NVML reports, are seen in metrics and lists and cordon the device."""
import pathlib
import re
import subprocess
import tempfile
import unittest

import daemons
import json_client

API = "tessera.v1."
GIB = 1 << 30
PROGRAM = """mesh (i=%d)
func main(%%x: f32[4] P('i')) -> (f32[4] P('i')) {
  %%y = negate(%%x)
  return %%y
}
"""


class GpuFaultsTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.knobs = self.folder / "knobs"
        self.cluster = daemons.Cluster(
            workers=1, gpus=2, coordinator_flags=[f"--state-dir={self.folder}/state"],
            environment={"TESSERA_FAKE": "devices=2", "TESSERA_FAKE_FILE": str(self.knobs)})
        self.addCleanup(self.cluster.close)
        self.client = self.cluster.connect()
        self.addCleanup(self.client.channel.close)

    def call(self, method, request=None):
        return self.client.call(API + method, request or {})

    def set_knobs(self, text):
        """Sets knobs that describe GPU 1."""
        new = self.folder / "new"
        new.write_text("nvml_device=1," + text)
        new.rename(self.knobs)

    def device(self, number):
        return self.call("ClusterService/ListDevices")["devices"][number]

    def await_cordon(self, words):
        """Waits until device 1 is cordoned for a fault, and returns the reason."""
        return daemons.eventually(
            lambda: (d := self.device(1)).get("cordoned") and words in d["reason"] and d["reason"],
            what=words)

    def metric(self, name, *labels):
        """Returns the value of a metric of GPU 1, or None if it has no such series."""
        (process,) = (p for p in self.call("AdminService/GetDiagnostics",
                                           {"details": True, "worker": "w0"})["processes"]
                      if p["process"] == "w0")
        pattern = name + r"\{" + "".join(f"(?=.*{label}.*\\}})" for label in ('device="1"', *labels))
        found = re.search(pattern + r".*\} (\S+)", process["metrics"])
        return float(found.group(1)) if found else None

    def await_metric(self, value, name, *labels):
        daemons.eventually(lambda: self.metric(name, *labels) == value, what=(name, labels, value))

    def run_on(self, devices):
        return self.call("ProgramService/RunProgram",
                         {"text": PROGRAM % devices, "inputs": [[1, 2, 3, 4]]})

    def refuse(self, method, request, words):
        with self.assertRaises(json_client.Error) as raised:
            self.call(method, request)
        self.assertEqual(raised.exception.reason, "NOT_ENOUGH_DEVICES")
        self.assertIn(words, raised.exception.message)

    def test_an_xid_cordons_the_device_until_an_operator_accepts_it(self):
        self.run_on(2)
        self.set_knobs("nvml_xid=31")
        self.await_metric(1, "tessera_gpu_xid_errors_total", 'xid="31"')
        self.assertFalse(self.device(1).get("cordoned"), "a program causes Xid 31")
        self.set_knobs("nvml_xid=79")
        reason = self.await_cordon("Xid 79 (the GPU has fallen off the bus) at 20")
        self.assertFalse(self.device(0).get("cordoned"))
        self.assertTrue(self.device(1)["healthy"])
        self.assertEqual(self.metric("tessera_gpu_xid_errors_total", 'xid="79"'), 1)
        worker = self.call("ClusterService/GetWorker", {"worker": "w0"})
        self.assertEqual(worker["state"], "WORKER_STATE_READY")
        self.assertIn(f"device 1 is cordoned: {reason}", worker["reason"])
        # Compiled programs go on running on the device, and no new program is compiled for it.
        self.run_on(2)
        mesh = {"axes": [{"name": "i", "size": 2}]}
        self.refuse("ClusterService/CreateMesh", {"mesh": {"name": "both", "mesh": mesh}},
                    "2 (1 cordoned)")
        self.run_on(1)
        # A restart of the coordinator changes nothing.
        self.cluster.restart_coordinator()
        self.client = self.cluster.connect(new_connection=True)
        self.addCleanup(self.client.channel.close)
        daemons.eventually(lambda: self.device(1).get("healthy"))
        self.assertEqual(self.device(1)["reason"], reason)
        self.call("AdminService/UncordonWorker", {"worker": "w0"})
        self.assertFalse(self.device(1).get("cordoned"))
        daemons.throughout(1, lambda: self.assertFalse(self.device(1).get("cordoned")))
        self.call("ClusterService/CreateMesh", {"mesh": {"name": "both", "mesh": mesh}})
        self.set_knobs("nvml_xid=48")
        self.await_cordon("Xid 48")

    def test_memory_errors_cordon_the_device(self):
        self.await_metric(0, "tessera_gpu_ecc_errors_total", 'kind="uncorrected"')
        self.set_knobs("nvml_ecc_uncorrected=3")
        self.await_cordon("memory errors that ECC could not correct: 3 at 20")
        self.assertEqual(self.metric("tessera_gpu_ecc_errors_total", 'kind="uncorrected"'), 3)
        self.set_knobs("nvml_ecc_uncorrected=3,nvml_rows_pending=1")
        self.await_cordon("needs a reset")
        self.assertEqual(self.metric("tessera_gpu_row_remap", 'state="pending"'), 1)

    def test_throttling_and_the_memory_of_others_are_seen_and_cordon_nothing(self):
        executor = self.cluster.executor_pids(0)[1]
        self.set_knobs(f"nvml_throttle=0x40,nvml_pid={executor},nvml_others_bytes={3 * GIB},"
                       "nvml_utilization=42")
        self.await_metric(1, "tessera_gpu_throttled", 'reason="temperature"')
        self.assertEqual(self.metric("tessera_gpu_throttled", 'reason="power"'), 0)
        self.assertEqual(self.metric("tessera_gpu_memory_bytes", 'kind="worker"'), GIB)
        self.assertEqual(self.metric("tessera_gpu_memory_bytes", 'kind="others"'), 3 * GIB)
        self.assertEqual(self.metric("tessera_gpu_utilization_ratio"), 0.42)
        self.assertLess(self.metric("tessera_gpu_reading_age_seconds"), 10)
        gpu = daemons.eventually(lambda: (g := self.device(1)["gpu"]).get("throttled") and g)
        self.assertEqual(gpu, {"utilization": 0.42, "memoryUsedBytes": 4 * GIB,
                               "memoryOthersBytes": 3 * GIB, "powerWatts": 123.5,
                               "temperatureCelsius": 45, "throttled": True})
        self.assertFalse(self.device(1).get("cordoned"))
        self.assertRegex(self.tessera("devices"), r"BUSY +USED +OTHERS +POWER +TEMP +THROTTLED")
        row = r" +w0.* 42% +4\.0 GiB +3\.0 GiB +124 W +45 C +yes"
        self.assertRegex(self.tessera("devices"), r"1 +gpu +ready" + row)
        self.assertRegex(self.tessera("top", "--once"), r"(?m)^ *1" + row)

    def tessera(self, *args):
        return subprocess.run([daemons.bin_dir() / "tessera", "--address", self.cluster.address, *args], check=True,
                              capture_output=True, text=True, timeout=60).stdout

    def test_a_lost_gpu_is_cordoned(self):
        self.set_knobs("nvml_lost=1")
        self.await_cordon("the GPU is lost: NVML: GPU is lost at 20")
        self.assertRegex(self.tessera("devices"), r"1 +gpu +cordoned: the GPU is lost")
        self.assertIsNone(self.metric("tessera_gpu_power_watts", 'kind="drawn"'))

    def test_a_gpu_that_is_never_read_shows_its_age(self):
        with daemons.Cluster(workers=1, gpus=2, environment={"TESSERA_FAKE": "devices=2,nvml_none=1"}) as unread:
            self.client = unread.connect()
            daemons.eventually(lambda: (self.metric("tessera_gpu_reading_age_seconds") or 0) > 1)
            self.assertIsNone(self.metric("tessera_gpu_temperature_celsius", 'sensor="gpu"'))
            self.assertFalse(self.device(1).get("cordoned"))

    def test_a_driver_that_hangs_holds_up_nothing(self):
        self.await_metric(45, "tessera_gpu_temperature_celsius", 'sensor="gpu"')
        self.set_knobs("nvml_hangs=1")
        daemons.eventually(lambda: self.metric("tessera_gpu_reading_age_seconds") > 3)
        self.run_on(2)
        self.assertEqual(self.cluster.stop("w0"), 0)


if __name__ == "__main__":
    unittest.main()
