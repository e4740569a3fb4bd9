# SPDX-License-Identifier: BSD-3-Clause
"""latest.json and latest.md: the ratios with all figures behind them, and what machine it was."""
import json
import os
import time

from .ratios import RATIOS

QUIET = 0.2  # spread of the loop on a machine that can be measured on
NOT_ASKED = "not asked for (--only)"


def collect(args, machine, noise, samples, seconds):
    results = {"when": time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime()),
               "form": "quick" if args.quick else "full", "seconds": round(seconds, 1),
               "machine": machine, "noise": noise}
    for ratio in RATIOS:
        results[ratio.key] = ratio.result(samples)
        if ratio.key not in args.keys:
            results[ratio.key]["reason"] = NOT_ASKED
        elif results[ratio.key]["value"] is None:
            for keys, reason in samples.missing:
                if ratio.key in keys:
                    results[ratio.key]["reason"] = reason
    results["figures"] = samples.summaries([""])
    results["failed"] = samples.reasons
    results["lost"] = dict(samples.lost)
    results["extra"] = samples.extra
    return results


def compare(results, folder):
    """With what stands there from the run before: instructions are exact, so any change is one."""
    try:
        with open(f"{folder}/latest.json", encoding="utf-8") as file:
            before = json.load(file)
        old = {name: figure["median"] for name, figure in before["figures"].items()}
        results["compared_with"] = f"{before['when']}, {before['machine']['oriel']}"
    except (OSError, ValueError, LookupError, TypeError, AttributeError):
        return
    new = {name: figure["median"] for name, figure in results["figures"].items()}
    results["instructions_changed"] = {
        name: {"before": old[name], "now": median} for name, median in new.items()
        if name.startswith("instructions_") and name in old and old[name] != median}


def write(results, folder):
    for name, text in (("latest.json", json.dumps(results, indent=1) + "\n"),
                       ("latest.md", markdown(results))):
        with open(f"{folder}/{name}.new", "w", encoding="utf-8") as file:
            file.write(text)
        os.replace(f"{folder}/{name}.new", f"{folder}/{name}")


def show(results):
    print(about(results) + table(results) + "\n" + verdict(results), end="")


def number(value):
    if value is None:
        return "-"
    if abs(value) >= 1e5:
        return f"{value / 1e6:.3f} M"
    return f"{value:.0f}" if abs(value) >= 1000 else f"{value:.3g}"


# --- Markdown ---------------------------------------------------------------------------------


def markdown(results):
    return "".join([
        f"# Measured {results['when']}, {results['form']} form\n\n", about(results), "\n",
        table(results), "\n", verdict(results), "\n", beside(results), changes(results),
        figures(results), charts(results)])


def about(results):
    machine, noise = results["machine"], results["noise"]
    cores = machine.get("cores", {})
    lines = [
        f"- {machine['processor']}, {machine['processors']} processors"
        f"{' of a virtual machine' if machine['virtual'] else ''}; worker on "
        f"{cores.get('worker')}, generator on {cores.get('generator')}",
        f"- Linux {machine['kernel']}, DPDK {machine['dpdk']}, gcc {machine['compiler']}, "
        f"{machine['hugepages_free']} of {machine['hugepages_total']} hugepages free, "
        f"{machine['oriel']}",
    ]
    if noise:
        lines.append(
            f"- Noise: a loop of {noise['loop_ms_median']:.2f} ms took {noise['loop_worst']:.2f} "
            f"times its median at the worst, spread {noise['loop_spread_p5_p95'] * 100:.1f} % "
            f"(5th to 95th percentile of {noise['loops']}); load average "
            f"{noise['load_before']:.1f} before, {noise['load_after']:.1f} after; "
            f"{noise['stolen_ticks']} ticks stolen")
    if results.get("deaths"):
        lines.append(f"- Died while they served: {', '.join(results['deaths'])}")
    return "\n".join(lines) + "\n"


