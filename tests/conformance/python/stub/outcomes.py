"""A pytest plugin that writes `outcome seconds lanes test-id` lines to the file named by ORRERY_OUTCOMES.

Outcomes are passed, failed, skipped and not-run: collected, and then not chosen or not reached. A test that errs in setup
or teardown counts as failed. The lanes are the marks by which the SDK sorts its tests, joined with commas, or `-`.
"""

import os

import pytest

# The lanes of ../sdk_tests.py: a test that has marks, and none of these, is listed and not run.
LANES = set(os.environ.get("ORRERY_LANES", "").split(","))

_outcomes = {}
_seconds = {}
_lanes = {}


def pytest_collection_modifyitems(config, items):
    chosen, others = [], []
    for item in items:
        lanes = {marker.name for marker in item.iter_markers() if marker.name.startswith("cosmos")}
        _lanes[item.nodeid] = ",".join(sorted(lanes)) or "-"
        _outcomes[item.nodeid] = "not-run"
        (chosen if not lanes or lanes & LANES else others).append(item)
    items[:] = chosen
    config.hook.pytest_deselected(items=others)


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
    _seconds[report.nodeid] = _seconds.get(report.nodeid, 0.0) + report.duration


def pytest_sessionfinish():
    with open(os.environ["ORRERY_OUTCOMES"], "w", encoding="utf-8") as lines:
        for test, outcome in _outcomes.items():
            print(outcome, f"{_seconds.get(test, 0.0):.1f}", _lanes.get(test, "-"), test, file=lines)
