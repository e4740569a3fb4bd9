# SPDX-License-Identifier: BSD-3-Clause
"""The charts, by gnuplot."""
import re
import shutil
import subprocess
import tempfile

STYLE = """set terminal svg size 760,460 dynamic font 'sans,12' background '#ffffff'
set grid lc rgb '#dddddd'
set border 3
set tics nomirror
set key {key}
"""


def draw(results, folder):
    """Those for which there are figures; without gnuplot, none."""
    results["charts"] = []
    if not shutil.which("gnuplot"):
        print("bench/run: no charts: gnuplot is not installed")
        return
    for name, function in (("rate-by-size", rate_by_size), ("latency", latency),
                           ("cost-by-number", cost_by_number), ("stages", stages)):
        script = function(results)
        if script and plot(f"{folder}/{name}.svg", script):
            results["charts"].append(name)


def plot(path, script):
    with tempfile.NamedTemporaryFile("w", suffix=".gp", encoding="utf-8") as file:
        file.write(script.replace("@OUT@", path))
        file.flush()
        done = subprocess.run(["gnuplot", file.name], capture_output=True, text=True, check=False)
    if done.returncode:
        print(f"bench/run: {path}: {done.stderr.strip()[-300:]}")
    return done.returncode == 0


def lines_chart(curves, settings, key="top right"):
    """Curves: name, [(x, y)]."""
    curves = [(name, points) for name, points in curves if points]
    if not curves:
        return None
    blocks = "".join(f"$d{i} << EOD\n" + "".join(f"{x} {y}\n" for x, y in points) + "EOD\n"
                     for i, (_, points) in enumerate(curves))
    parts = ", ".join(f"$d{i} using 1:2 with linespoints lw 2 pt 7 ps 0.5 title '{name}'"
                      for i, (name, _) in enumerate(curves))
    return f"{STYLE.format(key=key)}set output '@OUT@'\n{settings}\n{blocks}plot {parts}\n"


def medians(results, pattern):
    """(number in the name, median) of the figures whose name fits."""
    found = [(int(match.group(1)), figure["median"])
             for name, figure in results["figures"].items()
             if (match := re.fullmatch(pattern, name))]
    return sorted(found)


def rate_by_size(results):
    curves = [(title, [(size, rate / 1e6) for size, rate in medians(
        results, rf"size(\d+)\.{which}")])
        for which, title in (("macswap", "testpmd macswap"), ("write", "WRITE"), ("read", "READ"))]
    return lines_chart(curves, "set logscale x 2\nset logscale y\nset yrange [*:*]\n"
                       "set xlabel 'bytes of a message'\nset ylabel 'million messages/s'\n"
                       "set title 'Rate by size, one worker'")


def latency(results):
    curves = []
    for name, histogram in results["extra"].get("turn", {}).items():
        total, seen, points = sum(count for _, count in histogram), 0, []
        for micros, count in histogram:
            seen += count
            above = 1 - seen / total
            if above > 0:
                points.append((micros, above))
        curves.append((name, points))
    return lines_chart(curves, "set logscale x\nset logscale y\nset xlabel 'microseconds'\n"
                       "set ylabel 'share that took longer'\n"
                       "set title 'Turn-round of a 64 B WRITE, one at a time'")


def cost_by_number(results):
    """P5 measures the ends of both curves."""
    one = results["figures"].get("scale_one")
    curves = []
    for name, what in (("queue pairs", "qps"), ("windows", "windows")):
        points = medians(results, rf"(?:count|scale)_{what}(\d+)")
        points = [(1, one["median"])] + points if one else points
        curves.append((name, [(number, 1e9 / rate) for number, rate in points if rate]))
    return lines_chart(curves, "set logscale x\nset yrange [0:*]\n"
                       "set xlabel 'number, each message picks one at random'\n"
                       "set ylabel 'ns of a 64 B WRITE'\nset title 'Cost by number'",
                       key="bottom right")


def stages(results):
    rows = [(name.removeprefix("stage_"), figure["median"])
            for name, figure in results["figures"].items()
            if name.startswith("stage_") and figure["median"] < 2000]
    if not rows:
        return None
    data = "".join(f'"{name}" {ns}\n' for name, ns in rows)
    return (STYLE.format(key="off") + "set output '@OUT@'\nset terminal svg size 760,560 dynamic "
            "font 'sans,11' background '#ffffff'\nset lmargin 16\nset style fill solid 0.7\nset boxwidth 0.7\n"
            "set xtics rotate by 45 right\nset ylabel 'ns'\nset yrange [0:*]\n"
            "set title 'Cost of each stage'\n"
            f"$d << EOD\n{data}EOD\nplot $d using 0:2:xtic(1) with boxes lc rgb '#3b78b5'\n")
