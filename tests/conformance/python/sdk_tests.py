"""Runs the Python SDK's own tests against a server on https://localhost:8081/ and compares with what is known.

The tests come from the source distribution of the pinned SDK version; they accept no other endpoint. `passing.txt`
lists the tests that pass and only grows: one of them not passing fails the run. `skipped.md` gives, for every other
test of the chosen files, the reason why it is not expected to pass. A test that is in neither is reported, and so is
one that newly passes; `--update` adds the latter to `passing.txt`, unless a reason says that it passes by chance.

    python sdk_tests.py CACHE_DIRECTORY [--fetch | --update | --only PATTERN]
"""

import argparse
import concurrent.futures
import fnmatch
import os
import pathlib
import re
import subprocess
import sys
import tarfile

HERE = pathlib.Path(__file__).resolve().parent

FILES = [
    "test_aggregate*.py", "test_auto_scale*.py", "test_computed_properties*.py", "test_crud*.py", "test_encoding*.py",
    "test_headers*.py", "test_multi_orderby*.py", "test_none_options*.py", "test_orderby*.py",
    "test_partition_key*.py", "test_query*.py", "test_read_items*.py", "test_resource_id*.py",
    "test_transactional_batch*.py", "test_ttl.py", "test_unique*.py", "test_user_configs*.py",
]

# Some tests are parametrised with the id of a container that the run has just made up.
MADE_UP = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")

# Several tests wait out time limits of the client for about a minute; none that works takes longer than this.
TIMEOUT_SECONDS = 300

# The tests mostly wait, and every file makes its own database, so files run side by side.
FILES_AT_ONCE = 4


def pinned_version():
    requirements = (HERE / "requirements.txt").read_text(encoding="utf-8")
    return re.search(r"^azure-cosmos==(\S+)$", requirements, re.MULTILINE).group(1)


def unpack_tests(cache):
    """The directory with the SDK's tests, fetched on first use."""
    version = pinned_version()
    tests = cache / f"azure-cosmos-{version}-tests"
    if tests.is_dir():
        return tests
    downloads = cache / "downloads"
    subprocess.run(
        [sys.executable, "-m", "pip", "download", "--quiet", "--no-binary", ":all:", "--no-deps",
         "--dest", downloads, f"azure-cosmos=={version}"],
        check=True)
    partial = tests.with_suffix(".partial")
    with tarfile.open(downloads / f"azure_cosmos-{version}.tar.gz") as archive:
        for member in archive.getmembers():
            _, _, path = member.name.partition("/")
            if path.startswith("tests/"):
                member.name = path.removeprefix("tests/")
                archive.extract(member, partial, filter="data")
    partial.rename(tests)
    return tests


def run_tests(tests, name, targets, cache, only=None):
    """Runs a file, or tests of one, in a process of its own and returns `{test id: outcome}`."""
    outcomes = cache / "outcomes" / f"{name}.txt"
    outcomes.parent.mkdir(exist_ok=True)
    outcomes.unlink(missing_ok=True)
    log = outcomes.with_suffix(".log")
    command = [
        sys.executable, "-m", "pytest", "-q", "--tb=short", "-W", "ignore", "-p", "no:cacheprovider", "-p", "outcomes",
        # Rewriting a failed assertion of these tests can exceed the interpreter's recursion limit.
        "--assert=plain", "--rootdir", ".", f"--timeout={TIMEOUT_SECONDS}", *targets,
    ]
    if only:
        command += ["-k", only]
    environment = dict(os.environ, PYTHONPATH=str(HERE / "stub"), ORRERY_OUTCOMES=str(outcomes), PYTHONDONTWRITEBYTECODE="1")
    with open(log, "w", encoding="utf-8") as output:
        subprocess.run(command, cwd=tests, env=environment, stdout=output, stderr=subprocess.STDOUT, check=False)
    if not outcomes.exists():
        print(f"no outcome of {name}: see {log}", file=sys.stderr)
        return {}
    lines = outcomes.read_text(encoding="utf-8").splitlines()
    return {MADE_UP.sub("UUID", test): outcome for outcome, test in (line.split(" ", 1) for line in lines)}


