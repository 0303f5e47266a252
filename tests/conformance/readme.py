"""Follows the README with one SDK: connects, writes a document, reads it from the change feed.

    readme.py CACHE_DIRECTORY LANGUAGE

The program is made of the README's own blocks, the one under "Connect" and the one under "Change feed", with nothing added
but what every program of the language has around its statements. The server comes from ORRERY_CONNECTION_STRING and must
be empty. It is done when the loop has printed the document; the loops of the README go on for ever, so then it is stopped.
"""

import os
import pathlib
import re
import shutil
import subprocess
import sys
import threading

HERE = pathlib.Path(__file__).resolve().parent
README = HERE.parent.parent / "README.md"
# How the loop prints the document: by its number and id, or whole.
BY_ID = re.compile(r"^\d+ 1$")
WHOLE = re.compile(r'"customer": ?(String\()?"ada"')
SEEN = {"python": BY_ID, "js": BY_ID, "go": WHOLE, "java": WHOLE, "rust": WHOLE}
SECONDS = 90


def block(section, language):
    """The code of one language in a section of the README."""
    text = README.read_text(encoding="utf-8").split(f"\n## {section}\n", 1)[1].split("\n## ", 1)[0]
    blocks = re.findall(rf"^```{language}\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    if len(blocks) != 1:
        raise SystemExit(f"the README has {len(blocks)} blocks of {language} under '{section}'")
    return blocks[0]


def statements(language):
    """The statements of both blocks, for the server that is to be asked, and the lines that import something."""
    connection = dict(part.split("=", 1) for part in os.environ["ORRERY_CONNECTION_STRING"].split(";") if part)
    authority = connection["AccountEndpoint"].split("//", 1)[1]
    code = block("Connect", language) + block("Change feed", language)
    code = code.replace("localhost:8081/", authority).replace("C2y6...Jw==", connection["AccountKey"])
    lines = code.splitlines()
    is_import = re.compile(r"(import|use) .*;$")
    return "\n".join(line for line in lines if not is_import.match(line)), "\n".join(filter(is_import.match, lines))


def python(cache, _):
    program = cache / "readme" / "feed.py"
    program.write_text(statements("python")[0], encoding="utf-8")
    # The certificate is self-signed, and every request would warn about not checking it.
    return [cache / "python" / "venv" / "bin" / "python", "-W", "ignore", "-u", program]


def js(cache, _):
    program = cache / "js" / "project" / "readme.cjs"
    program.write_text("(async () => {\n" + statements("js")[0] + "\n})();\n", encoding="utf-8")
    return ["node", program]


def go(cache, project):
    imports = ["context", "fmt"]
    imports += [f"github.com/Azure/azure-sdk-for-go/sdk/{name}" for name in ("azcore/to", "data/azcosmos")]
    head = "package main\n\nimport (\n" + "".join(f'\t"{name}"\n' for name in imports) + ")\n\nfunc main() {\n"
    (project / "main.go").write_text(head + statements("go")[0] + "\n}\n", encoding="utf-8")
    for name in ("go.mod", "go.sum"):
        shutil.copy(HERE / "go" / name, project)
    folders = {"GOPATH": "path", "GOMODCACHE": "mod", "GOCACHE": "build"}
    os.environ.update({name: str(cache / "go" / folder) for name, folder in folders.items()})
    subprocess.run(["go", "build", "-buildvcs=false", "-o", "feed", "."], cwd=project, check=True)
    return [project / "feed"]


def java(cache, project):
    code, imports = statements("java")
    main = "public class Feed {\n    public static void main(String[] words) throws Exception {\n"
    (project / "Feed.java").write_text(f"{imports}\n{main}{code}\n    }}\n}}\n", encoding="utf-8")
    dependencies = cache / "java" / "project" / "target" / "dependencies" / "*"
    subprocess.run(["javac", "-cp", dependencies, "Feed.java"], cwd=project, check=True)
    unchecked = "-DCOSMOS.EMULATOR_SERVER_CERTIFICATE_VALIDATION_DISABLED=true"
    return ["java", unchecked, "-cp", f"{dependencies}:{project}", "Feed"]


def rust(cache, project):
    code, imports = statements("rust")
    main = "#[tokio::main]\nasync fn main() -> Result<(), Box<dyn std::error::Error>> {\n"
    (project / "src").mkdir(exist_ok=True)
    (project / "src" / "main.rs").write_text(f"{imports}\n{main}{code}\n    Ok(())\n}}\n", encoding="utf-8")
    manifest = (HERE / "rust" / "Cargo.toml").read_text(encoding="utf-8")
    manifest = manifest.replace('name = "conformance"', 'name = "feed"').replace('"macros", ', '"macros", "time", ')
    (project / "Cargo.toml").write_text(manifest, encoding="utf-8")
    shutil.copy(HERE / "rust" / "Cargo.lock", project)
    target = cache / "rust" / "target"
    subprocess.run(["cargo", "build", "--quiet", "--target-dir", target], cwd=project, check=True)
    return [target / "debug" / "feed"]


def main():
    cache, language = pathlib.Path(sys.argv[1]), sys.argv[2]
    project = cache / "readme" / language
    project.mkdir(parents=True, exist_ok=True)
    command = {"python": python, "js": js, "go": go, "java": java, "rust": rust}[language](cache, project)
    loop = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, encoding="utf-8")
    patience = threading.Timer(SECONDS, loop.kill)
    patience.start()
    seen = False
    for line in loop.stdout:
        print(line.rstrip()[:100])
        if SEEN[language].search(line):
            seen = True
            break
    patience.cancel()
    loop.kill()
    loop.wait()
    print(f"{int(seen)} passed, {int(not seen)} failed")
    return 0 if seen else 1


if __name__ == "__main__":
    sys.exit(main())
