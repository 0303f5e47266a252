"""Runs the emulator tests that the Go SDK's module carries against a server on https://localhost:8081/.

The tests are built from a copy of the module as it was downloaded for the scenario. They accept no other endpoint.
`../known.py` says what is done with the outcomes.

    python sdk_tests.py CACHE_DIRECTORY [--prepare | --update | --only NAME]
"""

import argparse
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

MODULE = "github.com/Azure/azure-sdk-for-go/sdk/data/azcosmos"
TIMEOUT_SECONDS = 120


def pinned_version():
    return re.search(rf"{re.escape(MODULE)} v(\S+)", (HERE / "go.mod").read_text(encoding="utf-8")).group(1)


def go_environment(cache):
    go = cache / "go"
    return dict(os.environ, GOPATH=str(go / "path"), GOMODCACHE=str(go / "mod"), GOCACHE=str(go / "build"))


def prepare(cache):
    """Copies the module, which is read-only where it was downloaded to, and builds its tests."""
    project = cache / "go-sdk" / f"azcosmos-{pinned_version()}"
    program = project.with_suffix(".test")
    if program.exists():
        return project, program
    environment = go_environment(cache)
    subprocess.run(["go", "mod", "download", MODULE], cwd=HERE, env=environment, check=True)
    module = subprocess.run(
        ["go", "list", "-m", "-f", "{{.Dir}}", MODULE], cwd=HERE, env=environment, check=True, capture_output=True, text=True)
    shutil.rmtree(project, ignore_errors=True)
    shutil.copytree(module.stdout.strip(), project, copy_function=shutil.copyfile)
    for directory, _, _ in os.walk(project):
        os.chmod(directory, 0o755)
    build = ["go", "test", "-mod=mod", "-c", "-o", str(program), "."]
    subprocess.run(build, cwd=project, env=environment, check=True)
    return project, program


def emulator_tests(project):
    files = sorted(project.glob("emulator_*_test.go"))
    return [name for file in files for name in re.findall(r"^func (Test\w+)", file.read_text(encoding="utf-8"), re.MULTILINE)]


def run_test(project, program, test, logs, environment):
    """Runs a test in a process of its own, because one that panics takes the others with it."""
    command = [str(program), "-test.v", "-test.run", f"^{test}$", f"-test.timeout={TIMEOUT_SECONDS}s"]
    output = subprocess.run(
        command, cwd=project, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    (logs / f"{test}.log").write_text(output.stdout, encoding="utf-8")
    ended = re.search(rf"^--- (PASS|SKIP): {test} ", output.stdout, re.MULTILINE)
    if output.returncode != 0 or not ended:
        return Outcome("failed")
    return Outcome("passed" if ended.group(1) == "PASS" else "skipped")


def main():
    arguments = argparse.ArgumentParser(description="Runs the Go SDK's own emulator tests.")
    arguments.add_argument("cache", type=pathlib.Path)
    arguments.add_argument("--prepare", action="store_true", help="only fetch and build the tests")
    arguments.add_argument("--update", action="store_true", help="add what newly passes to sdk_passing.txt")
    arguments.add_argument("--only", help="run one test; compares nothing")
    options = arguments.parse_args()

    cache = options.cache.resolve()
    project, program = prepare(cache)
    if options.prepare:
        return 0
    logs = cache / "go-sdk" / "logs"
    logs.mkdir(exist_ok=True)
    authority = cache / "go-sdk" / "authority.pem"
    fetch_authority(authority)
    environment = dict(os.environ, EMULATOR="true", SSL_CERT_FILE=str(authority))
    names = [options.only] if options.only else emulator_tests(project)
    # The tests share names of databases, so they run one after the other.
    outcomes = {name: run_test(project, program, name, logs, environment) for name in names}
    if options.only:
        print(outcomes[options.only].ended, f"(log: {logs / options.only}.log)")
        return 0
    about = {"suite": "go-sdk"}
    return report(Known(HERE, "sdk_"), outcomes, cache / "results" / "go-sdk.json", about, options.update)


if __name__ == "__main__":
    sys.exit(main())
