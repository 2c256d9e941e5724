"""Tests a rolling upgrade from a build to the same build. Clients run throughout and lose
nothing."""
import pathlib
import shutil
import tempfile
import unittest

import daemons
import rolling

API = rolling.API
WORKERS = 3
# While any process is being replaced, the time between two answers that clients get is at most this many seconds.
WITHIN = 20


class RollingTest(unittest.TestCase):
    def test_clients_go_on_while_each_process_is_replaced(self):
        folder = pathlib.Path(tempfile.mkdtemp(prefix="tessera-"))
        self.addCleanup(shutil.rmtree, folder, ignore_errors=True)
        with daemons.Cluster(workers=WORKERS, devices=1,
                             coordinator_flags=[f"--state-dir={folder}/state"]) as cluster:
            with cluster.connect() as client:
                session = client.call(API + "SessionService/CreateSession",
                                      {"lease": "3600s"})["id"]
            before = {d["executor"]: d.get("id", "0") for d in cluster.healthy_devices()}
            pids = [cluster.executor_pids(w) for w in range(WORKERS)]
            clients = rolling.Clients(cluster, rolling.first_device(cluster, 0))
            try:
                clients.await_more()
                rolling.replace_coordinator(cluster, clients)
                # The executors are still the same, so their arrays are where they were.
                self.assertEqual([cluster.executor_pids(w) for w in range(WORKERS)], pids)
                for number in range(WORKERS):
                    rolling.replace_worker(cluster, clients, number, (number + 1) % WORKERS)
                rolling.replace_coordinator(cluster, clients)
            finally:
                clients.stop()
            print(f"{clients.sums} sums, {clients.links} runs of the chain, longest wait "
                  f"{clients.longest:.2f} s; made again: {clients.again}")
            self.assertLess(clients.longest, WITHIN)
            self.assertEqual(
                {d["executor"]: d.get("id", "0") for d in cluster.healthy_devices()}, before)
            with cluster.connect() as client:
                self.assertEqual(client.call(API + "SessionService/GetSession",
                                             {"session": session})["id"], session)


if __name__ == "__main__":
    unittest.main()
