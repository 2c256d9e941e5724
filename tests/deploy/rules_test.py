"""Tests the alerts, their runbooks and the dashboards without a daemon. Names must exist, texts
must be there, and promtool checks for each alert one case where it fires and one where it does
not."""
import importlib.machinery
import importlib.util
import json
import os
import re
import tempfile
import unittest

import yaml

import deploy_testing as deploy

SEVERITIES = {"page", "ticket", "warning"}


def rules():
    text = yaml.safe_load(deploy.read("deploy/prometheus/alerts.yml"))
    return [rule for group in text["groups"] for rule in group["rules"]]


def alerts():
    return [rule for rule in rules() if "alert" in rule]


def records():
    return {rule["record"] for rule in rules() if "record" in rule}


def methods():
    """Returns the fields of the request of every RPC, by "service/method"."""
    folder = deploy.path("proto/tessera/v1")
    texts = [deploy.read(folder, name) for name in os.listdir(folder)]
    fields = {}
    for text in texts:
        for message, body in re.findall(r"^message (\w+) \{(.*?)^\}", text, re.S | re.M):
            fields[message] = set(re.findall(r"^  [\w. ]+ (\w+) = \d+;", body, re.M))
    found = {}
    for text in texts:
        for service, body in re.findall(r"^service (\w+) \{(.*?)^\}", text, re.S | re.M):
            for rpc, request in re.findall(r"^  rpc (\w+)\((?:stream )?(\w+)\)", body, re.M):
                found[f"tessera.v1.{service}/{rpc}"] = fields.get(request, set())
    return found


def keys(command):
    """Returns the fields that are named in the -d argument of a command."""
    data = re.search(r"-d '(\{.*\})' ", command)
    return set(json.loads(re.sub(r"'\$(\w+)'", r"\1", data.group(1)))) if data else set()


def make_dashboards():
    loader = importlib.machinery.SourceFileLoader("make_dashboards",
                                                  deploy.path("scripts/make_dashboards.py"))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader(loader.name, loader))
    loader.exec_module(module)
    return module


class AlertsTest(unittest.TestCase):
    def test_prometheus_takes_its_configuration(self):
        status, output = deploy.promtool("check", "config", "prometheus.yml",
                                         cwd=deploy.path("deploy/prometheus"))
        self.assertEqual(status, 0, output)

    def test_each_alert_fires_and_stays_quiet(self):
        status, output = deploy.promtool("test", "rules", "alerts_test.yml",
                                         cwd=deploy.path("deploy/prometheus"))
        self.assertEqual(status, 0, output)
        cases = {}
        for test in yaml.safe_load(deploy.read("deploy/prometheus/alerts_test.yml"))["tests"]:
            for case in test["alert_rule_test"]:
                cases.setdefault(case["alertname"], set()).add(bool(case["exp_alerts"]))
        self.assertEqual(cases, {alert["alert"]: {True, False} for alert in alerts()})

    def test_promtool_sees_a_wrong_expectation(self):
        """Proves that the test above can fail."""
        text = deploy.read("deploy/prometheus/alerts_test.yml")
        wrong = text.replace("1.961% of", "2.961% of")
        self.assertNotEqual(wrong, text)
        folder = deploy.path("deploy/prometheus")
        wrong = wrong.replace("rule_files: [alerts.yml]", f"rule_files: [{folder}/alerts.yml]")
        with tempfile.NamedTemporaryFile("w", suffix=".yml") as file:
            file.write(wrong)
            file.flush()
            status, output = deploy.promtool("test", "rules", file.name)
        self.assertNotEqual(status, 0)
        self.assertIn("TesseraErrorBudgetBurnFast", output)

    def test_each_says_what_where_and_what_to_do(self):
        table = deploy.metric_table()
        for alert in alerts():
            with self.subTest(alert["alert"]):
                self.assertIn(alert["labels"]["severity"], SEVERITIES)
                notes = alert["annotations"]
                # The summary names a worker, a tenant or a target, or it gives the number that is
                # wrong.
                self.assertRegex(notes["summary"], r"\{\{ \$(labels\.|value)")
                for label in ("worker", "tenant", "device"):
                    kept = re.search(r"by \(([^)]*)\)", alert["expr"])
                    if kept and label in kept.group(1).split(", "):
                        self.assertIn("$labels." + label, notes["summary"])
                self.assertTrue(notes["description"].endswith("."))
                self.assertEqual(deploy.unknown_names(alert["expr"], table, records()), [])
                served = re.fullmatch(r"\{\{ \$externalURL \}\}/user/(.*)", notes["runbook_url"])
                self.assertEqual(served.group(1), f"runbooks/{alert['alert']}.md")
                self.assertTrue(os.path.isfile(deploy.path("docs", served.group(1))))

    def test_records_use_metrics_that_exist(self):
        table = deploy.metric_table()
        for rule in rules():
            if "record" in rule:
                self.assertEqual(deploy.unknown_names(rule["expr"], table), [])

    def test_each_alert_has_a_runbook_that_begins_with_a_call(self):
        known = methods()
        self.assertIn("tessera.v1.ClusterService/ListDevices", known)
        names = {alert["alert"] for alert in alerts()}
        pages = {name[:-3] for name in os.listdir(deploy.path("docs/runbooks"))
                 if name != "README.md"}
        self.assertEqual(pages, names)
        for name in sorted(names):
            with self.subTest(name):
                text = deploy.read(f"docs/runbooks/{name}.md")
                self.assertTrue(text.startswith(f"# {name}\n"))
                blocks = re.findall(r"^```sh\n(.*?)^```$", text, re.S | re.M)
                self.assertTrue(blocks, "no command")
                self.assertTrue(blocks[0].startswith("grpcurl "), blocks[0])
                for command in blocks[0].replace("\\\n", "").splitlines():
                    method = command.split()[-1]
                    if method != "grpc.health.v1.Health/Check":
                        self.assertIn(method, known)
                        self.assertLessEqual(keys(command), known[method])

    def test_runbooks_name_what_exists(self):
        """Codes, reasons, states and label values in the runbooks must exist in the code."""
        sources = ["base/metrics.def", "base/error_kinds.def", "base/options.def"]
        sources += ["proto/tessera/v1/" + n for n in os.listdir(deploy.path("proto/tessera/v1"))
                    if n.endswith(".proto")]
        known = set(re.findall(r"\w+", " ".join(map(deploy.read, sources))))
        named = set()
        for name in sorted(os.listdir(deploy.path("docs/runbooks"))):
            for word in re.findall(r"`(\w+_\w+)`", deploy.read("docs/runbooks", name)):
                with self.subTest(page=name, word=word):
                    self.assertIn(word, known)
                named.add(word)
        self.assertGreater(len(named), 10)

    def test_a_name_that_does_not_exist_is_seen(self):
        table = deploy.metric_table()
        self.assertEqual(deploy.unknown_names('rate(tessera_nothing_total[5m])', table),
                         ["no metric tessera_nothing_total"])
        self.assertEqual(deploy.unknown_names('sum by (colour) (tessera_workers)', table),
                         ["no metric in it has a label colour"])
        self.assertEqual(deploy.unknown_names('tessera_workers{colour="red"}', table),
                         ["no metric in it has a label colour"])
        self.assertEqual(deploy.unknown_names('tessera_plan_seconds', table),
                         ["no metric tessera_plan_seconds"])


