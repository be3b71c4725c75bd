"""The Transformer in NumPy, every gradient by hand: forward, and backward directly below it.

Read in this order: layer, rows, linear, softmax, attention, multi_head, layer_norm, feed_forward,
embedding, blocks, transformer, optimisers; then check, which tries gradients, seq2seq, which
trains, and experiment, whose runs are recorded. Nothing here imports torch, and no gradient is
computed by anything but these lines.
"""
