"""What workers do while the coordinator is away."""
import pathlib
import time
import unittest

import daemons

PATIENCE = 20
DEATH_IS_SEEN_WITHIN = 1  # of a daemon, at its executors


def has_ended(pid):
    try:
        stat = pathlib.Path(f"/proc/{pid}/stat").read_text()
    except FileNotFoundError:
        return True
    return stat.rsplit(")", 1)[1].split()[0] == "Z"


def kill_coordinator(cluster):
    process = cluster.processes["coordinator"]
    process.kill()
    process.wait()


class OutageTest(unittest.TestCase):
    def test_executors_go_on_until_a_coordinator_does_not_know_them(self):
        with daemons.Cluster(workers=2, devices=1) as cluster:
            before = [cluster.executor_pids(w) for w in range(2)]
            kill_coordinator(cluster)
            daemons.throughout(2, lambda: self.assertEqual(
                [cluster.executor_pids(w) for w in range(2)], before))
            # It keeps its state in memory, and so begins with none.
            cluster.restart_coordinator()
            back = time.monotonic()
            cluster.await_devices(2)
            print(f"devices are back after {time.monotonic() - back:.2f} s")
            after = [cluster.executor_pids(w) for w in range(2)]
            self.assertFalse(set(sum(before, [])) & set(sum(after, [])))
            self.assertIn("does not go on with what it holds", cluster.logs())

    def test_executors_are_started_anew_when_the_grace_is_over(self):
        with daemons.Cluster(workers=1, devices=1,
                             coordinator_flags=["--outage-grace-ms=500"]) as cluster:
            [first] = cluster.executor_pids(0)
            kill_coordinator(cluster)
            daemons.eventually(lambda: cluster.executor_pids(0) not in ([], [first]), PATIENCE,
                               "another executor")
            self.assertIn("its coordinator stayed away for 500ms", cluster.logs())
            cluster.restart_coordinator()
            cluster.await_devices(1)

    def test_no_executor_outlives_its_daemon_in_an_outage(self):
        with daemons.Cluster(workers=1, devices=1) as cluster:
            [executor] = cluster.executor_pids(0)
            kill_coordinator(cluster)
            daemons.eventually(lambda: "it waits" in cluster.logs(), PATIENCE,
                               "the executor waits")
            self.assertFalse(has_ended(executor))
            cluster.kill_worker(0)
            daemons.eventually(lambda: has_ended(executor), DEATH_IS_SEEN_WITHIN,
                               "the executor ends")


if __name__ == "__main__":
    unittest.main()
