# %% 2: recursion, with the ops first
def answer_2(op):
    found = set()

    def visit(one):
        if one not in found:
            found.add(one)
            for other in [*one.control_inputs, *(tensor.op for tensor in one.inputs)]:
                visit(other)

    visit(op)
    return list(found)
