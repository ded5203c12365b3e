"""Compressed-AllReduce: p <- lr * g_k(w) + e_k, c_k <- C(p), e_k <- p - c_k, w <- w - mean of all
c_k, with four C. test_compressed.py compares C by itself, and the training."""

import numpy as np
from tfrun.apps.references import Synchronous


class Compressed:
    """The equations of one step, in double precision; it keeps Q of PowerSGD, and nothing else.

    A C returns c of each worker, and for each entry whether rounding cannot change it: near ties
    the script's single precision may decide otherwise.
    """

    def __init__(self, shapes, n, compress="power", rank=1, top=0.01, levels=127, seed=0):
        self.shapes, self.n, self.rank, self.top, self.levels = shapes, n, rank, top, levels
        self.C = {"power": self.power, "top-k": self.top_k, "sign": self.sign, "qsgd": self.qsgd}
        self.C, self.biased, self.seed = self.C[compress], compress != "qsgd", seed
        random, self.Q = np.random.default_rng(seed), []
        for shape in shapes:
            if len(shape) > 1:
                columns, most = shape[-1], min(rank, shape[-1], np.prod(shape[:-1]))
                self.Q.append(random.standard_normal((columns, most), np.float32).astype(float))
            else:
                self.Q.append(None)

    def step(self, w, e, g, lr, number, forget=False):
        """Returns (w after a step, e of each worker after it, which entries of each are sure)."""
        p = [lr * g_k + e_k for g_k, e_k in zip(g, e)]
        c, sure = self.C(p, number)
        kept = [p_k - c_k if self.biased and not forget else 0 * p_k for p_k, c_k in zip(p, c)]
        return w - sum(c) / self.n, kept, sure

    def cut(self, vector):
        """The parts of a vector, in the shapes of the layers."""
        ends = np.cumsum([np.prod(shape, dtype=int) for shape in self.shapes])
        return [x.reshape(s) for x, s in zip(np.split(vector, ends[:-1]), self.shapes)]

    def power(self, p, number):
        """The mean of all M, projected on what it makes of Q; a bias as it is."""
        layers = [self.cut(p_k) for p_k in p]
        c = [[] for _ in p]
        for i, shape in enumerate(self.shapes):
            own = [parts[i] for parts in layers]
            if len(shape) > 1:
                M = sum(own).reshape(-1, shape[-1]) / self.n
                P = orthonormal(M @ self.Q[i])
                new = M.T @ P
                own = [P @ new.T] * self.n
                for j in range(new.shape[1]):
                    if np.abs(new[:, j]).max() > 0:
                        self.Q[i][:, j] = new[:, j]
            for parts, x in zip(c, own):
                parts.append(x.reshape(-1))
        return [np.concatenate(parts) for parts in c], [np.full(v.shape, True) for v in p]

    def top_k(self, p, number):
        k, c, sure = max(1, int(self.top * len(p[0]))), [], []
        for p_k in p:
            order = np.argsort(-np.abs(p_k), kind="stable")
            c.append(np.where(np.isin(np.arange(len(p_k)), order[:k]), p_k, 0))
            last = np.abs(p_k[order[k - 1]])
            sure.append((np.abs(np.abs(p_k) - last) > 1e-5 * last) | (k == len(p_k)))
        return c, sure

    def sign(self, p, number):
        scales = [np.abs(p_k).mean() for p_k in p]
        c = [np.where(p_k >= 0, scale, -scale) for p_k, scale in zip(p, scales)]
        sure = [(p_k == 0) | (np.abs(p_k) > 1e-5 * scale) for p_k, scale in zip(p, scales)]
        return c, sure

    def qsgd(self, p, number):
        c, sure = [], []
        for k, p_k in enumerate(p):
            norm, drawn = np.sqrt(np.sum(p_k**2)), np.random.default_rng([self.seed, k, number])
            level = self.levels * np.abs(p_k) / norm + drawn.random(len(p_k))
            c.append(norm * np.sign(p_k) * np.floor(level) / self.levels)
            sure.append(np.abs(level - np.round(level)) > 1e-3)
        return c, sure


def orthonormal(matrix):
    """Gram and Schmidt's columns, which span what those of the matrix span."""
    columns = []
    for column in matrix.T:
        for _ in range(2):  # once more, for what rounding has left
            for other in columns:
                column = column - other @ column * other
        columns.append(column / np.sqrt(column @ column))
    return np.stack(columns, 1)


