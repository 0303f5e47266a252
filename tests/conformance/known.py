"""What is known about the tests that an SDK ships: which of them pass, and why another one does not.

A suite keeps two files beside its driver. `passing.txt` has the tests that pass, one a line, and only grows: one of them
not passing fails the run. `skipped.md` gives the reason for every other test, in sections with one list item for each test
or pattern. The sections stand under one of two headings, `# Fails` and `# Does not apply`: the first is what Orrery lacks
or does differently, the second what no server on this machine could answer for.
"""

import dataclasses
import fnmatch
import json
import re

FAILS = "Fails"
DOES_NOT_APPLY = "Does not apply"
LEFT_OUT_BY_THE_SDK = "left out by the SDK itself"


@dataclasses.dataclass
class Outcome:
    """How a test ended: passed, failed, skipped (by the SDK) or not run. Its lanes are the SDK's own marks, if any."""

    ended: str
    lanes: frozenset = frozenset()


@dataclasses.dataclass
class Group:
    """A section of skipped.md."""

    part: str
    reason: str
    patterns: list

    def covers(self, test, outcome):
        return any(matches(pattern, test, outcome) for pattern in self.patterns)


def matches(pattern, test, outcome):
    """Whether a pattern speaks of a test: of its name, or of its lane if that is not run."""
    if pattern.startswith("-m "):
        return outcome is not None and outcome.ended == "not run" and pattern.removeprefix("-m ") in outcome.lanes
    return fnmatch.fnmatchcase(test, escape_parameters(pattern))


def escape_parameters(pattern):
    """Brackets are part of the names of tests with parameters; only `*` and `?` have a meaning here."""
    return pattern.replace("[", "[[]")


class Known:
    """What `passing.txt` and `skipped.md` of a directory say."""

    def __init__(self, directory, prefix=""):
        self.passing_path = directory / f"{prefix}passing.txt"
        self.skipped_path = directory / f"{prefix}skipped.md"
        lines = self.passing_path.read_text(encoding="utf-8").splitlines()
        self.passing = {line for line in lines if line and not line.startswith("#")}
        self.groups = read_groups(self.skipped_path.read_text(encoding="utf-8"))

    def group_of(self, test, outcome=None):
        return next((group for group in self.groups if group.covers(test, outcome)), None)

    def add_passing(self, tests):
        lines = self.passing_path.read_text(encoding="utf-8").splitlines()
        comments = [line for line in lines if line.startswith("#")]
        self.passing |= tests
        text = "\n".join(comments + sorted(self.passing)) + "\n"
        self.passing_path.write_text(text, encoding="utf-8")


def read_groups(text):
    groups, part = [], None
    for line in text.splitlines():
        if line.startswith("# "):
            part = line.removeprefix("# ")
        elif line.startswith("## "):
            groups.append(Group(part, line.removeprefix("## "), []))
        elif item := re.match(r"- `([^`]+)`", line):
            groups[-1].patterns.append(item.group(1))
    return groups


def report(known, outcomes, results, about, update=False):
    """Says how the outcomes differ from what is known, writes the results and returns the exit code."""
    passed = {test for test, outcome in outcomes.items() if outcome.ended == "passed"}
    lost = sorted(known.passing - passed)
    gained = sorted(passed - known.passing)
    unexplained = sorted(
        test for test, outcome in outcomes.items()
        if outcome.ended in ("failed", "not run") and test not in known.passing and not known.group_of(test, outcome))
    for test in lost:
        print(f"no longer passes ({outcomes[test].ended if test in outcomes else 'not there'}): {test}")
    for test in gained:
        by_chance = known.group_of(test, outcomes[test])
        print(f"newly passes: {test}" + (" (still listed in skipped.md)" if by_chance else ""))
    for test in unexplained:
        print(f"{outcomes[test].ended} without a reason in skipped.md: {test}")
    if update:
        known.add_passing({test for test in gained if not known.group_of(test, outcomes[test])})
    write_results(known, outcomes, results, about)
    print(f"{len(passed)} of {len(outcomes)} tests of the SDK pass, {len(gained)} newly, {len(lost)} no longer")
    return 1 if lost else 0


def write_results(known, outcomes, path, about):
    """Leaves the figures of a run for table.py."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(about | count(known, outcomes), indent=1) + "\n", encoding="utf-8")


def count(known, outcomes):
    """The figures of a run. A test that passes without being listed counts by its reason: it may pass by chance."""
    figures = {"tests": len(outcomes), "passed": 0, "groups": []}
    counted = {}
    for test, outcome in outcomes.items():
        if test in known.passing and outcome.ended == "passed":
            figures["passed"] += 1
            continue
        group = known.group_of(test, outcome)
        if group:
            key = (group.part, group.reason)
        elif outcome.ended == "skipped":
            key = (DOES_NOT_APPLY, LEFT_OUT_BY_THE_SDK)
        else:
            key = (FAILS, "no reason is known")
        counted[key] = counted.get(key, 0) + 1
    for (part, reason), tests in sorted(counted.items(), key=lambda entry: (entry[0][0] != FAILS, -entry[1])):
        figures["groups"].append({"part": part, "reason": reason, "tests": tests})
    return figures
