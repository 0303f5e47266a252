"""Follows the README with one SDK: runs its example as the README says, and watches the change feed go on.

    readme.py CACHE_DIRECTORY LANGUAGE

The directory and the command are those of the table under "Connect". What the README shows of the SDK must be in the example,
line by line. The server comes from ORRERY_CONNECTION_STRING and must be empty; the example speaks of localhost:8081, so a copy
of it is changed to that server. The loop must print the document that the example writes, and then one that is written from
elsewhere; the loops of the README go on for ever, so then it is stopped.
"""

import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import threading

PROJECT = pathlib.Path(__file__).resolve().parent.parent.parent
README = (PROJECT / "README.md").read_text(encoding="utf-8")
# How the README calls a language, how it marks its code, and the file that holds the program.
LANGUAGES = {
    "python": ("Python", "python", "feed.py"),
    "js": ("JavaScript", "js", "feed.js"),
    "go": ("Go", "go", "main.go"),
    "java": ("Java", "java", "src/main/java/Feed.java"),
    "rust": ("Rust", "rust", "src/main.rs"),
}
# With nothing in the cache, everything is fetched and compiled in this time.
SECONDS = 600


def section(name):
    return README.split(f"\n## {name}\n", 1)[1].split("\n## ", 1)[0]


def statements(text):
    """The lines of a program but for those that import something, which a program may gather or sort."""
    lines = (line.strip() for line in text.splitlines())
    return [line for line in lines if line and not re.match(r"(from|import|use|using) ", line)]


def unlike(mark, program):
    """The first line of the README that the program lacks, or has in another place."""
    lines = iter(statements(program))
    for name in ("Connect", "Change feed"):
        blocks = re.findall(rf"^```{mark}\n(.*?)^```", section(name), re.DOTALL | re.MULTILINE)
        if len(blocks) != 1:
            raise SystemExit(f"the README has {len(blocks)} blocks of {mark} under '{name}'")
        for line in statements(blocks[0]):
            if line not in lines:
                return line
    return None


def recipe(language):
    """The directory of the example, and the command that runs it there."""
    rows = re.findall(rf"^\| {language} \| `(.*?)` \| `(.*?)` \|$", section("Connect"), re.MULTILINE)
    if len(rows) != 1:
        raise SystemExit(f"the README has {len(rows)} rows for {language}")
    return rows[0]


def copy(directory, project, file, connection):
    """Copies the example and lets its program ask the server under test; what an earlier run has fetched stays."""
    authority = connection["AccountEndpoint"].split("//", 1)[1]
    shutil.copytree(directory, project, dirs_exist_ok=True, ignore=shutil.ignore_patterns("target", "node_modules", ".venv"))
    program = (directory / file).read_text(encoding="utf-8")
    (project / file).write_text(program.replace("localhost:8081/", authority), encoding="utf-8")


def environment(cache):
    """Keeps what the tools fetch and build in the cache, and their output to what the program prints."""
    folders = {"GOPATH": "go/path", "GOMODCACHE": "go/mod", "GOCACHE": "go/build", "CARGO_TARGET_DIR": "rust/target"}
    caches = {name: str(cache / folder) for name, folder in folders.items()}
    maven = {"MAVEN_OPTS": f"-Dmaven.repo.local={cache / 'java' / 'repository'}"}
    return os.environ | caches | maven | {"PYTHONUNBUFFERED": "1", "CARGO_TERM_QUIET": "true"}


def write_another(connection):
    """Writes a document that is none of the example's."""
    endpoint = connection["AccountEndpoint"].replace("https:", "http:")
    command = [os.environ["ORRERY_BIN"], "import", "-", "--database", "shop", "--container", "orders", "--endpoint", endpoint]
    document = json.dumps({"id": "2", "customer": "grace", "total": 7})
    subprocess.run(command, input=document + "\n", text=True, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def watch(output, connection):
    """Whether the loop prints the document of the example, and then the other."""
    shown = {number: re.compile(rf'^\d+ {number}$|"id": ?(String\()?"{number}"') for number in (1, 2)}
    for number in shown:
        for line in output:
            print(line.rstrip()[:100])
            if shown[number].search(line):
                break
            # A loop that does not keep its place would show the first one again and again.
            if number == 2 and shown[1].search(line):
                return False
        else:
            return False
        if number == 1:
            write_another(connection)
    return True


def main():
    cache, (name, mark, file) = pathlib.Path(sys.argv[1]), LANGUAGES[sys.argv[2]]
    connection = dict(part.split("=", 1) for part in os.environ["ORRERY_CONNECTION_STRING"].split(";") if part)
    directory, command = recipe(name)
    line = unlike(mark, (PROJECT / directory / file).read_text(encoding="utf-8"))
    if line is not None:
        print(f"the README shows what {directory}/{file} does not do there: {line}\n0 passed, 1 failed")
        return 1
    project = cache / "readme" / sys.argv[2]
    copy(PROJECT / directory, project, file, connection)
    loop = subprocess.Popen(["bash", "-c", command], cwd=project, env=environment(cache), stdout=subprocess.PIPE, text=True,
                            encoding="utf-8", start_new_session=True)
    # The tools start others, and all of them end together.
    patience = threading.Timer(SECONDS, os.killpg, (loop.pid, signal.SIGKILL))
    patience.start()
    seen = watch(loop.stdout, connection)
    patience.cancel()
    if loop.poll() is None:
        os.killpg(loop.pid, signal.SIGKILL)
    loop.wait()
    print(f"{int(seen)} passed, {int(not seen)} failed")
    return 0 if seen else 1


if __name__ == "__main__":
    sys.exit(main())
