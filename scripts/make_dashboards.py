#!/usr/bin/env python3
"""Writes deploy/grafana/dashboards/*.json. The dashboards are described here, the JSON is generated.

    scripts/make_dashboards.py            writes the files
    scripts/make_dashboards.py --check    writes nothing; fails and names the files that it would change

A dashboard has rows of panels. A panel has a title, a unit, queries with their legends, and a sentence that says which
values are normal. tests/deploy parses every query and runs it against real daemons.
"""

import json
import os
import re
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
FOLDER = os.path.join(ROOT, "deploy/grafana/dashboards")
SOURCE = {"type": "prometheus", "uid": "${datasource}"}
WIDTH = 24  # Columns of Grafana's grid.

GOOD, WARN, BAD, PLAIN = "green", "orange", "red", "blue"


# -- The choice of daemons.

# The variables that choose the targets of a metric, by the process that exposes the metric (base/metrics.def).
TARGETS = {"Coordinator": "$coordinator", "Worker": "$instance", "Executor": "$instance",
           "CoordinatorAndWorker": "$coordinator|$instance",
           "CoordinatorAndExecutor": "$coordinator|$instance"}


def exposers():
    """Maps each metric to the process that exposes it."""
    with open(os.path.join(ROOT, "base/metrics.def"), encoding="utf-8") as file:
        return dict(re.findall(r'^TESSERA_METRIC\(\w+, "(\w+)", \w+, "[^"]*", \w+, (\w+), ',
                               file.read(), re.M))


EXPOSERS = exposers()


def of_targets(expression):
    """Returns the expression with all its metrics restricted to the chosen targets."""
    def restrict(match):
        name, selected = match.group(1), match.group(2) or ""
        place = EXPOSERS.get(name) or EXPOSERS[re.sub("_(bucket|count|sum)$", "", name)]
        return f'{name}{{{", ".join(filter(None, [selected[1:-1], own(place)]))}}}'

    def own(place):
        return f'instance=~"{TARGETS[place]}"'

    return re.sub(r"\b((?:tessera|process)_\w+)(\{[^}]*\})?", restrict, expression)


# -- Panels.


def steps(*pairs):
    """Returns thresholds. The pairs are (None, colour) and then (smallest value, colour) for each step."""
    return {"mode": "absolute", "steps": [{"value": at, "color": colour} for at, colour in pairs]}


def panel(kind, title, unit, queries, about, *, width, height, instant=False, thresholds=None,
          options=None, custom=None, **defaults):
    """Returns a panel. `queries` are (expression, legend) pairs."""
    if kind == "heatmap":
        targets_format = "heatmap"
    else:
        targets_format = "table" if kind == "table" else "time_series"
    field = {"unit": unit, **defaults}
    if thresholds:
        field["thresholds"] = thresholds
    if custom is not None:
        field["custom"] = custom
    return {
        "type": kind,
        "title": title,
        "description": about,
        "datasource": SOURCE,
        "fieldConfig": {"defaults": field, "overrides": []},
        "gridPos": {"w": width, "h": height},
        "options": options or {},
        "targets": [{"datasource": SOURCE, "refId": chr(ord("A") + i), "expr": of_targets(expr),
                     "legendFormat": legend, "format": targets_format, "instant": instant,
                     "range": not instant}
                    for i, (expr, legend) in enumerate(queries)],
    }


def stat(title, unit, expr, about, thresholds, *, width=3, decimals=None, mappings=None):
    extra = {} if decimals is None else {"decimals": decimals}
    if mappings:
        extra["mappings"] = mappings
    return panel("stat", title, unit, [(expr, title)], about, width=width, height=4, instant=True,
                 thresholds=thresholds, **extra,
                 options={"colorMode": "background", "graphMode": "none", "justifyMode": "center",
                          "reduceOptions": {"calcs": ["lastNotNull"], "fields": "",
                                            "values": False}})


