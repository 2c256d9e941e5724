"""Helpers for the tests of deploy/: the source tree, Prometheus' tools, and checks of our
PromQL."""
import json
import os
import re
import subprocess

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
DEPLOY = os.path.join(ROOT, "deploy")
DASHBOARDS = os.path.join(DEPLOY, "grafana/dashboards")


def path(*parts):
    return os.path.join(ROOT, *parts)


def read(*parts):
    with open(path(*parts), encoding="utf-8") as file:
        return file.read()


def tool(name):
    """Returns the path of promtool or prometheus, where scripts/unpack_tools puts them."""
    found = path("build/tools/prometheus/usr/bin", name)
    if not os.path.exists(found):
        raise FileNotFoundError(f"{found} is missing: run scripts/unpack_tools")
    return found


def promtool(*args, cwd=None):
    """Runs promtool. Returns (exit status, output)."""
    done = subprocess.run([tool("promtool"), *args], cwd=cwd, capture_output=True, text=True,
                          timeout=120)
    return done.returncode, done.stdout + done.stderr


def dashboards():
    """Returns the dashboards by file name."""
    found = {}
    for name in sorted(os.listdir(DASHBOARDS)):
        with open(os.path.join(DASHBOARDS, name), encoding="utf-8") as file:
            found[name] = json.load(file)
    return found


def panel_queries():
    """Yields (where, expression) for every query of every panel and annotation."""
    for name, board in dashboards().items():
        for panel in board["panels"]:
            for target in panel.get("targets", []):
                yield f"{name}: {panel['title']} {target['refId']}", target["expr"]
        for note in board["annotations"]["list"]:
            yield f"{name}: annotation {note['name']}", note["expr"]


def concrete(expression, rate="15s", span="5m"):
    """Returns the expression as Grafana sends it when every variable is "All"."""
    for name, value in (("$__rate_interval", rate), ("$__range", span), ("$tenant", ".*"),
                        ("$worker", ".*"), ("$program", ".*"), ("$coordinator", ".*"),
                        ("$instance", ".*")):
        expression = expression.replace(name, value)
    return expression


def metric_table():
    """Returns name -> (type, label names) for every row of base/metrics.def."""
    table = {}
    row = re.compile(r'^TESSERA_METRIC\(\w+, "(\w+)", (\w+), "([^"]*)", (\w+), (\w+), ', re.M)
    for name, kind, labels, _, _ in row.findall(read("base/metrics.def")):
        names = {label.split(":")[0] for label in labels.split(",") if label}
        table[name] = (kind, names)
    return table


# Prometheus itself adds these labels.
TARGET_LABELS = {"job", "instance", "le"}
OWN_METRICS = {"up": set()}


def unknown_names(expression, table, records=()):
    """Returns complaints about metrics and labels of `expression` that no row of `table` has."""
    complaints = []
    # Remove the contents of strings, because they hold no names of metrics or labels.
    bare = re.sub(r'"(?:[^"\\]|\\.)*"', '""', expression)
    labels = set(TARGET_LABELS)
    for name in set(re.findall(r"\b(?:tessera_\w+|process_\w+|up\b|[a-z]+:\w+:\w+)", bare)):
        if name in records or name in OWN_METRICS:
            labels |= {"tenant"} if name in records else set()
            continue
        base = re.sub(r"_(bucket|count|sum)$", "", name)
        if name in table and table[name][0] != "Histogram":
            labels |= table[name][1]
        elif base != name and table.get(base, ("",))[0] == "Histogram":
            labels |= table[base][1]
        else:
            complaints.append(f"no metric {name}")
    used = set(re.findall(r"(\w+)\s*(?:=~|!~|!=|=)\s*\"\"", bare))
    for group in re.findall(r"\b(?:by|on|without|ignoring|group_left)\s*\(([^)]*)\)", bare):
        used |= {label.strip() for label in group.split(",") if label.strip()}
    complaints += [f"no metric in it has a label {label}" for label in sorted(used - labels)]
    return complaints
