"""How large a learning rate may be where gradients are late: laws of one eigenvalue.

On a loss lambda * w^2 / 2 worker k pushes w <- w - h * w_k, with h = lr * lambda, and then pulls
w_k <- w. When these moments of w grow with the pushes, the rate is too large.
"""

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np
from tfrun.apps import perceptron


def constant(n: Any) -> Any:
    """Returns the limit of h where n workers push in turn: each is late by n - 1 pushes.

    n: a number, or an array of them.
    """
    return 2 * np.sin(np.pi / (4 * n - 2))


def mean_only(n: int) -> float:
    """Returns the limit of h where a random worker pushes next, for the mean of w alone.

    E[w] stays bounded up to here, but E[w^2] grows from mean_square(n) on.
    """
    p = 1 / n
    return 2 * (2 - p) / p


def moments(n: int, h: float) -> np.ndarray:
    """Returns the matrix of one push by a random one of n workers.

    It moves E[w^2], E[w w_k], E[w_k^2] and E[w_j w_k] with j != k, which are the same for all
    workers.
    """
    square = np.array([1, -2 * h, h**2, 0])  # E[(w - h w_k)^2]
    product = np.array([0, 1, 0, -h])  # E[(w - h w_k) w_j]
    own_square, product_of_two = np.eye(4)[2:]
    p = 1 / n
    rows = [
        square,
        p * square + (1 - p) * product,  # the worker that has pushed has pulled the new w
        p * square + (1 - p) * own_square,
        2 * p * product + (1 - 2 * p) * product_of_two,
    ]
    return np.array(rows)


def radius(n: int, h: float) -> float:
    """Returns by which factor these moments grow in a push in the long run."""
    return max(abs(np.linalg.eigvals(moments(n, h))))


@functools.cache
def mean_square(n: int) -> float:
    """Returns the limit of h where a random worker pushes next: E[w^2] grows above it."""
    low, high = 0.0, 4.0
    while high - low > 1e-9:
        h = (low + high) / 2
        if radius(n, h) < 1:
            low = h
        else:
            high = h
    return low


def sharpness(w: Sequence[np.ndarray], x: np.ndarray, y: np.ndarray, steps: int = 20) -> float:
    """Returns the largest eigenvalue of the Hessian of the mean loss at w, by Lanczos' iteration.

    w: weights and biases of each layer in turn. A power iteration would find the eigenvalue that is
    largest without its sign.
    """
    parts = [np.asarray(part, np.float64) for part in w]
    cuts = np.cumsum([part.size for part in parts])[:-1]
    flat = np.concatenate([part.ravel() for part in parts])

    def gradient(vector: np.ndarray) -> np.ndarray:
        shaped = [v.reshape(p.shape) for v, p in zip(np.split(vector, cuts), parts)]
        return np.concatenate([d.ravel() for d in perceptron.loss_and_gradient(shaped, x, y)[1]])

    step, steps = 1e-4, min(steps, flat.size)
    start = np.random.RandomState(0).randn(flat.size)
    basis, projected = [start / np.linalg.norm(start)], np.zeros((steps, steps))
    for number in range(steps):
        d = step * basis[-1]
        image = (gradient(flat + d) - gradient(flat - d)) / (2 * step)
        vectors = np.array(basis)
        projected[: number + 1, number] = projected[number, : number + 1] = vectors @ image
        for _ in range(2):  # the second time for what rounding has left
            image -= vectors.T @ (vectors @ image)
        length = np.linalg.norm(image)
        if length < 1e-9:  # the basis is whole
            return float(np.linalg.eigvalsh(projected[: number + 1, : number + 1])[-1])
        basis.append(image / length)
    return float(np.linalg.eigvalsh(projected)[-1])