def graph(title, unit, queries, about, *, width=8, height=8, stack=False, limit=None, top=None):
    custom = {"drawStyle": "line", "lineWidth": 1, "fillOpacity": 30 if stack else 8,
              "showPoints": "never", "spanNulls": False,
              "stacking": {"mode": "normal" if stack else "none", "group": "A"}}
    thresholds = None
    if limit is not None:
        custom["thresholdsStyle"] = {"mode": "dashed"}
        thresholds = steps((None, "transparent"), (limit, BAD))
    extra = {"min": 0}
    if top is not None:
        extra["max"] = top
    return panel("timeseries", title, unit, queries, about, width=width, height=height,
                 custom=custom, thresholds=thresholds, **extra,
                 options={"legend": {"displayMode": "table", "placement": "bottom",
                                     "calcs": ["lastNotNull", "max"]},
                          "tooltip": {"mode": "multi", "sort": "desc"}})


def table(title, unit, expr, about, *, width=8, height=8):
    made = panel("table", title, unit, [(expr, "")], about, width=width, height=height,
                 instant=True, options={"showHeader": True,
                                        "sortBy": [{"displayName": "Value", "desc": True}]})
    made["transformations"] = [{"id": "organize", "options": {"excludeByName": {
        "Time": True, "__name__": True, "instance": True, "job": True}}}]
    return made


def heat(title, unit, expr, about, *, width=8, height=8):
    return panel("heatmap", title, unit, [(expr, "{{le}}")], about, width=width, height=height,
                 options={"calculate": False, "yAxis": {"unit": unit},
                          "color": {"mode": "scheme", "scheme": "Blues", "steps": 32},
                          "cellGap": 1, "tooltip": {"show": True}})


def bars(title, unit, expr, legend, about, thresholds, *, width=8, height=8, top=None):
    extra = {} if top is None else {"min": 0, "max": top}
    return panel("bargauge", title, unit, [(expr, legend)], about, width=width, height=height,
                 instant=True, thresholds=thresholds, **extra,
                 options={"displayMode": "lcd", "orientation": "horizontal",
                          "reduceOptions": {"calcs": ["lastNotNull"], "fields": "",
                                            "values": False}})


def firing(title, about, *, width=8, height=8):
    return {"type": "alertlist", "title": title, "description": about, "datasource": SOURCE,
            "gridPos": {"w": width, "h": height}, "targets": [],
            "options": {"viewMode": "list", "groupMode": "default", "maxItems": 20,
                        "sortOrder": 3, "alertName": "Tessera",
                        "stateFilter": {"firing": True, "pending": True, "error": True,
                                        "noData": False, "normal": False}}}


def quantiles(metric, by, filters, at=(0.5, 0.95, 0.99)):
    """Returns an (expression, legend) pair for each quantile of a histogram. `by` are the labels to keep."""
    kept = ", ".join([*by, "le"])
    name = " ".join("{{%s}}" % label for label in by)
    return [(f"histogram_quantile({q}, sum by ({kept}) "
             f"(rate({metric}_bucket{{{filters}}}[$__rate_interval])))",
             f"{name} p{q * 100:g}".strip()) for q in at]


# -- The parts that the dashboards share.

TENANT = 'tenant=~"$tenant"'
WORKER = 'worker=~"$worker"'

# The variables of the dashboards. The first two choose a cluster if one Prometheus watches several.
VARIABLES = {
    "coordinator": ("Coordinator", "label_values(tessera_health, instance)"),
    "instance": ("Worker daemon", "label_values(tessera_executor_up, instance)"),
    "tenant": ("Tenant", "label_values({}, tenant)".format(
        of_targets("tessera_operations_submitted_total"))),
    "worker": ("Worker", "label_values({}, worker)".format(of_targets("tessera_executor_up"))),
    "program": ("Program", "label_values({}, program)".format(
        of_targets("tessera_program_steps_total"))),
}

LINKS = [{"type": "dashboards", "title": "Tessera", "tags": ["tessera"], "asDropdown": True,
          "includeVars": True, "keepTime": True}]


def variables(names):
    listed = [{"type": "datasource", "name": "datasource", "label": "Data source",
               "query": "prometheus", "current": {}, "hide": 0, "refresh": 1}]
    for name in names:
        label, query = VARIABLES[name]
        listed.append({"type": "query", "name": name, "label": label, "datasource": SOURCE,
                       "query": {"query": query, "refId": name}, "definition": query,
                       "includeAll": True, "allValue": ".*", "multi": True, "refresh": 2,
                       "sort": 1, "current": {"text": ["All"], "value": ["$__all"]}})
    return listed


