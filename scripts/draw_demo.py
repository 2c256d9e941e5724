#!/usr/bin/env python3
"""Draws what scripts/demo printed: how training went, and the plan on its mesh.

    scripts/demo | tee demo.txt && scripts/draw_demo.py demo.txt docs/demo.svg
"""
import html
import math
import re
import sys

INK, GREY, LINE = "#24292f", "#57606a", "#d0d7de"
LOSS, ACCURACY = "#cf222e", "#1a7f37"
# The fill of a block, by its axis and its index along that axis: one hue for each axis.
HUES = {("data", 0): "#b6d7f5", ("data", 1): "#2f7fc1", ("model", 0): "#f6d7a7", ("model", 1): "#c77700",
        None: "#e4e7eb"}
NAMES = {0: "weights 1", 2: "weights 2", 13: "images", 14: "labels"}


class Plan:
    def __init__(self, text):
        mesh = re.search(r"plan of (\w+) on mesh \((\w+)=(\d+), (\w+)=(\d+)\)", text)
        if not mesh:
            sys.exit("draw_demo: no plan on a mesh of two axes in the text; expected scripts/demo's output")
        self.name = mesh[1]
        self.axes = {mesh[2]: int(mesh[3]), mesh[4]: int(mesh[5])}
        self.arguments = {int(n): (type_, spec) for n, type_, spec in re.findall(
            r"^  argument (\d+): (\S+) P\((.*)\)$", text, re.M)}
        self.collectives = {}
        for op, axis, size in re.findall(r"^  (\w+)\[(\w+)\] (\d+) B", text, re.M):
            count, total = self.collectives.get((op, axis), (0, 0))
            self.collectives[(op, axis)] = (count + 1, total + int(size))
        self.sent = int(re.search(r"bytes sent per device: (\d+)", text)[1])
        self.memory = int(re.search(r"memory per device: at most (\d+) B", text)[1])


class Svg:
    def __init__(self, width, height):
        self.parts = [
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
            f'viewBox="0 0 {width} {height}" font-family="ui-monospace,Menlo,Consolas,monospace" font-size="12">',
            f'<rect x="0.5" y="0.5" width="{width - 1}" height="{height - 1}" rx="8" fill="#ffffff" stroke="{LINE}"/>']

    def text(self, x, y, text, fill=INK, size=12, anchor="start", weight="normal"):
        self.parts.append(f'<text x="{x:.1f}" y="{y:.1f}" fill="{fill}" font-size="{size}" '
                          f'text-anchor="{anchor}" font-weight="{weight}">{html.escape(text)}</text>')

    def rect(self, x, y, w, h, fill, stroke="none", rx=2):
        self.parts.append(f'<rect x="{x:.1f}" y="{y:.1f}" width="{w:.1f}" height="{h:.1f}" rx="{rx}" '
                          f'fill="{fill}" stroke="{stroke}"/>')

    def line(self, points, stroke, width=1.8, dash=""):
        coordinates = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        self.parts.append(f'<polyline points="{coordinates}" fill="none" stroke="{stroke}" '
                          f'stroke-width="{width}" stroke-dasharray="{dash}" stroke-linejoin="round"/>')

    def done(self):
        return "\n".join(self.parts + ["</svg>"]) + "\n"


def draw_training(svg, epochs, x, y, w, h):
    """Draws the loss on a logarithmic axis at the left, and the accuracy from 80 to 100 % at the right."""
    svg.text(x, y - 24, "digits: training on four devices", weight="bold", size=13)
    low, high = 0.02, 2.0
    at = lambda n: x + w * (n - 1) / max(1, len(epochs) - 1)
    loss_y = lambda v: y + h * (1 - math.log(v / low) / math.log(high / low))
    accuracy_y = lambda v: y + h * (1 - (v - 80) / 20)
    for v in (0.02, 0.1, 0.5, 2.0):
        svg.line([(x, loss_y(v)), (x + w, loss_y(v))], LINE, 0.8, "2 3")
        svg.text(x - 6, loss_y(v) + 4, f"{v:g}", LOSS, 10, "end")
    for v in (80, 90, 95, 100):
        svg.text(x + w + 6, accuracy_y(v) + 4, f"{v} %", ACCURACY, 10)
    svg.line([(at(n), loss_y(min(high, max(low, loss)))) for n, loss, _ in epochs], LOSS)
    svg.line([(at(n), accuracy_y(max(80, accuracy))) for n, _, accuracy in epochs], ACCURACY)
    n, loss, accuracy = epochs[-1]
    svg.text(x, y + h + 22, "loss", LOSS)
    svg.text(x + 44, y + h + 22, "test accuracy", ACCURACY)
    svg.text(x, y + h + 44, f"epoch {n}/{n} [{'#' * 24}]", GREY)
    svg.text(x, y + h + 62, f"loss {loss:.4f}  test accuracy {accuracy:.2f}%", GREY)


