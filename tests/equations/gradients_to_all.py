"""Gradients-To-All: @@TODO@@ the update rule."""

from common.references import HogWild


class GradientsToAll(HogWild):
    """@@TODO@@ the update rule, again in NumPy, from the equation alone.

    Derive it from Synchronous and write `move` if the workers make each step together. The top of
    tests/equations/test_equations.py says what else this file may have.
    """

    def update(self, k, version, w_k):
        """@@TODO@@ moves self.w by the push of worker k, which has pulled w_k; returns the loss."""
        raise NotImplementedError


REFERENCE = GradientsToAll
FLAGS = {}  # @@TODO@@ values at which a mistake shows, such as {"local_steps": 4}
MISTAKES = {"parameters": {}}  # @@TODO@@ {the mistake: [(text of the script, what replaces it)]}
