"""Numbers as people read them."""

import os


def value(name, number):
    """A number of the tests as text, of an accuracy as a percentage."""
    if number is None:
        return "unknown"
    return "%.1f%%" % (100 * number) if name.endswith("accuracy") else "%.4g" % number


def test(name, number):
    """A column of the tests and its value as text: "test accuracy 98.3%"."""
    return "%s %s" % (name.replace("_", " "), value(name, number))


def tests(found):
    """The tests in a result as text; the loss only where there is no other metric."""
    names = [name for name in found if name.startswith("test_")]
    others = [name for name in names if name != "test_loss"]
    return ", ".join(test(name, found[name]) for name in others or names)


def file_name(task):
    """worker 0 as in the names of files: worker-0."""
    return task.replace(" ", "-")


def size(n_bytes):
    """A number of bytes: 512 MiB, 1.5 GiB; empty for None."""
    if n_bytes is None:
        return ""
    for unit, name in ((2**40, "TiB"), (2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB")):
        if n_bytes >= unit or name == "KiB":
            return ("%.0f %s" if n_bytes >= 100 * unit else "%.3g %s") % (n_bytes / unit, name)


def age(seconds):
    """A length of time: 45 s, 12 min, 3 h, 5 days."""
    for unit, length, least in (("days", 86400, 2), ("h", 3600, 1.5), ("min", 60, 1.5)):
        if seconds >= least * length:
            return "%.0f %s" % (seconds / length, unit)
    return "%.0f s" % max(0, seconds)


def number(found, form="%.3g"):
    """A number, empty for None."""
    return "" if found is None else form % found


def rate(found):
    """A rate: 12.3, or 1,234; empty for None."""
    return "" if found is None else "{:,.0f}".format(found) if found >= 100 else "%.3g" % found


def plural(count, noun):
    """A count and its noun: 1 worker, 3,000 updates."""
    return "{:,d} {}{}".format(count, noun, "s" * (count != 1))


def run(example, result):
    """Two lines about a run, from its result: its cluster; its updates, their data and time."""
    several = result["ps"] or result["workers"] > 1
    cluster = [example] + ["%d ps" % result["ps"]] * bool(result["ps"])
    cluster += [plural(result["workers"], "worker")] * bool(several)
    data = os.path.basename(result["dataset"] or "data of its own")
    work = plural(result["steps"], "update"), data, result["wall_seconds"] or 0
    return ", ".join(cluster) + "\n%s on %s in %.1f s" % work
