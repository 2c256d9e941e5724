"""What a worker offers in a control group with limits. Wants root and a hierarchy that can be
written to; skipped with the reason elsewhere."""
import os
import pathlib
import re
import resource
import unittest

import daemons

GIB = 1 << 30
CLUSTER = "tessera.v1.ClusterService"


def hierarchies():
    """Controller -> (folder of this process's group, version)."""
    found = {}
    groups = pathlib.Path("/proc/self/cgroup").read_text()
    mounts = pathlib.Path("/proc/self/mountinfo").read_text()
    for line in mounts.splitlines():
        mount, _, system = line.partition(" - ")
        kind, _, options = system.split(" ", 2)
        shown, point = mount.split()[3:5]
        for group in groups.splitlines():
            _, names, path = group.split(":", 2)
            if shown != "/" or not os.path.isdir(point + path):
                continue
            folder = pathlib.Path(point + path)
            if kind == "cgroup" and names and set(names.split(",")) <= set(options.split(",")):
                for name in names.split(","):
                    found[name] = (folder, 1)
            elif kind == "cgroup2" and not names:
                for name in (folder / "cgroup.subtree_control").read_text().split():
                    found[name] = (folder, 2)
    return found


class LimitsTest(unittest.TestCase):
    def enter(self, controller, version_1, version_2):
        """Moves this process, and so what it starts, into a group with these files' values."""
        if os.geteuid() != 0:
            self.skipTest("wants root, to make a control group")
        parent, version = hierarchies().get(controller, (None, None))
        if parent is None:
            self.skipTest(f"no hierarchy for {controller} that groups can be made in")
        group = parent / f"tessera-limits-{os.getpid()}"
        try:
            group.mkdir(exist_ok=True)
        except OSError as error:
            self.skipTest(f"no group can be made in {parent}: {error}")
        self.addCleanup(group.rmdir)
        for name, value in (version_1 if version == 1 else version_2).items():
            (group / name).write_text(str(value))
        self.addCleanup((parent / "cgroup.procs").write_text, str(os.getpid()))
        (group / "cgroup.procs").write_text(str(os.getpid()))

    def test_a_worker_offers_what_its_group_allows(self):
        self.enter("memory", {"memory.limit_in_bytes": GIB}, {"memory.max": GIB})
        self.enter("cpu", {"cpu.cfs_quota_us": 100000}, {"cpu.max": "100000 100000"})
        with daemons.Cluster(workers=1, worker_flags=["--device-memory-bytes=0"]) as cluster:
            with cluster.connect() as client:
                devices = client.call(f"{CLUSTER}/ListDevices")["devices"]
            self.assertEqual(len(devices), 2)
            total = sum(int(device["memoryBytes"]) for device in devices)
            self.assertLess(total, GIB)
            self.assertGreater(total, GIB // 2)
            self.assertEqual(re.findall(r"CPU devices.*\bcores=(\d+)", cluster.logs()), ["1"])

    def test_daemons_open_as_many_files_as_they_may(self):
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        self.addCleanup(resource.setrlimit, resource.RLIMIT_NOFILE, (soft, hard))
        resource.setrlimit(resource.RLIMIT_NOFILE, (256, hard))
        with daemons.Cluster(workers=1) as cluster:
            for process in cluster.processes.values():
                text = pathlib.Path(f"/proc/{process.pid}/limits").read_text()
                soft, hard = re.search(r"Max open files\s+(\d+)\s+(\d+)", text).groups()
                self.assertGreaterEqual(int(soft), min(int(hard), 65536))


if __name__ == "__main__":
    unittest.main()