def known_passing():
    lines = (HERE / "passing.txt").read_text(encoding="utf-8").splitlines()
    return {line for line in lines if line and not line.startswith("#")}


def known_skipped():
    """Patterns of tests that have a reason: the code spans that open the list items of skipped.md."""
    text = (HERE / "skipped.md").read_text(encoding="utf-8")
    return re.findall(r"^- `([^`]+)`", text, re.MULTILINE)


def has_reason(test, patterns):
    return any(fnmatch.fnmatchcase(test, pattern) for pattern in patterns)


def write_passing(tests):
    path = HERE / "passing.txt"
    comments = [line for line in path.read_text(encoding="utf-8").splitlines() if line.startswith("#")]
    path.write_text("\n".join(comments + sorted(tests)) + "\n", encoding="utf-8")


def report(outcomes, update):
    """Prints how the outcomes differ from what is known and returns the exit code."""
    passing, patterns = known_passing(), known_skipped()
    passed = {test for test, outcome in outcomes.items() if outcome == "passed"}
    lost = sorted(passing - passed)
    gained = sorted(passed - passing)
    failed = {test for test, outcome in outcomes.items() if outcome == "failed"}
    unexplained = sorted(test for test in failed - passing if not has_reason(test, patterns))
    for test in lost:
        print(f"no longer passes ({outcomes.get(test, 'not run')}): {test}")
    for test in gained:
        note = " (still listed in skipped.md)" if has_reason(test, patterns) else ""
        print(f"newly passes: {test}{note}")
    for test in unexplained:
        print(f"fails without a reason in skipped.md: {test}")
    if update:
        write_passing(passing | {test for test in passed if not has_reason(test, patterns)})
    print(f"{len(passed)} of {len(outcomes)} tests of the SDK pass, {len(gained)} newly, {len(lost)} no longer")
    return 1 if lost else 0


def run_again(tests, lost, cache):
    """Runs tests that should have passed once more, one file after the other.

    Many of them give the client little time; on a machine that is busy for a moment they fail by themselves. What is
    broken fails twice.
    """
    outcomes = {}
    for name in sorted({test.partition("::")[0] for test in lost}):
        targets = sorted({runnable(test) for test in lost if test.startswith(f"{name}::")})
        outcomes |= run_tests(tests, f"again-{name}", targets, cache)
    for test in sorted(test for test, outcome in outcomes.items() if outcome == "passed"):
        print(f"passed only when it was run again: {test}")
    return outcomes


def runnable(test):
    """What pytest finds the test by: without parameters where they differ in every run."""
    return test.partition("[")[0] if "UUID" in test else test


def main():
    arguments = argparse.ArgumentParser(description="Runs the Python SDK's own tests.")
    arguments.add_argument("cache", type=pathlib.Path)
    arguments.add_argument("--fetch", action="store_true", help="only fetch and unpack the tests")
    arguments.add_argument("--update", action="store_true", help="add what newly passes to passing.txt")
    arguments.add_argument("--only", help="run only the tests that match this pytest -k expression; compares nothing")
    options = arguments.parse_args()

    tests = unpack_tests(options.cache.resolve())
    if options.fetch:
        return 0
    names = {path.name for pattern in FILES for path in tests.glob(pattern)}
    # A file of which every test has the same reason is not worth its time.
    patterns = known_skipped()
    names = sorted(name for name in names if not has_reason(f"{name}::", patterns))
    outcomes = {}
    with concurrent.futures.ThreadPoolExecutor(FILES_AT_ONCE) as pool:
        cache = options.cache.resolve()
        runs = [pool.submit(run_tests, tests, name, [name], cache, options.only) for name in names]
        for run in runs:
            outcomes |= run.result()
    if options.only:
        for test, outcome in sorted(outcomes.items()):
            print(outcome, test)
        return 1 if "failed" in outcomes.values() else 0
    lost = {test for test in known_passing() if outcomes.get(test) != "passed"}
    if lost:
        outcomes |= run_again(tests, lost, cache)
    return report(outcomes, options.update)


if __name__ == "__main__":
    sys.exit(main())
