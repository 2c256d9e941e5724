"""Tests deploy/compose.yaml and the images without a container engine: they follow the schema of
the Compose specification, everything that they refer to exists, and they have the promised
properties."""
import json
import os
import re
import unittest

import jsonschema
import yaml

import deploy_testing as deploy

COMPOSE = "deploy/compose.yaml"
DAEMONS = {"coordinator": "server/main.cc", "worker-0": "worker/main.cc",
           "worker-1": "worker/main.cc", "worker-gpu": "worker/main.cc"}
# These services run once, or while a user waits for them.
ONCE = {"init", "cli"}


def compose():
    return yaml.safe_load(deploy.read(COMPOSE))


def defaults(text):
    """Replaces ${NAME:-value} by the value, as Compose does if no variable is set."""
    return re.sub(r"\$\{\w+:-([^}]*)\}", r"\1", text)


def known_flags(main):
    """Returns the flags of a daemon: those of the options' table and its own."""
    rows = re.findall(r"^TESSERA_\w+_OPTION\((\w+)", deploy.read("base/options.def"), re.M)
    own = re.findall(r'^\s*\{"([\w-]+)",', deploy.read(main), re.M)
    return {row.replace("_", "-") for row in rows} | set(own)


class ComposeTest(unittest.TestCase):
    def setUp(self):
        self.file = compose()
        self.services = self.file["services"]

    def test_it_follows_the_specification(self):
        schema = json.loads(deploy.read("tests/deploy/compose-spec.json"))
        check = jsonschema.Draft7Validator(schema)
        self.assertEqual([f"{list(e.path)}: {e.message}" for e in check.iter_errors(self.file)], [])
        # The schema must also refuse a file that is not a Compose file.
        self.services["coordinator"]["prots"] = ["1:1"]
        self.assertTrue(list(check.iter_errors(self.file)))

    def test_what_it_refers_to_exists(self):
        volumes, networks = set(self.file["volumes"]), set(self.file["networks"])
        used_volumes, used_networks = set(), set()
        for name, service in self.services.items():
            with self.subTest(name):
                self.assertLessEqual(set(service.get("depends_on", {})), set(self.services))
                used_networks |= set(service.get("networks", []))
                for mount in service.get("volumes", []):
                    source = mount.split(":")[0]
                    if source.startswith("."):
                        self.assertTrue(os.path.exists(deploy.path("deploy", source)), source)
                    else:
                        used_volumes.add(source)
                if "build" in service:
                    build = service["build"]
                    root = deploy.path("deploy", build["context"])
                    self.assertEqual(os.path.realpath(root), os.path.realpath(deploy.ROOT))
                    self.assertTrue(os.path.exists(os.path.join(root, build["dockerfile"])))
        self.assertEqual(used_volumes, volumes)
        self.assertEqual(used_networks, networks)

    def test_nothing_waits_for_itself(self):
        def reach(name, seen):
            self.assertNotIn(name, seen)
            for other in self.services[name].get("depends_on", {}):
                reach(other, seen + [name])
        for name in self.services:
            reach(name, [])

    def test_no_worker_waits_for_a_healthy_coordinator(self):
        """A coordinator is healthy only after a worker's device has proved itself. If the worker
        waited for that, both would wait for each other."""
        for name, service in self.services.items():
            waits = service.get("depends_on", {}).get("coordinator")
            if waits:
                self.assertEqual(waits["condition"], "service_started", name)

    def test_every_service_is_bounded_watched_and_started_again(self):
        for name, service in self.services.items():
            with self.subTest(name):
                if name in ONCE:
                    self.assertEqual(service["healthcheck"], {"disable": True})
                    continue
                self.assertEqual(service["restart"], "unless-stopped")
                self.assertIn("memory", service["deploy"]["resources"]["limits"])
                self.assertIn("test", service["healthcheck"])
                self.assertEqual(service["cap_drop"], ["ALL"])
                self.assertEqual(service["security_opt"], ["no-new-privileges:true"])

    def test_a_small_machine_is_enough(self):
        """An engine refuses a limit of cores above the number of the machine's cores. An engine
        without privileges refuses a limit of files above its own."""
        for name, service in self.services.items():
            with self.subTest(name):
                limits = service.get("deploy", {}).get("resources", {}).get("limits", {})
                self.assertIn(defaults(str(limits.get("cpus", "0"))), ("0",))
                self.assertNotIn("nofile", service.get("ulimits", {}))

    def test_only_clients_ports_are_published(self):
        published = {name: service.get("ports", []) for name, service in self.services.items()}
        self.assertEqual({name: ports for name, ports in published.items() if ports}, {
            "coordinator": ["8470:8470"],
            "worker-0": ["8471:8471"],
            "worker-1": ["8481:8471"],
            "worker-gpu": ["8491-8505:8491-8505"],
            "prometheus": ["127.0.0.1:9090:9090"],
            "grafana": ["127.0.0.1:3000:3000"],
        })
        for name in ("cluster", "metrics", "dashboards"):
            self.assertEqual(self.file["networks"][name], {"internal": True})

    def test_daemons_know_their_flags_and_their_files(self):
        for name, main in DAEMONS.items():
            mounts = {mount.split(":")[1] for mount in self.services[name]["volumes"]}
            flags = dict(defaults(word)[2:].split("=", 1) for word in self.services[name]["command"])
            with self.subTest(name):
                self.assertLessEqual(set(flags), known_flags(main))
                for flag, value in flags.items():
                    if value.startswith("/"):
                        self.assertTrue(any(value.startswith(mount) for mount in mounts),
                                        f"--{flag}={value} is on no volume")
                for flag in ("tls-cert-file", "tls-key-file", "tls-ca-file"):
                    self.assertIn(flag, flags)
                self.assertNotIn("insecure", flags)

    def test_workers_share_one_folder_of_files(self):
        for name in DAEMONS:
            if name != "coordinator":
                service = self.services[name]
                self.assertIn("--files-dir=/var/lib/tessera/files", service["command"])
                self.assertIn("files:/var/lib/tessera/files", service["volumes"])

    def test_clients_reach_workers_where_they_are_published(self):
        for name, service in self.services.items():
            flags = dict(word[2:].split("=", 1) for word in service.get("command", [])
                         if "=" in word)
            if "advertise-client" in flags:
                host, port = defaults(flags["advertise-client"]).split(":")
                self.assertEqual(host, "localhost")
                inside = flags["data-listen"].split(":")[1]
                # There is one executor per GPU, and their ports are two apart.
                last = 14 if name == "worker-gpu" else 0
                self.assertEqual(service["ports"], [
                    f"{port}-{int(port) + last}:{inside}-{int(inside) + last}" if last
                    else f"{port}:{inside}"])
                self.assertEqual(flags["advertise-peer"], f"{name}:8472")
                self.assertEqual(flags["name"], name)

    def test_gpus_get_what_nccl_wants(self):
        gpu = self.services["worker-gpu"]
        self.assertEqual(gpu["profiles"], ["gpu"])
        self.assertEqual(gpu["shm_size"], "8g")
        self.assertEqual(gpu["ulimits"]["memlock"], -1)
        self.assertEqual(gpu["cap_add"], ["IPC_LOCK"])
        self.assertEqual(gpu["deploy"]["resources"]["reservations"]["devices"],
                         [{"driver": "nvidia", "count": "all", "capabilities": ["gpu"]}])

    def test_a_machine_with_gpus_has_a_file_of_its_own(self):
        """Checks compose.gpu-host.yaml and the file that adds InfiniBand to it."""
        check = jsonschema.Draft7Validator(json.loads(deploy.read("tests/deploy/compose-spec.json")))
        host, infiniband = (yaml.safe_load(deploy.read(f"deploy/compose.{name}.yaml"))
                            for name in ("gpu-host", "infiniband"))
        for file in (host, infiniband):
            self.assertEqual([e.message for e in check.iter_errors(file)], [])
        worker, gpu = host["services"]["worker"], self.services["worker-gpu"]
        self.assertEqual(worker["network_mode"], "host")
        for field in ("cap_drop", "cap_add", "security_opt", "read_only", "shm_size", "ulimits", "deploy", "image",
                      "build", "healthcheck", "logging"):
            self.assertEqual(worker[field], gpu.get(field, self.services["worker-0"].get(field)), field)
        flags = dict(word[2:].split("=", 1) for word in worker["command"])
        self.assertLessEqual(set(flags), known_flags("worker/main.cc"))
        # The ports of executors are two apart, so those of clients and those of peers must not be an even number apart.
        ports = [int(flags[flag].rsplit(":", 1)[1]) for flag in ("data-listen", "peer-listen")]
        self.assertEqual((ports[1] - ports[0]) % 2, 1)
        for listen, advertise in (("data-listen", "advertise-client"), ("peer-listen", "advertise-peer")):
            self.assertEqual(flags[listen].rsplit(":", 1)[1], flags[advertise].rsplit(":", 1)[1])
        head = deploy.read("deploy/compose.gpu-host.yaml").split("\nname:")[0]
        for variable in re.findall(r"\$\{(\w+)", deploy.read("deploy/compose.gpu-host.yaml")):
            self.assertIn(variable, head)
        self.assertEqual(list(infiniband["services"]), ["worker"])
        self.assertEqual(infiniband["services"]["worker"]["devices"], ["/dev/infiniband"])

    def test_prometheus_scrapes_the_services(self):
        jobs = {job["job_name"]: job for job in
                yaml.safe_load(deploy.read("deploy/prometheus/prometheus.yml"))["scrape_configs"]}
        scraped = set()
        for job in jobs.values():
            for group in job.get("static_configs", []):
                scraped |= set(group["targets"])
            for group in job.get("dns_sd_configs", []):
                scraped |= {f"{name}:{group['port']}" for name in group["names"]}
        listens = {"localhost:9090"}
        for name in DAEMONS:
            flags = dict(word[2:].split("=", 1) for word in self.services[name]["command"])
            port = flags["metrics-listen"].rsplit(":", 1)[1]
            listens.add(f"{name}:{port}")
            self.assertIn("metrics", self.services[name]["networks"])
        self.assertEqual(scraped, listens)

    def test_prometheus_serves_the_runbooks_that_alerts_link(self):
        prometheus = self.services["prometheus"]
        self.assertIn("--web.external-url=http://localhost:9090", prometheus["command"])
        self.assertIn("--web.user-assets=/docs", prometheus["command"])
        self.assertIn("../docs:/docs:ro", prometheus["volumes"])
        self.assertIn("outside", prometheus["networks"])

    def test_grafana_finds_its_files(self):
        mounts = dict(reversed(mount.split(":")[:2])
                      for mount in self.services["grafana"]["volumes"])
        self.assertEqual(mounts["/etc/grafana/provisioning"], "./grafana/provisioning")
        provider = yaml.safe_load(deploy.read("deploy/grafana/provisioning/dashboards/tessera.yml"))
        self.assertEqual(mounts[provider["providers"][0]["options"]["path"]],
                         "./grafana/dashboards")
        home = self.services["grafana"]["environment"]["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"]
        self.assertIn(os.path.basename(home), deploy.dashboards())
        source = yaml.safe_load(deploy.read("deploy/grafana/provisioning/datasources/prometheus.yml"))
        self.assertEqual(source["datasources"][0]["url"], "http://prometheus:9090")
        # Grafana computes $__rate_interval from this.
        scrape = yaml.safe_load(deploy.read("deploy/prometheus/prometheus.yml"))["global"]
        self.assertEqual(source["datasources"][0]["jsonData"]["timeInterval"],
                         scrape["scrape_interval"])


