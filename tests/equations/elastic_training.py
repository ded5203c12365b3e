"""Elastic-Training: @@TODO@@ the update rule."""

from lab.references import HogWild


class ElasticTraining(HogWild):
    """@@TODO@@ the update rule, again in NumPy, from the equation alone.

    `DEFAULTS` in tests/support/equations.py says what else this file may have.
    """

    def update(self, k, version, w_k):
        """@@TODO@@ moves self.w by the push of worker k, which has pulled w_k; returns the loss."""
        raise NotImplementedError


REFERENCE = ElasticTraining
FLAGS = {}  # @@TODO@@ values at which a mistake shows, such as {"local_steps": 4}
MISTAKES = {"parameters": {}}  # @@TODO@@ {the mistake: [(text of the script, what replaces it)]}