def table(results):
    lines = ["| # | what | value | goal | met |", "| --- | --- | ---: | --- | --- |"]
    for ratio in RATIOS:
        result = results[ratio.key]
        if result["reason"] == NOT_ASKED:
            continue
        title = result["title"]
        for name, value in result["values"].items():
            met = result["met"][name]
            lines.append(f"| {ratio.key} | {title}{'' if name == 'ratio' else ': ' + name} | "
                         f"{number(value)} | {result['goal'][name]} | "
                         f"{'-' if met is None else 'yes' if met else 'no'} |")
            title = ""
        for name, value in result["also"].items():
            lines.append(f"| | {name} | {number(value)} | | |")
        for figure, rounds in result["lost"].items():
            lines.append(f"| | lost: {times(rounds)} of `{figure}` | | | |")
        if result["reason"]:
            lines.append(f"| | not measured: {one_line(result['reason'])} | | | |")
    return "\n".join(lines) + "\n"


def verdict(results):
    """Which goals were reached, which not, and which have no figure: nobody has to search."""
    found = {True: [], False: [], None: []}
    for ratio in RATIOS:
        result = results[ratio.key]
        if result["reason"] == NOT_ASKED:
            continue
        for name, met in result["met"].items():
            found[met].append(ratio.key if name == "ratio" else f"{ratio.key} {name}")
    lines = [f"- {what}: {', '.join(found[met])}" for met, what in (
        (False, "MISSED"), (True, "Reached"), (None, "No figure")) if found[met]]
    spread = results["noise"].get("loop_spread_p5_p95", 0)
    if spread > QUIET:
        lines.append(f"- NOT QUIET: the machine's own spread was {spread * 100:.0f} %, so a ratio "
                     "may be far off, either way")
    return "".join(f"{line}\n" for line in lines)


def times(rounds):
    return f"{rounds} round{'s' if rounds > 1 else ''}"


def beside(results):
    """What is reported without a goal."""
    medians = {name: figure["median"] for name, figure in results["figures"].items()}
    lines = []
    if "workers_one" in medians and "workers_two" in medians:
        share = medians["workers_two"] / (2 * medians["workers_one"])
        lines.append("- Two workers on two processors, one of them shared with the generator, / "
                     f"twice one: {number(share)}")
    for idle in ("busy", "adaptive"):
        if f"idle_{idle}" in medians:
            lines.append(f"- An idle daemon with `idle = {idle}` takes "
                         f"{medians[f'idle_{idle}'] * 100:.1f} % of a processor")
    if "turn_adaptive.p50" in medians and "turn.p50" in medians:
        more, most = (medians[f"turn_adaptive.{at}"] - medians[f"turn.{at}"]
                      for at in ("p50", "p999"))
        lines.append(f"- `idle = adaptive` adds {number(more)} us to the median turn-round of "
                     f"{number(medians['turn.p50'])} us, {number(most)} us to the 99.9th "
                     "percentile")
    for what, kind in results["extra"].get("P7", {}).items():
        lines.append(f"- P7: {what} {kind}")
    return "## Beside these\n\n" + "\n".join(lines) + "\n\n" if lines else ""


def changes(results):
    if "compared_with" not in results:
        return ""
    lines = [f"- {name.removeprefix('instructions_')}: {change['before']:.1f} before, "
             f"{change['now']:.1f} now" for name, change in results["instructions_changed"].items()]
    return (f"## Instructions since the run before ({results['compared_with']})\n\n" +
            ("\n".join(lines) if lines else "None of those counted in both has changed.") +
            "\n\n")


def one_line(text):
    return " ".join(text.split()).replace("|", "/")[:300]


def figures(results):
    lines = ["## Figures\n", "| figure | median | least | most | spread | rounds |",
             "| --- | ---: | ---: | ---: | ---: | ---: |"]
    for name, figure in results["figures"].items():
        lines.append(f"| {name} | {number(figure['median'])} | {number(figure['least'])} | "
                     f"{number(figure['most'])} | {figure['spread'] * 100:.0f} % | "
                     f"{len(figure['samples'])} |")
    for name, reason in results["failed"].items():
        lines.append(f"| {name} | {times(results['lost'].get(name, 1))} lost, the last because: "
                     f"{one_line(reason)} | | | | |")
    return "\n".join(lines) + "\n"


def charts(results):
    names = results.get("charts", [])
    return "\n## Charts\n\n" + "\n".join(f"![{name}]({name}.svg)" for name in names) + "\n" \
        if names else ""
