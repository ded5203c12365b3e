"""Slow-Network: what it runs, how full a link is, and its picture; nothing trains."""

import os
import sys
import types
from unittest import mock

import pytest
import support
from measurements import MEASUREMENTS, Calls, figures, legend_of, lines_of, load, trained, write


def test_the_runs_of_a_slow_network(tmp_path):
    """Updates for as many mini-batches; a link's rate in bytes; sent and received.

    Catches: asynchronous workers counted together, a mean of links for the fullest, the ps
    among the workers, and packets for bytes.
    """
    module, calls = load("Slow-Network"), []
    module.forked, module.hosts = trained(calls), mock.MagicMock()
    module.summarize_run = lambda ended, samples, place, batches, rate: (batches, rate)
    programs = {}
    for name in (
        "HogWild",
        "Synchronous-SGD",
        "DOWNPOUR-Easy, T = 50",
        "SAGN, T = 10, lr 0.5",
        "Ring-AllReduce, 4 workers",
    ):
        batches_each, rate = module.measure([1] * 6, ("", name, module.SMALL, 100, 2000), 1)
        programs[name] = batches_each, rate, calls[-1][1]["--steps"], calls[-1][0]
    two = {"ps": 1, "worker": 2}
    assert list(programs.values()) == [
        (1, 100, 2000, two),
        (2, 100, 1000, two),
        (50, 100, 40, two),
        (20, 100, 100, two),
        (4, 100, 500, {"worker": 4}),
    ]
    assert module.hosts.limit.call_args.args == (6, 100)
    runs = [
        {"links": [a, b, c]}
        for a, b, c in ((0.5, 0.25, 0.75), (0.75, 0.5, 0.25), (0.25, 0.125, 0.375), (0.5, 1, 0))
    ]
    assert [
        module.link_shares(runs, 1),
        module.link_shares(runs, 0),
        module.link_shares(runs, 2),
    ] == [
        ["50%", "62%"],
        ["", "75%"],
        ["62%", "31%"],
    ]
    own = load("Measurements/Slow-Network/hosts.py")
    commands = []
    own.run = lambda *line: commands.extend(line)
    own.limit(1, 1000)
    assert [line.partition("root ")[2] for line in commands] == [
        "tbf rate 1000mbit burst 125000 latency 300ms"
    ] * 2
    assert [line.split()[:6] for line in commands] == [
        "tc qdisc replace dev link0 root".split(),
        "tc -n host0 qdisc replace dev".split(),
    ]
    (tmp_path / "dev").write_text(
        "a\nb\n link1: 9 9 9 9 9 9 9 9 9 9\n link0: 10 1 2 3 4 5 6 7 80 1 2\n"
    )
    own.pathlib = types.SimpleNamespace(Path=lambda path: tmp_path / "dev")
    assert own.bytes_moved(0) == (10, 80)


