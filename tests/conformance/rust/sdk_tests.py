"""Runs the emulator tests that the Rust SDK's crate carries against a server on https://127.0.0.1:8081/.

The tests are built from a copy of the crate as it was downloaded for the scenario, with the versions that its own lock
file names. `../known.py` says what is done with the outcomes.

    python sdk_tests.py CACHE_DIRECTORY [--prepare | --update | --only FILTER]
"""

import argparse
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from authority import fetch_authority  # noqa: E402
from known import Known, Outcome, report  # noqa: E402

CRATE = "azure_data_cosmos"
FEATURES = "key_auth,control_plane,fault_injection,unstable_patch"
# How the SDK's own pipeline marks what an emulator can answer, and that it takes unsigned tokens.
MARKS = ["--cfg", 'test_category="emulator"', "--cfg", "cosmos_aad_supported"]
TIMEOUT_SECONDS = 1200


def pinned_version():
    lock = (HERE / "Cargo.lock").read_text(encoding="utf-8")
    return re.search(rf'name = "{CRATE}"\nversion = "([^"]+)"', lock).group(1)


def prepare(cache):
    """Copies the crate out of cargo's registry and builds its emulator tests; returns the program."""
    base = cache / "rust-sdk"
    project = base / f"{CRATE}-{pinned_version()}"
    if not project.is_dir():
        metadata = subprocess.run(
            ["cargo", "metadata", "--format-version", "1", "--locked", "--manifest-path", str(HERE / "Cargo.toml")],
            check=True, capture_output=True, text=True)
        manifest = next(package["manifest_path"] for package in json.loads(metadata.stdout)["packages"] if package["name"] == CRATE)
        partial = project.with_suffix(".partial")
        shutil.rmtree(partial, ignore_errors=True)
        shutil.copytree(pathlib.Path(manifest).parent, partial)
        partial.rename(project)
    build = ["cargo", "rustc", "--locked", "--quiet", "--test", "emulator", "--features", FEATURES,
             "--target-dir", str(base / "target"), "--message-format", "json", "--", *MARKS]
    # Nobody looks at these with a debugger, and half of the time to build goes into what one would need.
    environment = dict(os.environ, CARGO_PROFILE_DEV_DEBUG="0", CARGO_PROFILE_TEST_DEBUG="0")
    environment.pop("CARGO_TARGET_DIR", None)
    messages = subprocess.run(build, cwd=project, env=environment, check=True, stdout=subprocess.PIPE, text=True)
    artifacts = [json.loads(line) for line in messages.stdout.splitlines()]
    return next(artifact["executable"] for artifact in artifacts
                if artifact["reason"] == "compiler-artifact" and artifact["target"]["name"] == "emulator")


def run_tests(program, log, environment, arguments):
    with open(log, "w", encoding="utf-8") as output:
        subprocess.run(
            [program, *arguments], env=environment, stdout=output, stderr=subprocess.STDOUT, timeout=TIMEOUT_SECONDS, check=False)
    ended = {"ok": "passed", "FAILED": "failed", "ignored": "skipped"}
    lines = re.findall(r"^test (\S+)(?: - should panic)? \.\.\. (ok|FAILED|ignored)", log.read_text(encoding="utf-8"), re.MULTILINE)
    return {test: Outcome(ended[word]) for test, word in lines}


def run_all(program, logs, environment, known):
    # The tests of proxies change the environment of the process, so they run alone.
    alone = "emulator_tests::cosmos_proxy"
    outcomes = run_tests(program, logs / "tests.log", environment, ["--test-threads", "4", "--skip", alone])
    outcomes |= run_tests(program, logs / "alone.log", environment, ["--test-threads", "1", alone])
    # Some give the client little time; on a machine that is busy for a moment they fail by themselves.
    lost = sorted(test for test in known.passing if test in outcomes and outcomes[test].ended == "failed")
    if lost:
        again = run_tests(program, logs / "again.log", environment, ["--test-threads", "1", "--exact", *lost])
        for test in sorted(test for test, outcome in again.items() if outcome.ended == "passed"):
            print(f"passed only when it was run again: {test}")
        outcomes |= again
    return outcomes


def main():
    arguments = argparse.ArgumentParser(description="Runs the Rust SDK's own emulator tests.")
    arguments.add_argument("cache", type=pathlib.Path)
    arguments.add_argument("--prepare", action="store_true", help="only fetch and build the tests")
    arguments.add_argument("--update", action="store_true", help="add what newly passes to sdk_passing.txt")
    arguments.add_argument("--only", help="run the tests that have this in their name; compares nothing")
    options = arguments.parse_args()

    cache = options.cache.resolve()
    program = prepare(cache)
    if options.prepare:
        return 0
    base = cache / "rust-sdk"
    fetch_authority(base / "authority.pem")
    environment = dict(
        os.environ, AZURE_COSMOS_CONNECTION_STRING="emulator", AZURE_COSMOS_TEST_MODE="required",
        SSL_CERT_FILE=str(base / "authority.pem"), RUST_BACKTRACE="0")
    if options.only:
        for test, outcome in sorted(run_tests(program, base / "only.log", environment, [options.only]).items()):
            print(outcome.ended, test)
        return 0
    known = Known(HERE, "sdk_")
    outcomes = run_all(program, base, environment, known)
    about = {"suite": "rust-sdk"}
    return report(known, outcomes, cache / "results" / "rust-sdk.json", about, options.update)


if __name__ == "__main__":
    sys.exit(main())
