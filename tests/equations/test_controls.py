"""Compare's controls: scripts with other equations, which no other test compares with a reference.

Each reference is written from the equation. A mistake is put into what the control changes.
"""

import numpy as np
import pytest
import support
import test_equations
import test_synchronous
from lab import examples
from tfrun.apps import references

COMPARE = examples.load(examples.ROOT / "Measurements" / "Compare" / "compare.py")


class ServerAdag(references.Adag):
    """As ADAG, but w <- w - server_rate * a / T."""

    def apply(self, a, tau):
        step = self.hyperparameters["server_rate"] / self.hyperparameters["local_steps"]
        self.w = [v - step * s for v, s in zip(self.w, a)]


class ServerSagn(references.Sagn):
    """As SAGN, but the common step has a rate of its own."""

    def joint_step(self, those):
        before, losses = self.copy(), super().joint_step(those)
        times = self.hyperparameters["server_rate"] / self.lr
        self.w = [b - times * (b - v) for b, v in zip(before, self.w)]
        return losses


class Adaptive(references.HogWild):
    """DC-ASGD-a (Zheng et al. 2017, section 5): w <- w - lr * (g + l * g^2 * (w - w_k)),

    l = lambda / sqrt(m + 1e-7), and m <- 0.95 m + 0.05 g^2 before.
    """

    def __init__(self, w, *more, **hyperparameters):
        super().__init__(w, *more, **hyperparameters)
        self.m = [np.zeros_like(v) for v in self.w]

    def update(self, k, version, w_k):
        loss, g = self.gradient(k, version, w_k)
        for i, d in enumerate(g):
            self.m[i] = 0.95 * self.m[i] + 0.05 * d**2
            late = self.hyperparameters["compensation"] / np.sqrt(self.m[i] + 1e-7) * d**2
            self.w[i] = self.w[i] - self.lr * (d + late * (self.w[i] - w_k[i]))
        return loss


T = {"local_steps": 4, "server_rate": 0.7}
CONTROLS = {
    "ADAG, a server rate": (test_equations.compare, ServerAdag, T),
    "SAGN, a server rate": (test_synchronous.compare, ServerSagn, T),
    "Further-Algorithms/Delay-Compensation, adaptive": (
        test_equations.compare,
        Adaptive,
        {"compensation": 5.0},
    ),
}


def compare(name, changes, folder):
    """Compares a control, in which a mistake may be planted, with its reference."""
    how, reference, flags = CONTROLS[name]
    row = COMPARE.SPECIAL_ROWS[name]
    script = examples.main_script(row.example)
    text = examples.replaced(script, [*row.changes, *changes])
    more = {"folder": folder} if how is test_equations.compare else {}
    how(script, reference=reference, flags=flags, text=text, **more)


@pytest.mark.parametrize("name", CONTROLS)
def test_a_control_is_its_equation(name, tmp_path):
    """A control with a wrong equation: else only that its texts fit the script is tested."""
    compare(name, [], tmp_path)


MISTAKES = {
    "ADAG, a server rate": {
        "the local rate": [("flags.server_rate * a", "flags.learning_rate * a")]
    },
    "SAGN, a server rate": {
        "the local rate": [("flags.server_rate / N", "flags.learning_rate / N")]
    },
    "Further-Algorithms/Delay-Compensation, adaptive": {
        "without the root": [("tf.sqrt(square + 1e-7)", "(square + 1e-7)")],
        "the mean before this gradient": [
            (
                "square = mean.assign(",
                "before = mean.read_value()\n            square = mean.assign(",
            ),
            ("/ tf.sqrt(square + 1e-7)", "/ tf.sqrt(before + 1e-7)"),
        ],
        "the newest square alone": [("0.95 * mean.read_value() + (1 - 0.95) *", "")],
    },
}


@pytest.mark.plants_mistakes
@pytest.mark.long
@pytest.mark.parametrize(
    "name, changes",
    [
        pytest.param(name, changes, id=f"{name}: {mistake}")
        for name, mistakes in MISTAKES.items()
        for mistake, changes in mistakes.items()
    ],
)
def test_a_mistake_in_a_control_is_found(name, changes, tmp_path):
    with support.fails_comparison("parameters"):
        compare(name, changes, tmp_path)
