"""Loss over seconds: a trace of tfrun.simulate.schemes drives real updates of a softmax regression.

x: [examples, d], the last column 1; y: [examples], labels from 0; w: [d, classes]. A trace says
which worker's gradient, taken at which version of w, moves w when; here it is computed.
"""

import numpy as np
from tfrun.simulate import laws, schemes
from tfrun.simulate.laws import number

BATCH = 32  # examples of a mini-batch
POINTS = 40  # of a curve, about


def softmax(z: np.ndarray) -> np.ndarray:
    """Returns the probabilities of some logits [..., classes]."""
    z = np.exp(z - z.max(axis=-1, keepdims=True))
    return z / z.sum(axis=-1, keepdims=True)


def gradient(w: np.ndarray, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Returns that of the mean loss. w: [d, classes], or [n, d, classes] with x [n, b, d]."""
    p = softmax(x @ w)
    np.put_along_axis(p, y[..., None], np.take_along_axis(p, y[..., None], -1) - 1, -1)
    return np.swapaxes(x, -1, -2) @ p / np.float32(x.shape[-2])


def loss(w: np.ndarray, x: np.ndarray, y: np.ndarray) -> float:
    """Returns the mean cross-entropy; with w all 0 it is the logarithm of the classes."""
    z = x @ w
    largest = z.max(axis=1)
    sums = np.exp(z - largest[:, None]).sum(axis=1)
    return float(np.mean(np.log(sums) + largest - z[np.arange(len(y)), y]))


def rows_of(n: int, updates: int, examples: int, seed: int = 0) -> np.ndarray:
    """Returns the rows of each mini-batch, [n, updates, BATCH]: a worker's whatever n is."""
    streams = [laws.stream(seed, k, purpose=3) for k in range(n)]
    return np.stack([stream.integers(examples, size=(updates, BATCH)) for stream in streams])


def earlier_entries(worker: np.ndarray, n: int) -> np.ndarray:
    """Returns, for each entry of a trace, how many entries of its worker come before it."""
    order, counts = np.argsort(worker, kind="stable"), np.bincount(worker, minlength=n)
    numbers = np.empty(len(worker), np.int64)
    numbers[order] = np.concatenate([np.arange(count) for count in counts])
    return numbers


class Curve:
    """Notes (seconds, training loss) about POINTS times in so many seconds."""

    def __init__(self, x: np.ndarray, y: np.ndarray, seconds: float) -> None:
        self.x = x
        self.y = y
        self.next_note = 0.0
        self.points: list[tuple[float, float]] = []
        self.gap = number("seconds", seconds) / POINTS

    def note_if_due(self, now: float, w: np.ndarray) -> None:
        """Notes the loss of w at that time, if the last note is long enough ago."""
        if now >= self.next_note:
            self.points.append((float(now), loss(w, self.x, self.y)))
            self.next_note = now + self.gap


def follow(
    trace: schemes.Trace,
    n: int,
    x: np.ndarray,
    y: np.ndarray,
    rows: np.ndarray,
    lr: float,
    seconds: float,
    local: int = 1,
) -> list[tuple[float, float]]:
    """Moves w by each gradient of a Trace: w <- w - lr * the mean of those of a step.

    rows: those of rows_of(), local mini-batches for each update. lr: the learning rate. With local
    steps a gradient is the sum of so many, each at the worker's own moved copy. Returns the points
    of the training loss, until so many seconds. Raises ValueError.
    """
    rate = np.float32(number("lr", lr))
    curve = Curve(x, y, seconds)
    is_used = trace.step >= 0
    count = np.searchsorted(trace.push[is_used], seconds, "right")
    columns = trace.worker, trace.version, trace.step, trace.push
    worker, version, step, push = (column[is_used][:count] for column in columns)
    batch_number = earlier_entries(trace.worker, n)[is_used][:count]
    starts = np.flatnonzero(np.diff(step, prepend=-1))
    W = np.zeros((len(starts) + 1, x.shape[1], y.max() + 1), np.float32)  # w of all versions
    curve.note_if_due(0.0, W[0])
    for update, (i, j) in enumerate(zip(starts, np.append(starts[1:], count))):
        w_k = W[version[i:j]]
        if local == 1 and (version[i:j] == version[i]).all():
            # The mean of the workers' gradients is the gradient on all their rows together.
            batch = rows[worker[i:j], batch_number[i:j]].ravel()
            change = rate * gradient(W[version[i]], x[batch], y[batch])
        else:
            for t in range(local):
                batch = rows[worker[i:j], batch_number[i:j] * local + t]
                w_k = w_k - rate * gradient(w_k, x[batch], y[batch])
            change = (W[version[i:j]] - w_k).mean(0)
        W[update + 1] = W[update] - change
        curve.note_if_due(push[j - 1], W[update + 1])
    return curve.points


def follow_pairs(
    pairs: schemes.Pairs,
    n: int,
    x: np.ndarray,
    y: np.ndarray,
    rows: np.ndarray,
    lr: float,
    seconds: float,
) -> tuple[list[tuple[float, float]], float]:
    """w_k, w_j <- their mean; w_k <- w_k - lr * g(what w_k was): the AD-PSGD of schemes.gossip().

    Returns (the points of the loss at the mean of all w, which is nobody's; the last loss at the w
    of worker 0 alone).
    """
    rate = np.float32(number("lr", lr))
    curve = Curve(x, y, seconds)
    w = np.zeros((n, x.shape[1], y.max() + 1), np.float32)
    pulled, mean_w, batch_number = w.copy(), w[0].copy(), earlier_entries(pairs.worker, n)
    curve.note_if_due(0.0, mean_w)
    for k, j, i, now in zip(pairs.worker, pairs.partner, batch_number, pairs.push):
        if now > seconds:
            break
        g = rate * gradient(pulled[k], x[rows[k, i]], y[rows[k, i]])
        w[k] = w[j] = (w[k] + w[j]) / 2
        w[k] -= g
        pulled[k] = w[k]
        mean_w -= g / n
        curve.note_if_due(now, mean_w)
    return curve.points, loss(w[0], x, y)