def block(svg, x, y, size, type_, spec, place, axes):
    """Draws an array as a square, in which the part on the device at `place` is filled."""
    dims = [d.strip().strip("'") for d in spec.split(",") if d.strip()]
    rows = dims[0] if dims and dims[0] in axes else None
    columns = dims[1] if len(dims) > 1 and dims[1] in axes else None
    across = size if len(type_.split("[")[1].split(",")) > 1 else size * 0.34
    svg.rect(x, y, across, size, "#ffffff", LINE)
    h = size / axes[rows] if rows else size
    w = across / axes[columns] if columns else across
    key = (rows, place[rows]) if rows else (columns, place[columns]) if columns else None
    svg.rect(x + (place[columns] * w if columns else 0), y + (place[rows] * h if rows else 0), w, h,
             HUES.get(key, HUES[None]), INK)
    return across


def draw_mesh(svg, plan, x, y, cell_w, cell_h):
    (row, rows), (column, columns) = plan.axes.items()
    svg.text(x, y - 44, f"{plan.name} on the mesh {row}={rows}, {column}={columns}", weight="bold", size=13)
    svg.text(x, y - 26, "filled: what of each array lies on the device", GREY, 11)
    for i in range(rows):
        for j in range(columns):
            left, top = x + j * (cell_w + 26), y + i * (cell_h + 26)
            svg.rect(left, top, cell_w, cell_h, "#f6f8fa", LINE, 6)
            svg.text(left + 10, top + 18, f"device {i * columns + j}", INK, 11, weight="bold")
            svg.text(left + cell_w - 10, top + 18, f"{row} {i}, {column} {j}", GREY, 10, "end")
            at = left + 12
            for argument, label in NAMES.items():
                type_, spec = plan.arguments[argument]
                width = block(svg, at, top + 32, 40, type_, spec, {row: i, column: j}, plan.axes)
                svg.text(at, top + 88, label, GREY, 9)
                at += max(width, 6.2 * len(label)) + 10
    middle_x, middle_y = x + cell_w + 13, y + cell_h + 13
    for (op, axis), (count, size) in plan.collectives.items():
        label = f"{count} {op}[{axis}], {size:,} B"
        if axis == column:
            for i in range(rows):
                top = y + i * (cell_h + 26) + cell_h / 2
                svg.line([(middle_x - 13, top), (middle_x + 13, top)], HUES[(axis, 1)], 4)
        else:
            for j in range(columns):
                left = x + j * (cell_w + 26) + cell_w / 2
                svg.line([(left, middle_y - 13), (left, middle_y + 13)], HUES[(axis, 1)], 4)
        line = y + rows * (cell_h + 26) + (2 if axis == column else 20)
        svg.rect(x, line - 4, 18, 4, HUES[(axis, 1)])
        svg.text(x + 26, line, label, INK, 11)
    svg.text(x, y + rows * (cell_h + 26) + 42,
             f"each step sends {plan.sent:,} B and needs {plan.memory:,} B per device", GREY, 11)


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    text = open(sys.argv[1], encoding="utf-8").read()
    epochs = [(int(n), float(loss), float(accuracy)) for n, loss, accuracy in re.findall(
        r"epoch +(\d+)/\d+ \[[#.]*\] loss ([\d.]+)  test accuracy ([\d.]+)%", text)]
    if len(epochs) < 2:
        sys.exit("draw_demo: no epochs in the text; expected scripts/demo's output")
    svg = Svg(960, 378)
    draw_training(svg, epochs, 56, 64, 290, 190)
    draw_mesh(svg, Plan(text), 430, 76, 238, 100)
    with open(sys.argv[2], "w", encoding="utf-8") as out:
        out.write(svg.done())


if __name__ == "__main__":
    main()