def dashboard(uid, title, about, variable_names, *rows):
    """Returns a dashboard. Each row is (title, panels...); its panels are placed from left to right and wrap."""
    variable_names = ["coordinator", "instance", *variable_names]
    panels = []
    y = 0
    for name, *members in rows:
        panels.append({"type": "row", "title": name, "collapsed": False, "panels": [],
                       "gridPos": {"x": 0, "y": y, "w": WIDTH, "h": 1}})
        y += 1
        x = line = 0
        for member in members:
            place = member["gridPos"]
            if x + place["w"] > WIDTH:
                x, y, line = 0, y + line, 0
            place.update(x=x, y=y)
            x += place["w"]
            line = max(line, place["h"])
            panels.append(member)
        y += line
    for number, member in enumerate(panels, 1):
        member["id"] = number
    return {"uid": uid, "title": title, "description": about, "tags": ["tessera"],
            "schemaVersion": 39, "version": 1, "editable": True, "graphTooltip": 1,
            "refresh": "10s", "time": {"from": "now-30m", "to": "now"}, "timezone": "browser",
            "links": LINKS, "templating": {"list": variables(variable_names)},
            "annotations": {"list": [
                {"name": "Coordinator starts", "datasource": SOURCE, "enable": True,
                 "iconColor": WARN, "titleFormat": "coordinator started",
                 "expr": of_targets("changes(tessera_coordinator_epoch[1m]) > 0")}]},
            "panels": panels}


# -- The four dashboards.


def overview():
    completed = f"tessera_operations_completed_total{{{TENANT}}}"
    failed = f'tessera_operations_completed_total{{outcome="error",{TENANT}}}'
    return dashboard(
        "tessera-overview", "Tessera / Overview",
        "Shows whether the cluster is up and busy, which operations wait, and which fail.", ["tenant", "worker"],
        ("Now",
         stat("Serving", "none", 'min(tessera_health{check="ready"})',
              "1 while a canary program has lately run on the devices; the health check answers "
              "the same.", steps((None, BAD), (1, GOOD)),
              mappings=[{"type": "value", "options": {"0": {"text": "NO"}, "1": {"text": "YES"}}}]),
         stat("Ready devices", "none", 'sum(tessera_devices{state="ready"})',
              "Devices that take launches.", steps((None, BAD), (1, GOOD))),
         stat("Devices", "none", "sum(tessera_devices)",
              "Devices of all workers that have registered, lost ones included.",
              steps((None, PLAIN))),
         stat("Operations per second", "ops", f"sum(rate({completed}[$__rate_interval]))",
              "Operations that ended, well or not.", steps((None, PLAIN)), decimals=1),
         stat("Failed", "percentunit",
              f"sum(rate({failed}[$__rate_interval])) / "
              f"(sum(rate({completed}[$__rate_interval])) > 0)",
              "Share of the operations that ended in an error. Users' own mistakes count, and cancelled "
              "operations do not. Empty while nothing ends.",
              steps((None, GOOD), (0.01, WARN), (0.05, BAD)), decimals=2),
         stat("End to end, p99", "s",
              quantiles("tessera_operation_end_to_end_seconds", [], TENANT, at=(0.99,))[0][0],
              "Time from acceptance to the end, waiting included. Empty while nothing ends.",
              steps((None, PLAIN)), decimals=2),
         stat("Oldest operation", "s", "max(tessera_operation_oldest_age_seconds)",
              "The age of the oldest operation that has not ended; counted at the scrape, so that "
              "it grows during a hang.", steps((None, GOOD), (60, WARN), (600, BAD)), decimals=0),
         stat("Stuck collectives, 24 h", "none",
              "sum(increase(tessera_collective_stuck_total[24h]))",
              "Operations that failed because a collective did not end. Normal: 0.",
              steps((None, GOOD), (1, BAD)), decimals=0)),
        ("Work",
         graph("Operations by outcome", "ops",
               [(f"sum by (outcome) (rate({completed}[$__rate_interval]))", "{{outcome}}")],
               "How operations end.", stack=True),
         graph("Waiting, by tenant", "none",
               [(f"sum by (tenant) (tessera_queue_depth{{{TENANT}}})", "{{tenant}}")],
               "Operations accepted that have no place in the order yet.", stack=True),
         graph("Waiting, by reason", "none",
               [("sum by (reason) (tessera_queue_pending_reason)", "{{reason}}")],
               "Operations that have no place in the order yet, by the reason that GetOperation gives.",
               stack=True),
         graph("Busy share of devices", "percentunit",
               [(f"sum by (worker) (rate(tessera_device_busy_seconds_total{{{WORKER}}}"
                 f"[$__rate_interval])) / count by (worker) "
                 f"(tessera_device_busy_seconds_total{{{WORKER}}})", "{{worker}}")],
               "Time with a launch under way, over the worker's devices. 1: all of them were busy "
               "all the time.", top=1),
         graph("Workers by state", "none",
               [("sum by (state) (tessera_workers)", "{{state}}")],
               "Normal: all ready. `tessera drain` and cordons show here.", stack=True),
         graph("End to end", "s",
               quantiles("tessera_operation_end_to_end_seconds", [], TENANT),
               "Time from the acceptance of an operation until its end.")),
        ("Failures",
         table("Errors by reason", "none",
               "topk(10, sum by (tenant, reason) (increase(tessera_operations_completed_total"
               f'{{outcome!="ok",{TENANT}}}[$__range])))',
               "Over the time shown. docs/errors.md says what each reason means and whether a "
               "retry helps.", width=8),
         graph("Calls that fail, by code", "ops",
               [('sum by (code) (rate(tessera_rpc_duration_seconds_count{code!="OK"}'
                 "[$__rate_interval]))", "{{code}}")],
               "RPCs of the coordinator that answered with an error.", stack=True),
         firing("Alerts", "Alerts that fire or are about to fire; each alert links its runbook.")))


