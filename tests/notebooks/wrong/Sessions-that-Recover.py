# %% 1: the chief's rollback counted from its death
answer_1 = 34, 1234, 34, 0, 0

# %% 1: a worker's last update is thought lost
answer_1 = 34, 1234, 74, 0, 1


# %% 2: refuses the first session, too
class answer_2(tf.train.SessionRunHook):
    def after_create_session(self, session, coord):
        if session.run(tf.train.get_global_step()) == 0:
            raise RuntimeError("nothing was restored")


# %% 2: refuses each second session
class answer_2(tf.train.SessionRunHook):
    sessions = 0

    def after_create_session(self, session, coord):
        self.sessions += 1
        if self.sessions > 1:
            raise RuntimeError("the session was lost")


# %% 2: TensorFlow raises a RuntimeError of its own
class answer_2(tf.train.SessionRunHook):
    sessions = 0

    def after_create_session(self, session, coord):
        self.sessions += 1
        if self.sessions > 1 and session.run(tf.train.get_global_step()) == 0:
            session.run(tf.global_variables_initializer())
