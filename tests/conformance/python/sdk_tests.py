"""Runs the Python SDK's own tests against a server on https://localhost:8081/ and compares with what is known.

The tests come from the source distribution of the pinned SDK version; they accept no other endpoint. The SDK marks each
with the lanes of its pipeline that run it. All are listed, and those of `LANES` and those without a mark are run.
`known.py` says what is done with the outcomes.

    python sdk_tests.py CACHE_DIRECTORY [--fetch | --emulator-ranges | --update | --only PATTERN | --files NAME...]
"""

import argparse
import concurrent.futures
import os
import pathlib
import re
import subprocess
import sys
import tarfile

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from known import Known, Outcome, report, write_results  # noqa: E402

# The lanes that a single server on this machine can serve. The others need several regions or a real account.
LANES = {"cosmosEmulator", "cosmosQuery", "cosmosLong", "cosmosSplit", "cosmosSearchQuery"}

# Some tests are parametrised with the id of a container that the run has just made up.
MADE_UP = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")

# Several tests wait out time limits of the client for about a minute; none that works takes longer than this.
TIMEOUT_SECONDS = 300

# Microsoft's emulator cuts containers into more ranges than the service does, and these files count on it. They are run
# first and by themselves, against a server that does the same; what came of them is kept for the run of the others.
CUT_AS_EMULATOR = {"test_circuit_breaker_emulator.py", "test_circuit_breaker_emulator_async.py"}

# How often tests that did not pass are tried again.
AGAIN_MAX = 4

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


def run_pytest(tests, name, arguments, cache):
    """Runs pytest in a process of its own and returns `{test id: Outcome}` of what it collected."""
    outcomes = cache / "outcomes" / f"{name.replace('/', '-')}.txt"
    outcomes.parent.mkdir(exist_ok=True)
    outcomes.unlink(missing_ok=True)
    log = outcomes.with_suffix(".log")
    command = [
        sys.executable, "-m", "pytest", "-q", "-W", "ignore", "-p", "no:cacheprovider", "-p", "outcomes",
        # Rewriting a failed assertion of these tests can exceed the interpreter's recursion limit, and so can parsing
        # the source around it.
        "--assert=plain", "--tb=native", "--rootdir", ".", f"--timeout={TIMEOUT_SECONDS}", *arguments,
    ]
    environment = dict(
        os.environ, PYTHONPATH=str(HERE / "stub"), ORRERY_OUTCOMES=str(outcomes), ORRERY_LANES=",".join(sorted(LANES)),
        PYTHONDONTWRITEBYTECODE="1")
    with open(log, "w", encoding="utf-8") as output:
        subprocess.run(command, cwd=tests, env=environment, stdout=output, stderr=subprocess.STDOUT, check=False)
    if not outcomes.exists():
        print(f"no outcome of {name}: see {log}", file=sys.stderr)
        return {}
    return read_outcomes(outcomes)


def read_outcomes(path):
    """The outcomes in a file; none where there is no file."""
    if not path.exists():
        return {}
    return dict(read_outcome(line) for line in path.read_text(encoding="utf-8").splitlines())


def read_outcome(line):
    ended, _seconds, lanes, test = line.split(" ", 3)
    return MADE_UP.sub("UUID", test), Outcome(ended.replace("-", " "), frozenset(lanes.split(",")) - {"-"})


def write_outcome(test, outcome):
    """The line that `read_outcome` reads."""
    return f"{outcome.ended.replace(' ', '-')} 0.0 {','.join(sorted(outcome.lanes)) or '-'} {test}\n"


def files_to_run(listed, known):
    """The files of which at least one test is to be run: by its lane, and because no reason says that it cannot pass."""
    def is_to_run(test, outcome):
        chosen = not outcome.lanes or outcome.lanes & LANES
        return chosen and (test in known.passing or not known.group_of(test))
    return sorted({test.partition("::")[0] for test, outcome in listed.items() if is_to_run(test, outcome)})


def run_again(tests, lost, cache):
    """Runs tests that should have passed some more times, one file after the other.

    Many of them give the client little time; on a machine that is busy for a moment they fail by themselves. A few race
    with what the client does in the background and lose every fifth time or so. What is broken fails every time.
    """
    outcomes = {}
    for _ in range(AGAIN_MAX):
        for name in sorted({test.partition("::")[0] for test in lost}):
            targets = sorted({runnable(test) for test in lost if test.startswith(f"{name}::")})
            outcomes |= run_pytest(tests, f"again-{name}", targets, cache)
        passed = {test for test in lost if test in outcomes and outcomes[test].ended == "passed"}
        for test in sorted(passed):
            print(f"passed only when it was run again: {test}")
        lost = lost - passed
        if not lost:
            break
    return outcomes


def runnable(test):
    """What pytest finds the test by: without parameters where they differ in every run."""
    return test.partition("[")[0] if "UUID" in test else test


def main():
    arguments = argparse.ArgumentParser(description="Runs the Python SDK's own tests.")
    arguments.add_argument("cache", type=pathlib.Path)
    arguments.add_argument("--fetch", action="store_true", help="only fetch and unpack the tests")
    arguments.add_argument(
        "--emulator-ranges", action="store_true", help="only run what counts on ranges as Microsoft's emulator cuts them")
    arguments.add_argument("--update", action="store_true", help="add what newly passes to passing.txt")
    arguments.add_argument("--only", help="run only the tests that match this pytest -k expression; compares nothing")
    arguments.add_argument("--files", nargs="+", help="run only these files; compares nothing")
    options = arguments.parse_args()

    cache = options.cache.resolve()
    tests = unpack_tests(cache)
    if options.fetch:
        return 0
    known = Known(HERE)
    listed = run_pytest(tests, "listed", ["--collect-only", "--continue-on-collection-errors"], cache)
    kept = cache / "outcomes" / "emulator-ranges.txt"
    names = options.files or [
        name for name in files_to_run(listed, known) if (name in CUT_AS_EMULATOR) == options.emulator_ranges]
    only = ["-k", options.only] if options.only else []
    outcomes = {}
    with concurrent.futures.ThreadPoolExecutor(FILES_AT_ONCE) as pool:
        runs = [pool.submit(run_pytest, tests, name, [name, *only], cache) for name in names]
        for run in runs:
            outcomes |= run.result()
    if options.only or options.files:
        for test, outcome in sorted(outcomes.items()):
            print(outcome.ended, test)
        return 1 if any(outcome.ended == "failed" for outcome in outcomes.values()) else 0
    mine = {test for test in known.passing if (test.partition("::")[0] in CUT_AS_EMULATOR) == options.emulator_ranges}
    lost = {test for test in mine if test not in outcomes or outcomes[test].ended != "passed"}
    if lost:
        outcomes |= run_again(tests, lost, cache)
    if options.emulator_ranges:
        kept.write_text("".join(write_outcome(*item) for item in outcomes.items()), encoding="utf-8")
        return 0
    outcomes |= read_outcomes(kept)
    outcomes = listed | outcomes
    results = cache.parent / "results"
    emulator = {test: outcome for test, outcome in outcomes.items() if "cosmosEmulator" in outcome.lanes}
    code = report(known, outcomes, results / "python-sdk.json", {"suite": "python-sdk"}, options.update)
    write_results(known, emulator, results / "python-sdk-emulator.json", {"suite": "python-sdk-emulator"})
    return code


if __name__ == "__main__":
    sys.exit(main())