def one_run():
    program = 'program=~"$program"'
    rate = "[$__rate_interval]"
    count = f"rate(tessera_program_steps_total{{{program}}}{rate})"
    def per_step(metric):
        return (f"sum by (program) (rate({metric}{{{program}}}{rate})) / "
                f"(sum by (program) ({count}) > 0)")
    return dashboard(
        "tessera-run", "Tessera / One run",
        "Shows where the time of a program's steps goes. The 20 programs that use devices most have a "
        "name of their own; the rest is `other`.", ["program", "tenant", "worker"],
        ("Steps",
         graph("Steps per second", "ops", [(f"sum by (program) ({count})", "{{program}}")],
               "Runs of the program that ended well."),
         graph("Time of a step", "s",
               [(per_step("tessera_program_step_seconds_total"), "{{program}}")],
               "Mean time from a place in the order to the end."),
         graph("Device time of a step", "s",
               [(per_step("tessera_program_device_busy_seconds_total"), "{{program}}")],
               "Summed over devices: divided by their number and the time of a step it is the "
               "share in which they compute."),
         graph("Why steps wait", "s",
               [(f"sum by (cause) (rate(tessera_program_idle_seconds_total{{{program}}}{rate})) / "
                 f"scalar(sum({count}) > 0)", "{{cause}}")],
               "Waiting of a step before its devices took it, by cause: for an input, for a peer, "
               "for the compiler, or because there was no work.", stack=True),
         graph("Bytes moved by a step", "bytes",
               [(per_step("tessera_program_bytes_moved_total"), "{{program}}")],
               "Bytes that its collectives send, and bytes that are moved to bring arguments into "
               "place."),
         table("Programs by device time", "s",
               f"topk(20, sum by (program) (increase(tessera_program_device_busy_seconds_total"
               f"{{{program}}}[$__range])))", "Over the time shown.")),
        ("The stages of an operation",
         graph("Waiting for a place", "s",
               quantiles("tessera_operation_queue_seconds", ["tenant"], TENANT, at=(0.5, 0.95)),
               "Time from acceptance to a place in the order."),
         graph("Running", "s",
               quantiles("tessera_operation_execute_seconds", ["platform"], TENANT,
                         at=(0.5, 0.95)),
               "Time from a place in the order to the end."),
         graph("Under way", "none",
               [(f"sum by (kind, stage) (tessera_operations_active{{{TENANT}}})",
                 "{{kind}} {{stage}}")], "Operations that have not ended.", stack=True)),
        ("Before the first step",
         graph("Planning", "s", quantiles("tessera_plan_seconds", ["outcome"], "", at=(0.5, 0.95)),
               "Propagation, partition and the bound on memory, once per program and mesh."),
         graph("Compiling", "s",
               quantiles("tessera_compile_seconds", ["platform"], WORKER, at=(0.5, 0.95)),
               "A device program to machine code, once per kind of device."),
         graph("Plans found ready", "percentunit",
               [("sum(rate(tessera_compile_cache_requests_total{result=~\"hit|coalesced\"}"
                 f"{rate})) / (sum(rate(tessera_compile_cache_requests_total{rate})) > 0)",
                 "found or being made")],
               "A training loop is near 1 after its first step; a low value means that the "
               "program differs from step to step.", top=1)),
        ("Arrays",
         graph("Arrays", "none",
               [(f"sum by (state) (tessera_arrays{{{TENANT}}})", "{{state}}")],
               "A line that only grows is a client that keeps handles.", stack=True),
         graph("Bytes of arrays", "bytes",
               [(f"sum by (tenant, space) (tessera_array_bytes{{{TENANT}}})",
                 "{{tenant}} {{space}}")], "Replicas included.", stack=True),
         graph("Array bytes moved", "Bps",
               [(f"sum by (direction, path) (rate(tessera_transfer_bytes_total{{{WORKER}}}{rate}))",
                 "{{direction}} {{path}}")],
               "Put and get by clients, and between executors.")))