class ImagesTest(unittest.TestCase):
    def test_dockerfiles_stage_their_list_and_run_as_a_user(self):
        for name in ("coordinator", "cpu-worker", "cuda-worker"):
            with self.subTest(name):
                text = deploy.read(f"deploy/docker/{name}.Dockerfile")
                self.assertIn(f"RUN scripts/stage deploy/images/{name}.files build/release "
                              "/stage/opt/tessera\n", text)
                self.assertTrue(os.path.exists(deploy.path(f"deploy/images/{name}.files")))
                final = text[text.rindex("\nFROM "):]
                self.assertIn("\nUSER 10001:10001\n", final)
                self.assertIn("\nHEALTHCHECK ", final)
                # The image contains only the staged files, whatever else the build made.
                self.assertEqual(re.findall(r"^COPY .*$", final, re.M),
                                 ["COPY --from=programs /stage/opt/tessera /opt/tessera"])
                # The programs are built from source, unless an image is given that contains them.
                self.assertIn("\nARG PROGRAMS=build\n", text)
                self.assertIn("\nFROM ${PROGRAMS} AS programs\n", text)
                # An engine would fetch a syntax that it lacks from the network.
                self.assertNotIn("# syntax", text)
                for source in re.findall(r"(?:source=|COPY )(scripts/\S+|deploy/\S+?)[, ]", text):
                    self.assertTrue(os.path.exists(deploy.path(source)), source)

    def test_volumes_belong_to_the_user(self):
        """A new volume takes the owner of the folder in the image that it is mounted over."""
        prepared = set(deploy.read("deploy/images/prepare").replace("\\\n", " ").split())
        for name, service in compose()["services"].items():
            if service["image"].startswith("tessera/"):
                for mount in service.get("volumes", []):
                    self.assertIn(mount.split(":")[1], {p.rstrip(";") for p in prepared}, name)


