"""Elastic-Training: w <- w - lr * g(w_k), as HogWild's, on rows that a table of shards lends."""

from tfrun.apps.references import HogWild


class Shard:
    """A row of the table: rows [begin, end) in the order of an epoch, and who reads them."""

    def __init__(self, begin, end):
        self.begin, self.end = begin, end
        self.epoch = self.read = 0
        self.worker, self.deadline = None, 0.0


class Shards:
    """The table: whoever asks gets a shard until a deadline, in seconds, which a push moves on."""

    def __init__(self, rows, shards, seconds):
        ends = [rows * i // shards for i in range(shards + 1)]
        self.table = [Shard(*pair) for pair in zip(ends, ends[1:])]
        self.seconds = seconds
        self.again = 0

    def lease(self, k, now):
        """Returns the number of the shard that worker k gets, and where it stands."""
        least = min(shard.epoch for shard in self.table)
        free = [s for s in self.table if s.deadline <= now and s.epoch <= least + 1]
        leased = [s for s in self.table if s.deadline > now]
        # The lowest epoch; where all are leased, the one from which nobody has heard the longest.
        shard = min(free, key=lambda s: s.epoch) if free else min(leased, key=lambda s: s.deadline)
        shard.worker, shard.deadline = k, now + self.seconds
        return self.table.index(shard), shard.epoch, shard.read

    def count(self, k, number, before, after, now):
        """Notes that worker k has pushed rows [before, after) of a shard.

        Returns whether they count: not where the shard belongs to another one by now.
        """
        shard = self.table[number]
        if (shard.worker, shard.read) != (k, before):
            self.again += 1
            return False
        if after < shard.end - shard.begin:
            shard.read, shard.deadline = after, now + self.seconds
        else:
            shard.epoch, shard.read, shard.worker, shard.deadline = shard.epoch + 1, 0, None, 0.0
        return True

    def values(self):
        """Returns [[epoch, rows read, worker or -1, deadline in ms], ...]."""
        return [
            [s.epoch, s.read, -1 if s.worker is None else s.worker, round(1000 * s.deadline)]
            for s in self.table
        ]


class ElasticTraining(HogWild):
    """w <- w - lr * g(w_k): the gradient of the next rows of the shard that worker k has.

    gradient(k, rows, w); gradient.order(epoch): the numbers of all rows in the order of an epoch.
    """

    rows = 41  # in the test

    def __init__(self, *arguments, **hyperparameters):
        super().__init__(*arguments, **hyperparameters)
        self.shards = Shards(self.rows, hyperparameters["shards"], seconds=1e9)
        self.own = {}  # of each worker: the number of its shard, the epoch, and rows read
        self.now = 1.0
        self.counted = []  # (shard, epoch, rows) of the pushes that count

    def update(self, k, version, w_k):
        number, epoch, before = self.own.pop(k, None) or self.shards.lease(k, self.now)
        shard = self.shards.table[number]
        after = min(before + self.hyperparameters["batch_size"], shard.end - shard.begin)
        rows = self.gradient.order(epoch)[shard.begin + before : shard.begin + after]
        loss, g = self.gradient(k, rows, w_k)
        self.w = [v - self.lr * d for v, d in zip(self.w, g)]
        if self.shards.count(k, number, before, after, self.now):
            self.counted.append((number, epoch, rows))
        if shard.begin + after < shard.end:
            self.own[k] = number, epoch, after
        return loss


REFERENCE = ElasticTraining
PROBLEM = "rows_in_turn"
FLAGS = {"shards": 3, "lease_seconds": 1000.0, "batch_size": 8}
APP = {
    "test": "test_functions.py",
    "mistakes": ["the rate is not the flag's", "a shard is lent to all who ask"],
}
DIFFERS = 110  # with the table of shards
NEXT = "is_leased = (leased[0] == ps.age) & (leased[3] > 0)"
MISTAKES = {
    "parameters": {
        "the push adds": [
            ("w.assign_sub(delta)", "w.assign_sub(tf.concat([-delta[:9], delta[9:]], 0))")
        ],
        "the rate is not the flag's": [("flags.learning_rate * g,", "0.1 * g,")],
        "the gradient is not at the pulled w": [
            ("gradient(w_k, rows)", "gradient(ps.pull().w, rows)")
        ],
        "the push leaves out a part": [
            ("w.assign_sub(delta)", "w.assign_sub(delta * float(step.is_first))")
        ],
        "all epochs have one order": [("[flags.seed, epoch]", "[flags.seed, 0 * epoch]")],
        "a shard is lent to all who ask": [
            ("is_free = (deadlines <= now) &", "is_free = (deadlines <= now + 10**9) &")
        ],
        "a worker begins its shard again": [
            ("begin + before + flags.batch_size, end)", "begin + flags.batch_size, end)"),
            ("tf.range(begin + before, last)", "tf.range(begin, last)"),
        ],
        "the last rows of a shard are left out": [
            ("tf.where(last == end,", "tf.where(last + 5 >= end,")
        ],
        "a shard of the last epoch before those of this one": [
            ("tf.where(is_free, epochs, leased)", "tf.where(is_free, -epochs, leased)")
        ],
    },
    "staleness": {
        "it counts the worker's own push": [
            ("staleness=reply.ticket - version", "staleness=reply.ticket + 1 - version")
        ],
    },
}