def workers():
    rate = "[$__rate_interval]"
    return dashboard(
        "tessera-workers", "Tessera / Workers, devices and memory",
        "Shows which machine is ill, and what uses the memory.", ["worker"],
        ("Workers",
         graph("Workers by state", "none", [("sum by (state) (tessera_workers)", "{{state}}")],
               "A worker that is silent for longer than its lease (1.5 s) is suspect. What it holds "
               "is lost if it does not come back within the outage grace (60 s).", stack=True,
               width=6),
         graph("Time since workers were heard", "s",
               [(f"max by (worker) (tessera_worker_heartbeat_age_seconds{{{WORKER}}})",
                 "{{worker}}")],
               "Time since the coordinator last heard of the worker. Normal: below 0.5 s; at the "
               "end of its lease (1.5 s) the worker is suspect.", width=6, limit=1.5),
         graph("Executors that ended", "none",
               [(f"sum by (worker, cause) (increase(tessera_executor_restarts_total{{{WORKER}}}"
                 f"{rate}))", "{{worker}} {{cause}}")],
               "Each end loses the arrays of its devices. Normal: none.", width=6),
         graph("Workers that fell silent", "none",
               [(f"sum by (worker) (increase(tessera_worker_lease_expired_total{{{WORKER}}}{rate}))",
                 "{{worker}}")], "Normal: none.", width=6)),
        ("Devices",
         graph("Devices by state", "none",
               [("sum by (state, platform) (tessera_devices)", "{{platform}} {{state}}")],
               "Devices of all workers that have registered.", stack=True, width=6),
         graph("Busy share", "percentunit",
               [(f"rate(tessera_device_busy_seconds_total{{{WORKER}}}{rate})",
                 "{{worker}}/{{device}}")], "Time with a launch under way.", top=1, width=6),
         graph("Idle, by cause", "percentunit",
               [(f"sum by (cause) (rate(tessera_device_idle_seconds_total{{{WORKER}}}{rate})) / "
                 f"scalar(count(tessera_executor_up{{{WORKER}}}))", "{{cause}}")],
               "Share of the devices' time. `no_work`: clients send too little; `waiting_peer`: "
               "one device holds up the others.", stack=True, width=6),
         graph("Time since the last progress of a launch", "s",
               [(f"tessera_device_progress_age_seconds{{{WORKER}}}", "{{worker}}/{{device}}")],
               "0 without a launch. Grows while a kernel or a collective hangs; an alert fires at "
               "60 s.", width=6, limit=60)),
        ("GPUs",
         graph("Utilization", "percentunit",
               [(f"tessera_gpu_utilization_ratio{{{WORKER}}}", "{{worker}}/{{device}}")],
               "Share of the time in which a kernel ran, as NVML says it.", top=1, width=6),
         graph("Memory of other processes", "bytes",
               [(f'tessera_gpu_memory_bytes{{kind="others",{WORKER}}}', "{{worker}}/{{device}}")],
               "Memory that processes of others use on the GPU. Normal: 0. An alert fires at 1 GiB.",
               width=6),
         graph("Power", "watt",
               [(f'tessera_gpu_power_watts{{kind="drawn",{WORKER}}}', "{{worker}}/{{device}}")],
               "Power that the GPU draws.", width=6),
         graph("Temperature", "celsius",
               [(f"tessera_gpu_temperature_celsius{{{WORKER}}}",
                 "{{worker}}/{{device}} {{sensor}}")],
               "Temperature of the GPU and of its memory.", width=6),
         graph("Clock", "hertz",
               [(f'tessera_gpu_clock_hertz{{clock="sm",{WORKER}}}', "{{worker}}/{{device}}")],
               "Clock of the multiprocessors. It falls on an idle GPU.", width=6),
         graph("Throttled, by reason", "none",
               [(f"sum by (worker, reason) (tessera_gpu_throttled{{{WORKER}}})",
                 "{{worker}} {{reason}}")],
               "GPUs whose clocks are lower than they could be. The reason power is normal under full "
               "load.", width=6),
         graph("NVLink", "Bps",
               [(f"rate(tessera_gpu_nvlink_bytes_total{{{WORKER}}}{rate})",
                 "{{worker}}/{{device}} {{direction}}")],
               "Data over NVLink.", width=6),
         graph("Errors of GPUs", "none",
               [(f"sum by (worker, device, xid) (increase(tessera_gpu_xid_errors_total{{{WORKER}}}"
                 f"{rate}))", "{{worker}}/{{device}} Xid {{xid}}"),
                (f'sum by (worker, device, kind) (increase(tessera_gpu_ecc_errors_total{{{WORKER}}}'
                 f"{rate}))", "{{worker}}/{{device}} ECC {{kind}}"),
                (f"sum by (worker, device) (increase(tessera_gpu_nvlink_errors_total{{{WORKER}}}"
                 f"{rate}))", "{{worker}}/{{device}} NVLink")],
               "Errors that the driver reports. Xids 13, 31, 43, 45, 68 and 109 come from programs; any other "
               "cordons the device.", width=6)),
        ("Proof that devices compute",
         graph("Age of the last good canary", "s",
               [(f"tessera_device_canary_age_seconds{{{WORKER}}}",
                 "{{worker}}/{{device}} {{kind}}")],
               "A small program, and a small collective, that run on every device from time to "
               "time. An alert fires at 120 s.", limit=120),
         graph("Canaries by result", "ops",
               [(f"sum by (kind, result) (rate(tessera_device_canaries_total{rate}))",
                 "{{kind}} {{result}}")], "`wrong` is a device that computes wrongly."),
         graph("Time of canaries", "s",
               quantiles("tessera_device_canary_seconds", ["kind"], "", at=(0.5, 0.99)),
               "Time of canaries that passed. A rise without load is a device that slows down.")),
        ("Memory",
         bars("Reserved", "percentunit",
              f'max by (worker, device) (tessera_device_memory_bytes{{kind="reserved",{WORKER}}}) '
              f'/ max by (worker, device) (tessera_device_memory_bytes{{kind="total",{WORKER}}})',
              "{{worker}}/{{device}}",
              "Arrays at rest and the workspace of launches, as a share of the device's memory.",
              steps((None, GOOD), (0.85, WARN), (0.95, BAD)), top=1),
         graph("Memory in use", "bytes",
               [(f'sum by (worker, kind) (tessera_device_memory_bytes{{kind=~"arrays|workspace",'
                 f"{WORKER}}})", "{{worker}} {{kind}}")],
               "Arrays at rest, and the workspace of launches.", stack=True),
         graph("Peak since the executor started", "bytes",
               [(f"tessera_device_memory_peak_bytes{{{WORKER}}}", "{{worker}}/{{device}}")],
               "The most memory that was reserved at a time."),
         graph("Refused or failed for want of memory", "none",
               [(f"sum by (where, platform) (increase(tessera_oom_total{rate}))",
                 "{{where}} {{platform}}")],
               "`admission`: refused before the run, as it should be; `runtime`: the bound on "
               "memory was wrong, which is a fault of Tessera."),
         graph("Arrays lost", "none",
               [(f"sum by (cause) (increase(tessera_array_lost_total{rate}))", "{{cause}}")],
               "Arrays lost with the process that held them."),
         graph("Transfer errors", "none",
               [(f"sum by (worker, direction) (increase(tessera_checksum_errors_total{{{WORKER}}}"
                 f"{rate}))", "{{worker}} {{direction}} checksum"),
                (f"sum by (worker, direction) (increase(tessera_transfer_retries_total{{{WORKER}}}"
                 f"{rate}))", "{{worker}} {{direction}} taken up again")],
               "Chunks refused for their checksum, and transfers that went on after a cut.")),
        ("Processes",
         graph("Processor", "percentunit",
               [(f'rate(process_cpu_seconds_total{{job=~"tessera-.*"}}{rate})', "{{instance}}")],
               "1 is one core. The time of the daemons alone; executors are separate processes.",
               width=6),
         graph("Resident memory", "bytes",
               [('process_resident_memory_bytes{job=~"tessera-.*"}', "{{instance}}")],
               "A line that only grows under a steady load is a leak.", width=6),
         graph("Open files", "percentunit",
               [('process_open_fds{job=~"tessera-.*"} / process_max_fds{job=~"tessera-.*"}',
                 "{{instance}}")], "Share of the files that may be open.", width=6, top=1),
         graph("Threads", "none", [('tessera_threads{job=~"tessera-.*"}', "{{instance}}")],
               "Threads of the daemon.", width=6),
         table("Builds", "none", "max by (instance, version, revision, compiler, grpc) "
               "(tessera_build_info)", "Versions; they differ during an upgrade.", width=16),
         table("Up since", "dateTimeAsIso",
               'max by (instance) (process_start_time_seconds{job=~"tessera-.*"}) * 1000',
               "When each daemon started.")))


