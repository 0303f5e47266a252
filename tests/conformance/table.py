"""Keeps the table of COMPATIBILITY.md that says how the official SDKs do against Orrery.

`run` leaves the figures of every suite under the cache directory: a JSON file of an SDK's own tests, the log of a scenario.
This renders them between two marks in COMPATIBILITY.md. `--check` fails if a suite passes less than the committed table
claims, and says how to raise the claim if it passes more; `--update` writes the table. What was not run stays as it is.

    python table.py CACHE_DIRECTORY (--check | --update)
"""

import argparse
import json
import pathlib
import re
import sys

HERE = pathlib.Path(__file__).resolve().parent
PAGE = HERE.parent.parent / "COMPATIBILITY.md"
BEGIN, END = "<!-- conformance: begin -->", "<!-- conformance: end -->"

# Every suite: what it is, the SDK, and where its version is pinned.
SUITES = {
    "python-sdk": ("the Python SDK's own tests", "azure-cosmos", "python/requirements.txt", r"azure-cosmos==(\S+)"),
    "python-sdk-emulator": (
        "those of them that the SDK marks for emulators", "azure-cosmos", "python/requirements.txt", r"azure-cosmos==(\S+)"),
    "go-sdk": ("the Go SDK's own emulator tests", "azcosmos", "go/go.mod", r"data/azcosmos v(\S+)"),
    "rust-sdk": ("the Rust SDK's own emulator tests", "azure_data_cosmos", "rust/Cargo.toml", r'azure_data_cosmos = .*"=([^"]+)"'),
    "python": ("scenario, sync and async", "azure-cosmos", "python/requirements.txt", r"azure-cosmos==(\S+)"),
    "js": ("scenario", "@azure/cosmos", "js/package.json", r'"@azure/cosmos": "([^"]+)"'),
    "go": ("scenario", "azcosmos", "go/go.mod", r"data/azcosmos v(\S+)"),
    "java": ("scenario", "azure-cosmos", "java/pom.xml", r"<artifactId>azure-cosmos</artifactId>\s*<version>([^<]+)"),
    "rust": ("scenario", "azure_data_cosmos", "rust/Cargo.toml", r'azure_data_cosmos = .*"=([^"]+)"'),
}
FIGURES_HEAD = "| suite | what | version | tests | passed | failed | not applicable |\n| --- | --- | --- | --- | --- | --- | --- |"
REASONS_HEAD = "| suite | counted as | why | tests |\n| --- | --- | --- | --- |"


def pinned_version(suite):
    _, sdk, file, pattern = SUITES[suite]
    return f"{sdk} {re.search(pattern, (HERE / file).read_text(encoding='utf-8')).group(1)}"


def read_results(cache, suite):
    """The figures of a suite's last run, or None if it was not run."""
    own, log = cache / "results" / f"{suite}.json", cache / "results" / f"{suite}.log"
    if own.exists():
        return json.loads(own.read_text(encoding="utf-8"))
    if log.exists():
        ends = re.findall(r"^(\d+) passed, (\d+) failed", log.read_text(encoding="utf-8"), re.MULTILINE)
        if ends:
            passed, failed = map(int, ends[-1])
            groups = [{"part": "Fails", "reason": "no reason is known", "tests": failed}] if failed else []
            return {"tests": passed + failed, "passed": passed, "groups": groups}
    return None


def render_figures(suite, results):
    failed = sum(group["tests"] for group in results["groups"] if group["part"] == "Fails")
    others = results["tests"] - results["passed"] - failed
    what = SUITES[suite][0]
    return f"| `{suite}` | {what} | {pinned_version(suite)} | {results['tests']} | {results['passed']} | {failed} | {others} |"


def render_reasons(suite, results):
    if suite == "python-sdk-emulator":
        return []  # A part of a suite that gives its reasons as a whole.
    words = {"Fails": "failed", "Does not apply": "not applicable"}
    return [f"| `{suite}` | {words[group['part']]} | {group['reason']} | {group['tests']} |" for group in results["groups"]]


def committed_rows(section):
    """The rows of the committed tables by suite: one of figures, and the reasons."""
    figures, reasons = {}, {}
    for line in section.splitlines():
        if row := re.match(r"\| `([^`]+)` \|", line):
            if line.count("|") == FIGURES_HEAD.splitlines()[0].count("|"):
                figures[row.group(1)] = line
            else:
                reasons.setdefault(row.group(1), []).append(line)
    return figures, reasons


def passed_of(row):
    return int(row.split("|")[5])


def main():
    arguments = argparse.ArgumentParser(description="Keeps the table of the SDKs in COMPATIBILITY.md.")
    arguments.add_argument("cache", type=pathlib.Path)
    action = arguments.add_mutually_exclusive_group(required=True)
    action.add_argument("--check", action="store_true")
    action.add_argument("--update", action="store_true")
    options = arguments.parse_args()

    page = PAGE.read_text(encoding="utf-8")
    before, _, rest = page.partition(BEGIN)
    section, _, after = rest.partition(END)
    figures, reasons = committed_rows(section)
    fallen = []
    for suite in SUITES:
        results = read_results(options.cache, suite)
        if not results:
            print(f"no results of {suite}: its row stays as it is")
            continue
        if suite in figures and results["passed"] < passed_of(figures[suite]):
            fallen.append(f"{suite}: {results['passed']} pass, COMPATIBILITY.md claims {passed_of(figures[suite])}")
        figures[suite] = render_figures(suite, results)
        reasons[suite] = render_reasons(suite, results)
    rows = [figures[suite] for suite in SUITES if suite in figures]
    why = [row for suite in SUITES for row in reasons.get(suite, [])]
    rendered = "\n".join(["", FIGURES_HEAD, *rows, "", REASONS_HEAD, *why, ""])
    if options.update:
        PAGE.write_text(f"{before}{BEGIN}{rendered}{END}{after}", encoding="utf-8")
        return 0
    for line in fallen:
        print(f"fallen: {line}")
    if not fallen and rendered != section:
        print(f"the table of COMPATIBILITY.md can be brought up to date: {pathlib.Path(__file__).name} {options.cache} --update")
    return 1 if fallen else 0


if __name__ == "__main__":
    sys.exit(main())
