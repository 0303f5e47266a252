"""A pytest plugin that writes `outcome test-id` lines to the file named by ORRERY_OUTCOMES.

Outcomes are passed, failed and skipped. A test that errs in setup or teardown counts as failed.
"""

import os

import pytest

_outcomes = {}


@pytest.hookimpl
def pytest_runtest_logreport(report):
    before = _outcomes.get(report.nodeid)
    if report.failed or before == "failed":
        outcome = "failed"
    elif report.skipped or before == "skipped":
        outcome = "skipped"
    else:
        outcome = "passed"
    _outcomes[report.nodeid] = outcome


def pytest_sessionfinish():
    with open(os.environ["ORRERY_OUTCOMES"], "w", encoding="utf-8") as lines:
        for test, outcome in _outcomes.items():
            print(outcome, test, file=lines)
