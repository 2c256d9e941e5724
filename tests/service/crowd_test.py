"""Tests many clients at once: clients that come back together, and scrapers that storm or hang."""
import concurrent.futures
import contextlib
import pathlib
import re
import shutil
import socket
import tempfile
import threading
import time
import unittest
import urllib.request

import daemons
import json_client
import stopwatch

API = "tessera.v1."
CLIENTS = 200
BACK_WITHIN = 10  # seconds after a restart within which all clients are back
SCRAPERS = 50
CALLS = 300
SLOWEST = 0.5  # seconds for the slowest of a hundred calls; two cores serve both scrapers and calls


class CrowdTest(unittest.TestCase):
    def test_clients_that_come_back_together(self):
        folder = pathlib.Path(tempfile.mkdtemp(prefix="tessera-"))
        self.addCleanup(shutil.rmtree, folder, ignore_errors=True)
        with contextlib.ExitStack() as stack, daemons.Cluster(
                workers=2, devices=1, coordinator_flags=[f"--state-dir={folder}/state"]) as cluster:
            clients = [stack.enter_context(cluster.connect()) for _ in range(CLIENTS)]
            with concurrent.futures.ThreadPoolExecutor(CLIENTS) as pool:
                sessions = list(pool.map(lambda c: c.call(
                    API + "SessionService/CreateSession", {"lease": "30s"})["id"], clients))
                cluster.restart_coordinator()
                watch = stopwatch.Stopwatch()
                list(pool.map(self.renew, clients, sessions))
                took = watch.unhindered()
            print(f"{CLIENTS} clients are back after {took:.2f} s, promised {BACK_WITHIN} s")
            self.assertLess(took, BACK_WITHIN)
            cluster.await_devices(2)

    def renew(self, client, session):
        def renewed():
            try:
                return client.call(API + "SessionService/RenewSession", {"session": session})
            except json_client.Error as error:
                if error.code != "UNAVAILABLE":
                    raise
                return None
        daemons.eventually(renewed, 2 * BACK_WITHIN)

    def slowest(self, client):
        """Returns the 99th percentile of the times of CALLS calls, in seconds."""
        times = []
        for _ in range(CALLS):
            began = time.monotonic()
            client.call(API + "ClusterService/ListDevices")
            times.append(time.monotonic() - began)
        return sorted(times)[int(0.99 * CALLS)]

    def test_scrapers_that_storm_and_one_that_never_reads(self):
        with daemons.Cluster(environment={"TESSERA_METRICS_LISTEN": "127.0.0.1:0"}) as cluster, \
                cluster.connect() as client:
            log = (cluster.folder / "coordinator.log").read_text()
            port = int(re.search(r"metrics\S* .*127\.0\.0\.1:(\d+)", log).group(1))
            alone = self.slowest(client)
            stop, scraped, pause = threading.Event(), [], threading.Event()

            def scrape():
                while not stop.is_set():
                    with contextlib.suppress(OSError):  # turns away scrapers beyond its limit
                        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics",
                                                    timeout=10) as answer:
                            scraped.append(len(answer.read()))
                    pause.wait(0.05)

            with socket.create_connection(("127.0.0.1", port)) as hung:
                hung.sendall(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")
                threads = [threading.Thread(target=scrape) for _ in range(SCRAPERS)]
                for thread in threads:
                    thread.start()
                try:
                    daemons.eventually(lambda: scraped, what="a scrape")
                    storm = self.slowest(client)
                finally:
                    stop.set()
                    for thread in threads:
                        thread.join()
            print(f"99 of 100 calls take {alone * 1000:.1f} ms, under {SCRAPERS} scrapers "
                  f"({len(scraped)} scrapes) {storm:.3f} s, promised {SLOWEST} s")
            self.assertGreater(len(scraped), SCRAPERS)
            self.assertLess(storm, SLOWEST)
            self.assertEqual(len(cluster.healthy_devices()), 4)


if __name__ == "__main__":
    unittest.main()
