# %% 2: a tolerance in float32, and another state
def answer_2(program):
    w, w_k, v = 40.0, -10.0, 8.0
    pull = 0.3 * (w_k - w)
    velocity = 0.9 * v - 0.15 * (w_k + 0.9 * v - 40)
    right = np.float32([w + pull, w_k + velocity - pull, velocity])
    return int(np.abs(np.float32(program(w, w_k, v)) - right).max() < 1e-4)
