# %% 1: it never puts them back
class answer_1(tf.train.SessionRunHook):
    def __init__(self, w, accuracy):
        self.w, self.accuracy, self.best = w, accuracy, -1

    def after_run(self, context, values):
        accuracy, w = context.session.run([self.accuracy, self.w])
        if accuracy > self.best:
            self.best, self.best_w = accuracy, w


# %% 1: it adds ops to a graph that is finalized
class answer_1(tf.train.SessionRunHook):
    def __init__(self, w, accuracy):
        self.w = w

    def after_run(self, context, values):
        self.best_w = context.session.run(self.w)

    def end(self, session):
        session.run([layer.assign(value) for layer, value in zip(self.w, self.best_w)])


# %% 2: the error is forgotten
answer_2 = [40, 50, 60, 65, 68]

# %% 2: no save at the end
answer_2 = [20, 30, 40, 50, 60]

# %% 2: nothing is deleted
answer_2 = [0, 10, 20, 30, 40, 50, 60, 63]
