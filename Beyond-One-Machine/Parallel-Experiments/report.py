"""What is shown of results: an order, a table, a CSV file, a picture, TensorBoard, progress."""

import csv
import math
import sys
import time

from tfrun.launch import grid

EVENTS = ".experiments"  # the end of the names of this script's event files


def in_order(results, metric, direction):
    """The best first; then those without the metric, such as NaN; at last those that failed."""

    def place(result):
        value = result["metrics"].get(metric)
        if value is None:
            return 1 + (result["status"] == "failed"), 0, result["run"]
        return 0, -value if direction == "max" else value, result["run"]

    return sorted(results, key=place)


def columns(results):
    """(the names of all parameters, those that vary, the names of all metrics)"""
    names = list(dict.fromkeys(name for result in results for name in result["parameters"]))
    # The type belongs to a value: True and 1 are two.
    values = {name: {repr(result["parameters"].get(name)) for result in results} for name in names}
    metrics = list(dict.fromkeys(name for result in results for name in result["metrics"]))
    return names, [name for name in names if len(values[name]) > 1] or names, metrics


def write_csv(results, path):
    """A row for each run: its parameters, its metrics, and how it ended."""
    names, _, metrics = columns(results)
    with open(path, "w", newline="") as file:
        rows = csv.DictWriter(file, ["run", *names, *metrics, "status", "seconds", "error"])
        rows.writeheader()
        for result in results:
            row = {**result, **result["parameters"], **result["metrics"]}
            rows.writerow({name: row.get(name) for name in rows.fieldnames})


def print_table(results):
    """The results on the screen: what varies, the metrics, and the last line of each error."""
    from rich.console import Console
    from rich.table import Table

    _, varying, metrics = columns(results)
    table = Table(box=None)
    for name in [*varying, *metrics, "seconds", "end"]:
        table.add_column(name, overflow="fold")
    for result in results:
        values = [result["metrics"].get(name) for name in metrics]
        end = (result["error"].splitlines() or [result["status"]])[-1]
        table.add_row(
            *(grid.text(result["parameters"].get(name, "")) for name in varying),
            *("" if value is None else f"{value:.4f}" for value in values),
            "{:.1f}".format(result["seconds"]),
            end,
            style=None if not result["error"] else "red",
        )
    Console(width=None if sys.stdout.isatty() else 100, markup=False).print(table)


def draw(results, metric, path):
    """The metric of all runs against each parameter that varies, the best run marked."""
    from matplotlib.figure import Figure

    _, varying, _ = columns(results)
    done = [result for result in results if result["metrics"].get(metric) is not None]
    figure = Figure((1 + 3.2 * len(varying), 3.6), layout="constrained")
    axes = figure.subplots(1, len(varying), sharey=True, squeeze=False)[0]
    for place, (axis, name) in enumerate(zip(axes, varying)):
        values = sorted(
            {result["parameters"].get(name) for result in results},
            key=lambda value: (isinstance(value, str), value is not None, value),
        )
        for result in reversed(done):
            best = result is done[0]
            axis.plot(
                values.index(result["parameters"].get(name)),
                result["metrics"][metric],
                "*" if best else "o",
                markersize=15 if best else 8,
                alpha=0.8,
                color="#d62728" if best else "#1f77b4",
            )
        axis.set_xticks(range(len(values)), [grid.text(value) for value in values])
        axis.set_xmargin(0.2)
        axis.set(xlabel=name, ylabel=metric if not place else "")
        axis.grid(axis="y", alpha=0.3)
    failed = sum(result["status"] == "failed" for result in results)
    figure.suptitle(
        "%d runs%s; the star is the best" % (len(results), f", {failed} failed" if failed else ""),
        fontsize=11,
    )
    figure.savefig(path, dpi=140)


def write_events(folder, summaries):
    """An event file for TensorBoard, in place of this script's earlier one."""
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.summary.writer.record_writer import RecordWriter

    earlier = list(folder.glob("events.*" + EVENTS))
    # TensorBoard's own EventFileWriter would import TensorFlow, too.
    path = folder / ("events.out.tfevents.%020d%s" % (time.time_ns(), EVENTS))
    with open(path, "wb") as file:
        writer = RecordWriter(file)
        writer.write(Event(wall_time=time.time(), file_version="brain.Event:2").SerializeToString())
        for summary in summaries:
            writer.write(Event(wall_time=time.time(), summary=summary).SerializeToString())
    for old in earlier:
        old.unlink()


def hparams_of(result):
    """The summaries of one run for the tab HParams: its start, its metrics, how it ended."""
    from tensorboard.compat.proto.summary_pb2 import Summary

    # hparams.api has the same functions, but imports TensorFlow, which takes seconds.
    from tensorboard.plugins.hparams import api_pb2, metadata, plugin_data_pb2, summary_v2
    from tensorboard.plugins.scalar.summary_v2 import scalar_pb

    yield summary_v2.hparams_pb(result["parameters"], result["run"], result["began"])
    for name, value in result["metrics"].items():
        yield scalar_pb(name, math.nan if value is None else value)
    status = api_pb2.STATUS_SUCCESS if result["status"] == "done" else api_pb2.STATUS_FAILURE
    ended = result["began"] + result["seconds"]
    end = plugin_data_pb2.SessionEndInfo(status=status, end_time_secs=ended)
    data = plugin_data_pb2.HParamsPluginData(session_end_info=end)
    yield Summary(
        value=[
            Summary.Value(
                tag=metadata.SESSION_END_INFO_TAG,
                tensor=metadata.NULL_TENSOR,
                metadata=metadata.create_summary_metadata(data),
            )
        ]
    )


def hparams_config(results):
    """Returns the summary that names all parameters with their values, and all metrics."""
    from tensorboard.plugins.hparams import summary_v2 as api

    names, _, metrics = columns(results)
    parameters = []
    for name in names:
        values = [result["parameters"][name] for result in results if name in result["parameters"]]
        if {type(value) for value in values} == {int, float}:
            values = [float(value) for value in values]
        alike = len({type(value) for value in values}) == 1  # else TensorBoard has no domain for it
        domain = api.Discrete(sorted(set(values))) if alike else None
        parameters.append(api.HParam(name, domain))
    return api.hparams_config_pb(parameters, [api.Metric(name) for name in metrics])


def show(result, metric, done, n):
    """Prints a line for a run that has ended."""
    value = result["metrics"].get(metric)
    end = result["status"] if value is None else f"{metric} {value:.4g}"
    print(f"[experiments] {done} of {n}, {result['run']}: {end}", flush=True)


def equal(one, other):
    """Whether two lists of results agree in all but the time; prints what differs."""
    same = True
    other = {result["run"]: result for result in other}
    for result in one:
        name = result["run"]
        for key in ("status", "metrics"):
            if result[key] != other[name][key]:
                same = False
                values = f"{result[key]} on Spark, {other[name][key]} locally"
                print(f"[experiments] {name} differs: {values}")
    return same
