# %% 1: a flag, and the step in begin's own tensor
class answer_1(tf.train.SessionRunHook):
    def begin(self):
        self.step, self.first = tf.train.get_global_step(), True

    def after_create_session(self, session, coord):
        step = session.run(self.step)
        if not self.first and not step:
            raise RuntimeError("begun from scratch")
        self.first = False


# %% 2: a copy of w on the device, by ops alone
class answer_2(tf.train.SessionRunHook):
    def __init__(self, w, accuracy):
        self.w, self.accuracy, self.tests, self.best = w, accuracy, [], -1.0

    def begin(self):
        self.feeds = [tf.placeholder(v.dtype.base_dtype, v.shape) for v in self.w]
        self.restore = tf.group(*[tf.assign(v, feed) for v, feed in zip(self.w, self.feeds)])

    def after_run(self, context, values):
        self.tests.append(None)
        if len(self.tests) % 25:
            return
        reached = context.session.run(self.accuracy)
        if reached >= self.best:
            self.best = reached
            self.kept = context.session.run(self.w)

    def end(self, session):
        session.run(self.restore, feed_dict=dict(zip(self.feeds, self.kept)))
