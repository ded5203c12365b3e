# %% 2: case by case
def answer_2(stage, workers, batches):
    half = 2 - 2 / workers
    if stage < 2:
        return np.float32(2 * half)
    return half * batches + half if stage == 2 else 3 * batches * half