def test_each_run_of_a_slow_network():
    """What a program's name says, in what its script is given, and the rate of all links.

    Catches: a ps too many, steps of another T, a flag of another case, and a model or a latency
    that its name does not say.
    """
    module, calls = load("Slow-Network"), Calls()
    module.forked, module.hosts = trained(calls), mock.MagicMock()
    module.summarize_run = lambda ended, samples, place, batches, rate: (batches, rate)
    module.hosts.bytes_moved = lambda k: (10 * k, 10 * k + 1)
    batches = {("69 KB", 100): 1000, ("8.7 MB", 100): 16, ("7.5 MB", 100): 40}
    batches |= {("69 KB", 1000): 3000, ("8.7 MB", 1000): 60}
    texts = {
        "69 KB": 'keras.layers.Dense(128, "relu"),\n            keras.layers.Dense(64, "relu"),',
        "8.7 MB": 'keras.layers.Dense(1024, "relu") for _ in range(3)',
        "7.5 MB": 'keras.layers.Dense(512, "relu") for _ in range(8)',
    }
    prefixes = ("Synchronous-SGD", "SAGN", "Ring-AllReduce", "Collective-AllReduce", "Compressed")
    for case in module.all_cases():
        where, _, name = case[0].partition(": ")
        model, link = where.removesuffix(" Mbit/s").split(", ")
        T = int(name.partition("T = ")[2].partition(",")[0] or 1)
        n, ps = (4 if "4 workers" in name else 2), 0 if "AllReduce" in name else 1
        ps += "2 ps" in name
        due = {"--seed": 3, **({"--local-steps": T} if T > 1 else {})}
        for words, flags in (
            ("lr 0.5", {"--learning-rate": 0.5}),
            ("lr 1", {"--learning-rate": 1}),
            ("alpha 0.45", {"--rho": pytest.approx(0.45 / 0.1)}),
            ("batches of 8192", {"--batch-size": 8192, "--steps-per-call": 1}),
            ("4 buckets", {"--buckets": 4}),
            ("not packed", {"--bytes-per-pack": 1}),
            ("rank 1", {"--rank": 1}),
            ("top 1%", {"--compress": "top-k", "--top": 0.01}),
            (", sign", {"--compress": "sign"}),
        ):
            due |= flags if name.endswith(words) or f"{words}, " in name else {}
        own = 120 if T == 1 and "Compressed" not in name else 2000
        total = 800 if "later" in name else batches.get((model, int(link)), own)
        a_step = T * (n if name.startswith(prefixes) else 1)
        assert case[1:] == (name, model, int(link), total), case[0]
        assert module.measure([0] * 6, case, 3) == (a_step, int(link)), case[0]
        jobs, row = calls[-1]
        assert jobs == {**({"ps": ps} if ps else {}), "worker": n}, case[0]
        assert row == {"--steps": max(10, total // a_step), **due}, case[0]
        assert module.hosts.limit.call_args.args == (6, int(link))
        text = calls.texts[-1]
        assert [words in text for words in texts.values()] == [words == model for words in texts]
        # The text of a folder without hidden layers of its own: each replaced one stands once.
        assert ("tf.numpy_function(lambda x: time.sleep(seconds)" in text) == ("later" in name)
        assert text.count("delayed(ready, 0.02)") >= ("later" in name)
        assert ("tf.float16" in text) == ("float16" in name)
        read_bytes, hosts = calls.more[-1]
        assert read_bytes() == [number for k in range(ps + n) for number in (10 * k, 10 * k + 1)]
        assert hosts == [0] * 6


@pytest.mark.parametrize(
    ("script", "words"),
    [
        ("Slow-Network/slow_network.py", "install util-linux and iproute2"),
        ("Ring-Bandwidth/ring_profile.py", "install linux-perf"),
    ],
)
def test_a_measurement_says_why_it_cannot_run(script, words, tmp_path):
    """Without iproute2, or perf: exit code 2, and one line that says what to install."""
    env = {**os.environ, "PATH": str(tmp_path)}
    done = support.run_to_end(sys.executable, MEASUREMENTS / script, env=env)
    (line,) = done.stderr.splitlines()
    assert done.returncode == 2 and words in line


def test_slow_network_says_how_full_a_link_is(tmp_path):
    """Catches: bytes for bits, both directions together, another time than that of the updates."""
    slow = load("Slow-Network")
    rows = [(10, 1, 0), (14, 3, 0), (20, 5, 0), (21, 5, 0.5, 0.9)]
    write(tmp_path, {"worker-0": rows, "worker-1": [(12, 2, 0), (16, 4, 0)]})
    # What the ps and two workers have sent and received: 1 MB a second from 10 to 20.
    samples = [(0, [0] * 6), (10, [0] * 6), (20, [10e6, 4e6, 2e6, 5e6, 2e6, 5e6]), (30, [90e6] * 6)]
    assert slow.summarize_run(True, samples, tmp_path, 20, 10) == {
        "batches_per_second": 7.5,
        "links": pytest.approx([0.8, 0.4, 0.4]),
        "test_loss": 0.5,
    }
    assert slow.summarize_run(False, samples, tmp_path, 20, 10)["test_loss"] is None


def test_the_picture_of_a_slow_network():
    """Medians and runs of each program against the rate of the link, a picture for each model.

    Catches: rates of another model, the first run for the median, a link that one model was not
    measured with and nobody says so, and no bars where only the overlap was measured.
    """
    module = load("Slow-Network")
    drawn = figures(module)

    def runs(*rates):
        return [{"batches_per_second": rate} for rate in rates]

    results = {
        "69 KB, 10 Mbit/s: HogWild": runs(3, 1, 2, 8),
        "69 KB, 100 Mbit/s: HogWild": runs(30),
        "69 KB, 10 Mbit/s: HogWild, 4 workers": runs(7),
        "69 KB, 10 Mbit/s: Ring-AllReduce": runs(5),
        "8.7 MB, 100 Mbit/s: HogWild": runs(0.5),
    }
    module.draw(results, None, None)
    small, large = drawn[0].axes
    assert lines_of(small) == [
        ("None", "HogWild", [(10, 2.5), (100, 30)]),
        (".", "", [(10, 3), (10, 1), (10, 2), (10, 8)]),
        (".", "", [(100, 30)]),
        ("None", "Ring-AllReduce", [(10, 5)]),
        (".", "", [(10, 5)]),
    ]
    assert lines_of(large) == [("None", "HogWild", [(100, 0.5)]), (".", "", [(100, 0.5)])]
    assert small.lines[0].get_color() == large.lines[0].get_color() != small.lines[3].get_color()
    assert small.lines[1].get_color() == small.lines[0].get_color()
    assert [text.get_text() for text in small.texts] == []
    ((text, at),) = [(text.get_text(), text.get_position()) for text in large.texts]
    assert (text, at) == ("not measured", (10, 0.5))
    assert large.texts[0].get_transform() == large.get_xaxis_transform()
    assert [axes.get_title() for axes in (small, large)] == ["model of 69 KB", "model of 8.7 MB"]
    assert [axes.get_xscale() + axes.get_yscale() for axes in (small, large)] == ["loglog"] * 2
    assert legend_of(drawn[0]) == ["HogWild", "Ring-AllReduce"]
    module.draw(dict(list(results.items())[:3]), None, None)
    assert len(drawn[1].axes) == 1
    given = []
    module.charts.bars = lambda *arguments: given.extend(arguments)
    name = "Ring-AllReduce, batches of 8192, 4 buckets"
    module.draw({f"7.5 MB, 100 Mbit/s: {name}": runs(1.25, 2)}, "a path", "a source")
    _, _, rates, colours, form, *paths = given
    due = name.replace(", ", "\n")
    assert (rates, colours) == ({due: [1.25, 2]}, {due: "C0"})
    assert [form(1.5), *paths] == ["1.50", "a path", "a source"]
