"""Tests of the tools that count: what a list claims must be what a run fails for. `run` starts with them."""

import contextlib
import io
import json
import pathlib
import tempfile
import unittest

import known
import table
from known import Outcome

SKIPPED = """Words before the first heading are for readers.

# Fails

## nothing is ready

- `test_a*::test_[x]*` brackets are part of names

# Does not apply

## another lane

- `-m elsewhere` is not run here
"""


class KnownTests(unittest.TestCase):
    def setUp(self):
        self.directory = tempfile.TemporaryDirectory()
        self.path = pathlib.Path(self.directory.name)
        (self.path / "passing.txt").write_text("# a comment\nfile::listed\n", encoding="utf-8")
        (self.path / "skipped.md").write_text(SKIPPED, encoding="utf-8")
        self.known = known.Known(self.path)

    def tearDown(self):
        self.directory.cleanup()

    def report(self, outcomes, update=False):
        with contextlib.redirect_stdout(io.StringIO()) as said:
            code = known.report(self.known, outcomes, self.path / "results.json", {"suite": "s"}, update)
        return code, said.getvalue(), json.loads((self.path / "results.json").read_text(encoding="utf-8"))

    def test_a_listed_test_that_fails_fails_the_run(self):
        code, said, results = self.report({"file::listed": Outcome("failed")})
        self.assertEqual((code, results["passed"]), (1, 0))
        self.assertIn("no longer passes (failed): file::listed", said)

    def test_a_listed_test_that_is_gone_fails_the_run(self):
        self.assertEqual(self.report({})[0], 1)

    def test_reasons_are_counted_by_part(self):
        _, said, results = self.report({
            "file::listed": Outcome("passed"),
            "test_ab::test_[x]1": Outcome("failed"),
            "file::other": Outcome("not run", frozenset({"elsewhere"})),
            "file::left": Outcome("skipped"),
            "file::new": Outcome("failed"),
        })
        groups = {(group["part"], group["reason"]): group["tests"] for group in results["groups"]}
        self.assertEqual(groups, {
            ("Fails", "nothing is ready"): 1, ("Fails", "no reason is known"): 1,
            ("Does not apply", "another lane"): 1, ("Does not apply", known.LEFT_OUT_BY_THE_SDK): 1})
        self.assertIn("failed without a reason in skipped.md: file::new", said)

    def test_what_newly_passes_is_added_unless_a_reason_says_by_chance(self):
        outcomes = {name: Outcome("passed") for name in ("file::listed", "file::new", "test_ab::test_[x]1")}
        _, _, results = self.report(outcomes, update=True)
        self.assertEqual(results["passed"], 2)
        self.assertEqual(known.Known(self.path).passing, {"file::listed", "file::new"})


class TableTests(unittest.TestCase):
    def test_a_row_is_read_as_it_was_written(self):
        results = {"tests": 5, "passed": 3, "groups": [{"part": "Fails", "reason": "why", "tests": 1}]}
        row = table.render_figures("go-sdk", results)
        figures, reasons = table.committed_rows("\n".join([row, *table.render_reasons("go-sdk", results)]))
        self.assertEqual(table.passed_of(figures["go-sdk"]), 3)
        self.assertEqual(reasons["go-sdk"], ["| `go-sdk` | failed | why | 1 |"])

    def test_the_committed_table_has_every_suite(self):
        section = table.PAGE.read_text(encoding="utf-8").partition(table.BEGIN)[2]
        self.assertEqual(set(table.committed_rows(section)[0]), set(table.SUITES))


if __name__ == "__main__":
    unittest.main()
