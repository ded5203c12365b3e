# %% 2: by the reader of the file
def answer_2(folder, model):
    reader = tf.train.load_checkpoint(folder)
    shapes = reader.get_variable_to_shape_map()
    for v in model:
        if not reader.has_tensor(v.op.name) or tuple(shapes[v.op.name]) != tuple(v.shape):
            raise ValueError(v.name)


# %% 1: made of pairs, in another order
answer_1 = dict(zip("fedcba", (24, 17, 18, 20, 21, 19)))


# %% 2: from the newest file, and all that is wrong in one error
def answer_2(path, variables):
    stored = dict(tf.train.list_variables(tf.train.latest_checkpoint(path)))
    wrong = [v.op.name for v in variables if stored.get(v.op.name) != list(v.shape)]
    if wrong:
        raise ValueError("not those of the checkpoint: " + ", ".join(wrong))


# %% 2: by a lookup and an assertion that become a ValueError
def answer_2(path, variables):
    stored = dict(tf.train.list_variables(path))
    for variable in variables:
        try:
            assert variable.shape == stored[variable.op.name]
        except (KeyError, AssertionError):
            raise ValueError("another model") from None
