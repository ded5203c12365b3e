"""The update rules in NumPy, from the equations alone; nothing here comes from a script.

A reference is told who pulls and who pushes, in the order in which the test has it done. All
numbers are float64. gradient(k, number, w) is that of worker k's mini-batch `number` at w:
(loss, list).
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

Gradient = Callable[[int, int, list[np.ndarray]], tuple[float, list[np.ndarray]]]


class HogWild:
    """w <- w - lr * g(w_k)."""

    def __init__(
        self,
        w: list[np.ndarray],
        workers: int,
        gradient: Gradient,
        lr: float,
        **hyperparameters: Any,
    ) -> None:
        self.w = [np.array(v, np.float64) for v in w]
        self.n = workers
        self.gradient = gradient
        self.lr = lr
        self.hyperparameters = hyperparameters
        self.step = 0
        self.pulled: dict[int, tuple[int, list[np.ndarray]]] = {}

    def copy(self) -> list[np.ndarray]:
        return [v.copy() for v in self.w]

    def pull(self, k: int) -> None:
        self.pulled[k] = self.step, self.copy()

    def push(self, k: int) -> tuple[float, int, int]:
        """Returns (loss, ticket, staleness)."""
        version, w_k = self.pulled.pop(k)
        loss = self.update(k, version, w_k)
        self.step += 1
        return loss, self.step - 1, self.step - 1 - version

    def update(self, k: int, version: int, w_k: list[np.ndarray]) -> float:
        loss, g = self.gradient(k, version, w_k)
        self.w = [v - self.lr * d for v, d in zip(self.w, g)]
        return loss

    def values(self) -> dict[str, list[np.ndarray]]:
        """{what a test calls it: arrays} of all that lasts from push to push."""
        return {"parameters": self.w}


class Easy(HogWild):
    """a <- a + g(w_k), w_k <- w_k - lr * g(w_k), T times; w <- w - lr * a."""

    def update(self, k: int, version: int, w_k: list[np.ndarray]) -> float:
        T, a = self.hyperparameters["local_steps"], [np.zeros_like(v) for v in w_k]
        for t in range(T):
            loss, g = self.gradient(k, version * T + t, w_k)
            a = [s + d for s, d in zip(a, g)]
            w_k = [v - self.lr * d for v, d in zip(w_k, g)]
        self.apply(a, self.step - version)
        return loss

    def apply(self, a: list[np.ndarray], tau: int) -> None:
        self.w = [v - self.lr * s for v, s in zip(self.w, a)]


class Adag(Easy):
    """As Easy, but w <- w - lr * a / T."""

    def apply(self, a: list[np.ndarray], tau: int) -> None:
        self.w = [v - self.lr * s / self.hyperparameters["local_steps"] for v, s in zip(self.w, a)]


class Dyn(Easy):
    """As Easy, but w <- w - lr * a / (tau + 1)."""

    def apply(self, a: list[np.ndarray], tau: int) -> None:
        self.w = [v - self.lr * s / (tau + 1) for v, s in zip(self.w, a)]


class Downpour(Easy):
    """As Easy, but h <- h + a^2, w <- w - server_lr * a / sqrt(h)."""

    def __init__(self, w: list[np.ndarray], *more: Any, **hyperparameters: Any) -> None:
        super().__init__(w, *more, **hyperparameters)
        self.h = [np.full_like(v, hyperparameters["initial_accumulator"]) for v in self.w]

    def apply(self, a: list[np.ndarray], tau: int) -> None:
        self.h = [h + s**2 for h, s in zip(self.h, a)]
        rate = self.hyperparameters["server_lr"]
        self.w = [v - rate * s / np.sqrt(h) for v, s, h in zip(self.w, a, self.h)]

    def values(self) -> dict[str, list[np.ndarray]]:
        return {**super().values(), "accumulators": self.h}


class Elastic(HogWild):
    """E = alpha * (w_k - w), w <- w + E, alpha = lr * rho, and then w_k <- w_k - E + v, where
    v <- delta * v - lr * g(w_k + delta * v) is of the w_k before; T - 1 times w_k <- w_k + v."""

    def __init__(self, w: list[np.ndarray], *more: Any, **hyperparameters: Any) -> None:
        super().__init__(w, *more, **hyperparameters)
        self.own: dict[int, list[np.ndarray]] = {}
        self.v = {k: [np.zeros_like(v) for v in self.w] for k in range(self.n)}

    def pull(self, k: int) -> None:
        super().pull(k)
        self.own.setdefault(k, self.copy())  # it begins as w

    def update(self, k: int, version: int, _: list[np.ndarray]) -> float:
        T, w_k, v = self.hyperparameters["local_steps"], self.own[k], self.v[k]
        delta = self.hyperparameters.get("momentum", 0.0)
        force = [self.lr * self.hyperparameters["rho"] * (p - c) for p, c in zip(w_k, self.w)]
        self.w = [c + e for c, e in zip(self.w, force)]
        for t in range(T):
            ahead = [p + delta * m for p, m in zip(w_k, v)]
            loss, g = self.gradient(k, version * T + t, ahead)
            v = [delta * m - self.lr * d for m, d in zip(v, g)]
            w_k = [p + m for p, m in zip(w_k, v)]
            if t == 0:
                w_k = [p - e for p, e in zip(w_k, force)]
        self.own[k], self.v[k] = w_k, v
        return loss

    def values(self) -> dict[str, list[np.ndarray]]:
        values = super().values()
        values["own parameters"] = [v for k in range(self.n) for v in self.own.get(k, self.w)]
        if "momentum" in self.hyperparameters:
            values["velocities"] = [v for k in range(self.n) for v in self.v[k]]
        return values


class Synchronous(HogWild):
    """w <- w - lr * (1/N) * sum of g_k(w) over those who take part."""

    def joint_step(self, those: Sequence[int]) -> list[float]:
        """One step of these workers; returns the loss of each."""
        taken = [self.gradient(k, self.step, self.w_of(k)) for k in those]
        self.move([g for _, g in taken], those)
        self.step += 1
        return [loss for loss, _ in taken]

    def w_of(self, k: int) -> list[np.ndarray]:
        """Returns the parameters of worker k, which are those of all."""
        return self.w

    def rate(self) -> float:
        """Grows from lr / N to lr over the steps of the warm-up."""
        warmup = self.hyperparameters.get("warmup_steps", 0)
        n = self.n - self.hyperparameters.get("backup_workers", 0)
        done = min(1, self.step / warmup) if warmup else 1
        return self.lr / n + (self.lr - self.lr / n) * done

    def move(self, g: list[list[np.ndarray]], those: Sequence[int]) -> None:
        rate = self.rate()
        self.w = [v - rate * sum(d) / len(those) for v, d in zip(self.w, zip(*g))]


class Gossip(Synchronous):
    """w_k <- w_k - lr * g_k(w_k), of all workers at once: each has a w of its own."""

    def __init__(self, w: list[np.ndarray], *more: Any, **hyperparameters: Any) -> None:
        super().__init__(w, *more, **hyperparameters)
        self.own = [self.copy() for _ in range(self.n)]

    def w_of(self, k: int) -> list[np.ndarray]:
        """Returns the parameters of worker k."""
        return self.own[k]

    def move(self, g: list[list[np.ndarray]], those: Sequence[int]) -> None:
        for k, g_k in zip(those, g):
            self.own[k] = [v - self.lr * d for v, d in zip(self.own[k], g_k)]


class DifferentRates(Synchronous):
    """w <- w - sum of lr_k * g_k(w)."""

    def move(self, g: list[list[np.ndarray]], those: Sequence[int]) -> None:
        rates = self.hyperparameters["learning_rates"]
        self.w = [
            v - sum(rates[k % len(rates)] * d for k, d in zip(those, ds))
            for v, ds in zip(self.w, zip(*g))
        ]


class Sagn(Synchronous):
    """w <- w - lr * (1/n) * sum of a_k / T, a_k as in Adag."""

    def joint_step(self, those: Sequence[int]) -> list[float]:
        T, means, losses = self.hyperparameters["local_steps"], [], []
        for k in those:
            w_k, a = self.copy(), [np.zeros_like(v) for v in self.w]
            for t in range(T):
                loss, g = self.gradient(k, self.step * T + t, w_k)
                a = [s + d for s, d in zip(a, g)]
                w_k = [v - self.lr * d for v, d in zip(w_k, g)]
            means.append([s / T for s in a])
            losses.append(loss)
        self.w = [v - self.lr * sum(d) / len(those) for v, d in zip(self.w, zip(*means))]
        self.step += 1
        return losses


def skip_gram(
    w: list[np.ndarray], pairs: np.ndarray, noise: np.ndarray, weight: float
) -> tuple[float, list[np.ndarray]]:
    """Skip-gram with shared noise words, and its gradient. w: the parts of the table of words, then
    those of the table of neighbours; row r is in part r % parts. pairs: [rows, 2]."""
    parts = len(w) // 2
    u, c = np.empty((2, sum(map(len, w[:parts])), w[0].shape[1]))
    for part in range(parts):
        u[part::parts], c[part::parts] = w[part], w[parts + part]
    g_u, g_c, rows = np.zeros_like(u), np.zeros_like(c), len(pairs)
    loss = 0.0
    for word, neighbour in pairs:
        loss += np.log1p(np.exp(-u[word] @ c[neighbour])) / rows
        slope = -1 / (1 + np.exp(u[word] @ c[neighbour])) / rows
        g_u[word] += slope * c[neighbour]
        g_c[neighbour] += slope * u[word]
        for other in noise:
            loss += weight * np.log1p(np.exp(u[word] @ c[other])) / rows / len(noise)
            slope = weight / (1 + np.exp(-u[word] @ c[other])) / rows / len(noise)
            g_u[word] += slope * c[other]
            g_c[other] += slope * u[word]
    return loss, [table[part::parts] for table in (g_u, g_c) for part in range(parts)]