class SystemdTest(unittest.TestCase):
    def test_units_know_the_daemons_flags(self):
        for unit, main in (("coordinator", "server/main.cc"), ("worker", "worker/main.cc")):
            text = deploy.read(f"deploy/systemd/tessera-{unit}.service")
            start = re.search(r"^ExecStart=((?:.*\\\n)*.*)$", text, re.M).group(1)
            words = start.replace("\\\n", " ").split()
            self.assertEqual(words[0], f"/opt/tessera/bin/tessera-{unit}")
            flags = {word[2:].split("=")[0] for word in words[1:] if word.startswith("--")}
            self.assertGreater(len(flags), 5)
            self.assertLessEqual(flags, known_flags(main))
            for folder in re.findall(r"=(/var/\S+)", start):
                base, name = re.fullmatch(r"/var/(lib|cache)/(.*)", folder).groups()
                directory = {"lib": "StateDirectory", "cache": "CacheDirectory"}[base]
                self.assertIn(f"\n{directory}={name}\n", text)
            for line in ("User=tessera", "Restart=always", "NoNewPrivileges=yes"):
                self.assertIn(f"\n{line}\n", text)

    def test_units_start_again_however_often_they_have_ended(self):
        """By default systemd gives up after 5 starts in 10 s, and one second passes between two
        starts."""
        for unit in ("coordinator", "worker"):
            text = deploy.read(f"deploy/systemd/tessera-{unit}.service")
            section = re.search(r"^\[Unit\]\n((?:(?!\[).*\n)*)", text, re.M).group(1)
            self.assertIn("StartLimitIntervalSec=0\n", section)


if __name__ == "__main__":
    unittest.main()