def collectives():
    rate = "[$__rate_interval]"
    return dashboard(
        "tessera-collectives", "Tessera / Collectives and dispatch",
        "Shows what devices exchange, and how fast a launch reaches them.", ["worker"],
        ("Collectives",
         graph("Collectives per second", "ops",
               [(f"sum by (kind, backend) (rate(tessera_collective_seconds_count{{{WORKER}}}{rate}))",
                 "{{kind}} {{backend}}")], "Calls of single ranks.", stack=True),
         graph("Time of a rank's call, p95", "s",
               quantiles("tessera_collective_seconds", ["kind", "backend"], WORKER, at=(0.95,)),
               "Waiting for peers included: much above the median is one rank that comes late."),
         graph("Time by size, p50", "s",
               quantiles("tessera_collective_seconds", ["size_class"], WORKER, at=(0.5,)),
               "Time of a rank's call; a class is named by its largest message, in bytes."),
         graph("Bytes brought to collectives", "Bps",
               [(f"sum by (kind) (rate(tessera_collective_bytes_total{{{WORKER}}}{rate}))",
                 "{{kind}}")], "Over all ranks.", stack=True),
         graph("Bus bandwidth", "Bps",
               [(f"max by (kind, size_class) "
                 f"(tessera_collective_bus_bandwidth_bytes_per_second{{{WORKER}}})",
                 "{{kind}} {{size_class}}")],
               "Bandwidth of the last collective of each kind and size, as nccl-tests define it."),
         heat("Calls by time", "s",
              f"sum by (le) (increase(tessera_collective_seconds_bucket{{{WORKER}}}{rate}))",
              "A second band far above the first is waiting.")),
        ("Failures of collectives",
         graph("Stuck, by verdict", "none",
               [(f"sum by (verdict) (increase(tessera_collective_stuck_total{rate}))",
                 "{{verdict}}")],
               "Operations that failed because a collective did not end: a rank did not come, "
               "hangs in a kernel, is silent, or came with another op. Normal: none.", width=6),
         graph("Time of aborts, p99", "s",
               quantiles("tessera_collective_abort_seconds", ["method"], WORKER, at=(0.99,)),
               "How long survivors needed to leave a broken communicator. Empty until one broke.",
               width=6),
         graph("Communicators", "none",
               [("sum by (state) (tessera_communicators)", "{{state}}")],
               "Open to new launches, or used only by launches that were sent before.", width=6),
         graph("Opening a communicator, p95", "s",
               quantiles("tessera_communicator_init_seconds", ["backend", "ranks_class"], WORKER,
                         at=(0.95,)), "Time on one executor.", width=6)),
        ("Dispatch",
         graph("Time of a launch on its way, p50", "s",
               quantiles("tessera_dispatch_seconds", ["phase"], "", at=(0.5,)),
               "By phase: in the coordinator; until its turn on the device; until it is enqueued."),
         graph("Time of a launch on its way, p99", "s",
               quantiles("tessera_dispatch_seconds", ["phase"], "", at=(0.99,)),
               "`worker_queue` is long where earlier launches still run, which is no fault."),
         heat("Launching", "s",
              f'sum by (le) (increase(tessera_dispatch_seconds_bucket{{phase="launch"}}{rate}))',
              "Time until the launch is enqueued on its device."),
         graph("One step of the scheduler", "s",
               quantiles("tessera_scheduler_cycle_seconds", [], ""),
               "Time of a step, including the sending of its decisions."),
         graph("Lag of the scheduler's loop", "s",
               quantiles("tessera_eventloop_lag_seconds", ["loop"], "", at=(0.5, 0.99)),
               "How long an event waits before the loop takes it. An alert fires at 0.5 s.",
               limit=0.5),
         graph("Time of a cancel", "s",
               quantiles("tessera_cancel_latency_seconds", ["result"], "", at=(0.5, 0.99)),
               "Time until the last executor reports on the operation.")),
        ("Calls",
         graph("Calls per second", "ops",
               [(f"topk(10, sum by (method) (rate(tessera_rpc_started_total{rate})))",
                 "{{method}}")], "The ten methods that are called most.", stack=True),
         graph("Time of calls, p99", "s",
               [("topk(10, histogram_quantile(0.99, sum by (method, le) "
                 f"(rate(tessera_rpc_duration_seconds_bucket{rate}))))", "{{method}}")],
               "Streams count from their first to their last message; waiting calls wait."),
         graph("Calls under way", "none",
               [("sum by (method) (tessera_rpc_in_flight) > 0", "{{method}}")],
               "Worker links and waiting clients are always here.", stack=True),
         graph("Refused calls", "ops",
               [(f"sum by (reason) (rate(tessera_rpc_rejected_total{rate}))", "{{reason}}"),
                (f"sum by (reason) (rate(tessera_auth_failures_total{rate}))", "who: {{reason}}")],
               "Calls refused because of a bound or because of the caller."),
         graph("Data calls per second", "ops",
               [(f"sum by (worker, method) (rate(tessera_data_rpc_started_total{{{WORKER}}}{rate}))",
                 "{{worker}} {{method}}")], "Calls by which clients send and fetch shards.",
               stack=True),
         graph("Series of metrics", "none",
               [('tessera_metrics_series{job=~"tessera-.*"}', "{{instance}}"),
                ('tessera_metrics_series_limit{job=~"tessera-.*"}', "limit {{instance}}")],
               "The series that each daemon exposes, and its limit.")))


def files():
    """Maps the name of each file to its contents."""
    made = {"overview": overview(), "run": one_run(), "workers": workers(),
            "collectives": collectives()}
    return {name + ".json": json.dumps(value, indent=1, sort_keys=True) + "\n"
            for name, value in made.items()}


def main():
    stale = []
    for name, text in files().items():
        path = os.path.join(FOLDER, name)
        try:
            with open(path, encoding="utf-8") as file:
                same = file.read() == text
        except FileNotFoundError:
            same = False
        if same:
            continue
        stale.append(name)
        if "--check" not in sys.argv:
            with open(path, "w", encoding="utf-8") as file:
                file.write(text)
    if "--check" in sys.argv and stale:
        sys.exit(f"{', '.join(stale)}: differs from what scripts/make_dashboards.py writes; run it")


if __name__ == "__main__":
    main()
