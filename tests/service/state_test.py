"""Tests backup, check and restore of a coordinator's state on disk, and that damaged state is
refused."""
import json
import os
import pathlib
import shutil
import subprocess
import tempfile
import unittest

import daemons
from secure_cluster import run_tessera

PATIENCE = 30
# A coordinator that starts on a backup adds this many starts to its epoch.
STARTS_SINCE_BACKUP = 32


def check(path):
    return json.loads(run_tessera("--json", "state", "check", path))


class StateTest(unittest.TestCase):
    def setUp(self):
        self.root = pathlib.Path(tempfile.mkdtemp(prefix="tessera-"))
        self.addCleanup(shutil.rmtree, self.root, ignore_errors=True)
        self.folder = self.root / "state"

    def cluster(self, folder):
        return daemons.Cluster(workers=0, coordinator_flags=[f"--state-dir={folder}"])

    def refused(self, *command, status=1):
        """Runs a command that must end with `status`. Returns what it prints to stderr."""
        done = subprocess.run([daemons.bin_dir() / command[0], *command[1:]], text=True,
                              capture_output=True, timeout=PATIENCE, check=False,
                              env={**os.environ, "TESSERA_METRICS_LISTEN": "off"})
        self.assertEqual(done.returncode, status, done.stderr)
        return done.stderr

    def start_refused(self, folder):
        return self.refused("tessera-coordinator", "--listen=127.0.0.1:0", f"--state-dir={folder}")

    def test_a_running_coordinators_state_is_backed_up_and_restored(self):
        backup = self.root / "backup.db"
        with self.cluster(self.folder) as cluster:
            # The coordinator is killed, so the next one reads its log.
            cluster.restart_coordinator()
            before = check(self.folder)
            self.assertEqual(before["epoch"], 2)
            self.assertIn("tessera-coordinator", before["build"])
            self.assertEqual(before["schemaVersion"], 1)
            self.assertIn("array", before["rows"])
            run_tessera("state", "backup", "--state-dir", self.folder, "--to", backup)
            self.assertIn("ALREADY_EXISTS", self.refused(
                "tessera", "state", "backup", "--state-dir", self.folder, "--to", backup))
            self.assertIn("another coordinator uses", self.start_refused(self.folder))
        copied = check(backup)
        self.assertEqual(copied["cluster"], before["cluster"])
        self.assertEqual(copied["epoch"], 2 + STARTS_SINCE_BACKUP)
        # Restore the backup as docs/operating.md describes.
        moved = self.root / "moved"
        moved.mkdir(mode=0o700)
        shutil.move(backup, moved / "state.db")
        with self.cluster(moved):
            after = check(moved)
        self.assertEqual(after["cluster"], before["cluster"])
        self.assertEqual(after["epoch"], 3 + STARTS_SINCE_BACKUP)
        text = subprocess.run([daemons.bin_dir() / "tessera", "state", "check", moved], text=True,
                              capture_output=True, timeout=PATIENCE, check=True)
        self.assertIn("is whole", text.stderr)
        self.assertIn("ROWS OF", text.stdout)

    def test_a_state_that_is_not_whole_is_refused(self):
        with self.cluster(self.folder):
            pass
        database = self.folder / "state.db"
        for log in self.folder.glob("state.db-*"):
            log.unlink()
        database.write_bytes(b"no database" * 1000)
        for said in (self.start_refused(self.folder),
                     self.refused("tessera", "state", "check", self.folder)):
            self.assertIn("restore a backup", said)
        self.assertEqual(database.read_bytes(), b"no database" * 1000)
        database.unlink()
        self.assertIn("is gone; restore a backup", self.start_refused(self.folder))
        self.assertIn("holds no state.db", self.refused("tessera", "state", "check", self.folder))
        self.assertIn("--to", self.refused("tessera", "state", "backup", status=2))


if __name__ == "__main__":
    unittest.main()
