# %% 2: by the reader of the file
def answer_2(folder, model):
    reader = tf.train.load_checkpoint(folder)
    shapes = reader.get_variable_to_shape_map()
    for v in model:
        if not reader.has_tensor(v.op.name) or tuple(shapes[v.op.name]) != tuple(v.shape):
            raise ValueError(v.name)
