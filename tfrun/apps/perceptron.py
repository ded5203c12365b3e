"""The loss of a multilayer perceptron and its gradient in NumPy, in float64.

Nothing here comes from a script or from TensorFlow, so measurements and tests compare with it.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

# {name of a hidden layer's activation: (its output, its slope, which the output tells)}
ACTIVATIONS: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "relu": (lambda z: np.maximum(z, 0), lambda h: h > 0),
    "tanh": (np.tanh, lambda h: 1 - h * h),
}


def loss_and_gradient(
    w: list[np.ndarray], x: np.ndarray, y: np.ndarray, activation: str = "relu"
) -> tuple[float, list[np.ndarray]]:
    """Returns the mean cross-entropy, and its gradient: a list of arrays as w.

    w: weights and biases of each layer in turn. x: [rows, features]; y: [rows], labels from 0.
    activation: that of the hidden layers, of ACTIVATIONS.
    """
    output, slope = ACTIVATIONS[activation]
    hidden = [x.astype(np.float64)]
    for weights, biases in zip(w[:-2:2], w[1:-2:2]):
        hidden.append(output(hidden[-1] @ weights + biases))
    scores = hidden[-1] @ w[-2] + w[-1]
    p = np.exp(scores - scores.max(1, keepdims=True))
    p /= p.sum(1, keepdims=True)
    loss = -np.log(p[np.arange(len(y)), y]).mean()
    p[np.arange(len(y)), y] -= 1
    delta = p / len(y)
    g: list[np.ndarray] = []
    for layer in range(len(w) - 2, -1, -2):
        g = [hidden[layer // 2].T @ delta, delta.sum(0)] + g
        delta = (delta @ w[layer].T) * slope(hidden[layer // 2])
    return loss, g