class PowerSGD(Synchronous):
    """Training with the first C, which is the default."""

    def __init__(self, w, *more, seed):
        super().__init__(w, *more)
        self.compressed = Compressed([v.shape for v in self.w], self.n, seed=seed)
        self.e = [0.0] * self.n

    def move(self, g, those):
        vector, *g = [np.concatenate([np.ravel(v) for v in part]) for part in (self.w, *g)]
        moved, self.e, _ = self.compressed.step(vector, self.e, g, self.lr, self.step)
        self.w = self.compressed.cut(moved)


REFERENCE = Compressed
COMPARED_BY = "tests/equations/test_compressed.py::test_training_is_the_equation"
SUM = "sum(map(decode, messages)) / ring.n"
KEPT = "e.assign(p - c)"
# Before a comma stands a case of test_compressed.py, behind it what must then differ.
MISTAKES = {
    "power, mean": {
        "P is not orthonormal": [("np.linalg.qr(mean[i])[0]", "mean[i]")],
        "the biases are not sent": [("if i in M else x for", "if i in M else 0 * x for")],
        "Q is the same in all steps": [
            (
                "    M = {i: layers",
                "    [q.assign(1 + 0 * q) for q in Q.values()]\n    M = {i: layers",
            )
        ],
        "the sum of P and of Q": [("np.split(x / ring.n", "np.split(x")],
    },
    "power, Q": {"Q of the first step": [("Q[i].assign(np.where(q.any(0), q, Q[i]))", "pass")]},
    "power, ranks": {
        "each worker has its own P": [("qr(mean[i])[0]", "qr(M[i] @ Q[i].numpy())[0]")],
        "each worker has its own Q": [
            ("mean_of_all([M[i].T @ P[i] for i in M], ring)", "[M[i].T @ P[i] for i in M]")
        ],
    },
    "power, c": {"biases that others sent": [("c = list(layers)", "c = list(mean)")]},
    "top-k, c": {
        "the largest, not the largest in size": [("-np.abs(p), mess", "-p, mess")],
        "the smallest": [("-np.abs(p), mess", "np.abs(p), mess")],
        "the size of each without its sign": [("= p[message", "= np.abs(p)[message")],
    },
    "top-k, mean": {"the sum of all c": [(SUM, "sum(map(decode, messages))")]},
    "sign, c": {
        "without its scale": [('m["scale"] * (2.0', "1e-3 * (2.0")],
        "the sign of 0 is that of -1": [("np.packbits(p >= 0)", "np.packbits(p > 0)")],
        "the median of |p|": [("np.abs(p).mean()", "np.median(np.abs(p))")],
    },
    "sign, mean": {
        "the mean of one worker": [(SUM, "decode(messages[0])")],
    },
    "qsgd, c": {
        "the nearest level": [("np.random.default_rng(seed).random(p.size)", "0.5")],
        "always down": [(" + np.random.default_rng(seed).random(p.size)", "")],
        "without its norm": [('m["norm"] / s', "1e-3 / s")],
    },
    # Of the training.
    "training with top-k, errors": {
        "e forgets": [(KEPT, "e.assign(0 * c)")],
        "e is what was sent": [(KEPT, "e.assign(c)")],
        "e keeps what was sent": [(KEPT, "e.assign(p)")],
        "e is the same on all workers": [(KEPT, "e.assign(p - mean)")],
        "lr once more": [(KEPT, "e.assign((p - c) * flags.learning_rate)")],
    },
    "training with top-k, parameters": {"e is not added": [("* g + e", "* g + 0 * e")]},
    "training with power, parameters": {
        "lr twice": [("w.assign_sub(mean)", "w.assign_sub(flags.learning_rate * mean)")],
        "the sum instead of the mean": [("w.assign_sub(mean)", "w.assign_sub(ring.n * mean)")],
        "constant data": [("gradient(w_k, version)", "gradient(w_k, 0)")],
    },
    "training with sign, ranks": {
        "its own c": [("w.assign_sub(mean)", "w.assign_sub(c)")],
        "no broadcast": [("    broadcast([step, w, *state, *more], ring)\n", "")],
    },
    "training with qsgd, errors": {
        "e of what is right on average": [('flags.compress != "qsgd" and not', "not")],
    },
    "training with qsgd, parameters": {
        "the same random numbers in all steps": [("[flags.seed, k, number]", "[flags.seed, k, 0]")],
        "the same on all workers": [("[flags.seed, k, number]", "[flags.seed, 0, number]")],
    },
    "training with forgetting, errors": {
        "e is kept all the same": [(" and not flags.forget_error", "")]
    },
}
APP = {"reference": PowerSGD, "flags": {"seed": 5}}
