"""How tfrun writes numbers, times and sizes, and a run in words."""

import math

from tfrun import formatting


def test_numbers_in_words():
    """Catches another unit, a unit too early or too late, and a digit too few or too many."""
    ages = {0: "0 s", -3: "0 s", 89: "89 s", 90: "2 min", 5399: "90 min", 5400: "2 h"}
    ages |= {172799: "48 h", 172800: "2 days", 864000: "10 days"}
    assert {seconds: formatting.age_text(seconds) for seconds in ages} == ages
    sizes = {None: "", 512: "0.5 KiB", 2**10: "1 KiB", 2**20 - 1: "1024 KiB", 2**20: "1 MiB"}
    sizes |= {1536 * 2**20: "1.5 GiB", 100 * 2**30: "100 GiB", 1234 * 2**20: "1.21 GiB"}
    sizes |= {2**40: "1 TiB", 99.94 * 2**20: "99.9 MiB", 100.4 * 2**20: "100 MiB"}
    assert {n: formatting.size_text(n) for n in sizes} == sizes
    rates = {None: "", 0: "0", 12.34: "12.3", 99.94: "99.9", 100: "100", 1234.4: "1,234"}
    assert {rate: formatting.rate_text(rate) for rate in rates} == rates
    assert [
        formatting.number_text(None),
        formatting.number_text(0.12345),
        formatting.number_text(7, "%d"),
    ] == [*("", "0.123", "7")]
    assert formatting.plural(1, "worker") == "1 worker"
    assert formatting.plural(0, "worker") + formatting.plural(3000, "x") == "0 workers3,000 xs"
    assert [formatting.finite(value) for value in (1, math.nan, math.inf)] == [1.0, None, None]
    assert formatting.file_name("worker 10") == "worker-10"


def test_a_run_in_words():
    """Catches the loss beside another metric, a share for a loss, and a cluster that is none."""
    tests = {"steps": 3, "test_loss": 1.23456, "test_top_5_accuracy": 0.98765, "test_error": 12.5}
    assert formatting.tests_text(tests) == "test top 5 accuracy 98.8%, test error 12.5"
    assert formatting.tests_text({"test_loss": 1.23456}) == "test loss 1.235"
    assert formatting.tests_text({"test_accuracy": None}) == "test accuracy unknown"
    assert formatting.tests_text({}) == ""
    facts = {"ps": 2, "workers": 1, "steps": 1200, "dataset": "/a/b.csv", "wall_seconds": 2.34}
    assert formatting.run_text("E", facts) == "E, 2 ps, 1 worker\n1,200 updates on b.csv in 2.3 s"
    facts |= {"ps": 0, "steps": 1, "dataset": None, "wall_seconds": None}
    assert formatting.run_text("E", facts) == "E\n1 update on data of its own in 0.0 s"
    assert formatting.run_text("E", {**facts, "workers": 2}).startswith("E, 2 workers\n")