class DashboardsTest(unittest.TestCase):
    def test_files_are_what_the_script_writes(self):
        made = make_dashboards().files()
        self.assertEqual(sorted(made), sorted(deploy.dashboards()))
        for name, text in made.items():
            self.assertEqual(deploy.read("deploy/grafana/dashboards", name), text,
                             f"{name}: run scripts/make_dashboards.py")

    def test_queries_use_metrics_that_exist(self):
        table = deploy.metric_table()
        count = 0
        for where, expression in deploy.panel_queries():
            with self.subTest(where):
                self.assertEqual(deploy.unknown_names(deploy.concrete(expression), table), [])
                self.assertNotIn("$", deploy.concrete(expression))
                count += 1
        self.assertGreater(count, 60)

    def test_variables_ask_for_labels_that_exist(self):
        table = deploy.metric_table()
        for name, board in deploy.dashboards().items():
            listed = {v["name"] for v in board["templating"]["list"]}
            self.assertIn("datasource", listed)
            used = set(re.findall(r"\$(\w+)", "".join(
                target["expr"] for panel in board["panels"] for target in panel.get("targets", []))))
            used = {v for v in used if not v.startswith("__")}
            self.assertEqual(used, listed - {"datasource"}, name)
            for variable in board["templating"]["list"]:
                asked = re.match(r"label_values\((\w+)(\{.*\})?, (\w+)\)",
                                 variable.get("definition", ""))
                self.assertEqual(bool(asked), variable["type"] == "query")
                if asked:
                    self.assertIn(asked.group(3), table[asked.group(1)][1] | {"instance"})

    def test_every_query_asks_the_chosen_targets_alone(self):
        places = make_dashboards().EXPOSERS
        self.assertEqual(set(places), set(deploy.metric_table()))
        count = 0
        for where, expression in deploy.panel_queries():
            for name, selected in re.findall(r"\b((?:tessera|process)_\w+)(\{[^}]*\})?", expression):
                with self.subTest(where, metric=name):
                    place = places.get(name) or places[re.sub("_(bucket|count|sum)$", "", name)]
                    chosen = re.search(r'instance=~"([^"]*)"', selected).group(1)
                    self.assertEqual("$coordinator" in chosen, place.startswith(("Coord", "Both")))
                    self.assertEqual("$instance" in chosen, place != "Coordinator")
                    count += 1
        self.assertGreater(count, 100)

    def test_every_panel_explains_itself_and_none_overlap(self):
        uids = set()
        for name, board in deploy.dashboards().items():
            uids.add(board["uid"])
            taken = set()
            ids = set()
            for panel in board["panels"]:
                with self.subTest(f"{name}: {panel['title']}"):
                    place = panel["gridPos"]
                    cells = {(x, y) for x in range(place["x"], place["x"] + place["w"])
                             for y in range(place["y"], place["y"] + place["h"])}
                    self.assertFalse(cells & taken)
                    self.assertLessEqual(place["x"] + place["w"], 24)
                    taken |= cells
                    self.assertNotIn(panel["id"], ids)
                    ids.add(panel["id"])
                    if panel["type"] == "row":
                        continue
                    self.assertTrue(panel["description"].endswith("."))
                    if panel["type"] == "alertlist":
                        continue
                    self.assertTrue(panel["fieldConfig"]["defaults"]["unit"])
                    self.assertTrue(panel["targets"])
        self.assertEqual(len(uids), len(deploy.dashboards()))


if __name__ == "__main__":
    unittest.main()
