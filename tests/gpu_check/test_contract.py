"""What is made of pytest's results: a test that was skipped has not passed."""

from __future__ import annotations

from .contract import counted

RESULTS = """<?xml version="1.0" encoding="utf-8"?>
<testsuites><testsuite name="pytest" errors="1" failures="1" skipped="1" tests="5">
<testcase classname="c" name="test_a" time="1"/>
<testcase classname="c" name="test_b" time="1"><system-out>words</system-out></testcase>
<testcase classname="c" name="test_c" time="1"><failure message="assert 1 == 2&#10;more">trace</failure></testcase>
<testcase classname="c" name="test_d" time="1"><error message="no host">trace</error></testcase>
<testcase classname="c" name="test_e" time="1"><skipped message="no mvn">x</skipped></testcase>
</testsuite></testsuites>
"""


def test_what_did_not_pass_is_named() -> None:
    passed, others = counted(RESULTS)
    assert passed == 2
    assert others == ["test_c: failure: assert 1 == 2", "test_d: error: no host", "test_e: skipped: no mvn"]
