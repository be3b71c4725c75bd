"""Chapter 01."""

import math

import numpy as np
import torch


def softmax(x, axis=-1):
    e = (x - x.amax(axis, keepdim=True)).exp()
    return e / e.sum(axis, keepdim=True)


def softmax_in_loops(x):
    if x.dim() > 1:
        return torch.stack([softmax_in_loops(row) for row in x])
    largest = max(x.tolist())
    powers = [math.exp(number - largest) for number in x.tolist()]
    return torch.tensor([power / sum(powers) for power in powers])


def softmax_in_place(x):
    e = x.clone()
    e.sub_(e.max(-1, keepdim=True).values).exp_()
    return e.div_(e.sum(-1, keepdim=True))


def softmax_in_numpy(x):
    e = np.exp(x.numpy() - x.numpy().max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def softmax_loud(x):
    print("step 1", end="\r")
    return softmax(x.double())


def changes_its_input(x):
    x -= x.amax(-1, keepdim=True)
    return x.exp() / x.exp().sum(-1, keepdim=True)


def attention(Q, K, V, divisor=None, softmax=softmax):
    return softmax(Q @ K.mT / (divisor or math.sqrt(Q.shape[-1]))) @ V


def attention_in_einsum(Q, K, V):
    scores = torch.einsum("...qd,...kd->...qk", Q, K) * Q.shape[-1] ** -0.5
    return torch.einsum("...qk,...kv->...qv", torch.softmax(scores, -1), V)


def attention_scaled_query(Q, K, V):
    return torch.softmax(Q / math.sqrt(Q.size(-1)) @ K.transpose(-2, -1), dim=-1).matmul(V)


def attention_in_loops(Q, K, V):
    if Q.dim() == 3:
        return torch.stack([attention_in_loops(*one) for one in zip(Q, K, V, strict=True)])
    return torch.stack([(softmax(q @ K.T / len(q) ** 0.5)[:, None] * V).sum(0) for q in Q])


def attention_in_double(Q, K, V):
    return attention(Q.double(), K.double(), V.double())


def one_blend(i, Q, K, V, divide=True, scale=True, over="keys", value="j"):
    scores = []
    for key in K:
        score = 0.0
        for a, b in zip(Q[i].tolist(), key.tolist(), strict=True):
            score += a * b
        scores.append(score / math.sqrt(Q.shape[1]) if scale else score)
    powers = [math.exp(score) for score in scores]
    total = [sum(powers)] * len(K)
    if over == "queries":
        total = [
            sum(math.exp(float((q * key).sum()) / math.sqrt(Q.shape[1])) for q in Q) for key in K
        ]
    blend = [0.0] * V.shape[1]
    for j, power in enumerate(powers):
        weight = power / total[j] if divide else power
        for m in range(V.shape[1]):
            blend[m] += weight * float(V[j if value == "j" else i][m])
    return torch.tensor(blend)


def blend_of(share):
    return lambda i, Q, K, V: share((Q[i] * K).sum(-1) / Q.shape[1] ** 0.5) @ V


def blend_rowwise(i, Q, K, V):
    scores = torch.stack([(Q[i] * key).sum() for key in K]) / Q.shape[1] ** 0.5
    powers = (scores - scores.max()).exp()
    return sum(power / powers.sum() * value for power, value in zip(powers, V, strict=True))


def pushed_query(row, K):
    others = [j for j in range(len(K)) if j != row]
    q = torch.zeros(K.shape[1])
    for _ in range(2000):
        worst = max(others, key=lambda j: float((K[j] - K[row]) @ q))
        q = q + 0.5 * (K[row] - K[worst])
        if all(float((K[row] - K[j]) @ q) > 4 * math.sqrt(K.shape[1]) for j in others):
            break
    return q


def query_by_gradient(row, K):
    q = torch.zeros(K.shape[1], requires_grad=True)
    for _ in range(3000):
        loss = -torch.log_softmax(K @ q / math.sqrt(K.shape[1]), -1)[row]
        if loss < 0.05:
            break
        (slope,) = torch.autograd.grad(loss, q)
        q = (q - 2 * slope).detach().requires_grad_()
    return q


def query_by_solving(row, K):
    wanted = torch.full((len(K),), -6.0)
    wanted[row] = 6.0
    if len(K) <= K.shape[1]:
        return torch.linalg.lstsq(K, 2 * wanted[:, None]).solution[:, 0]
    return pushed_query(row, K)


RIGHT = {
    "softmax": [
        softmax,
        softmax_in_loops,
        softmax_in_place,
        softmax_in_numpy,
        softmax_loud,
    ],
    "attention": [
        attention,
        attention_in_einsum,
        attention_scaled_query,
        attention_in_loops,
        attention_in_double,
    ],
    "blend_one": [one_blend, blend_rowwise, lambda *inputs: one_blend(*inputs).numpy()],
    "query_for": [pushed_query, query_by_gradient, query_by_solving],
}

WRONG = {
    "softmax": {
        "over the columns": (lambda x: softmax(x, 0), "each column sums to 1"),
        "over the second axis": (
            lambda x: softmax(x, 1) if x.dim() > 2 else softmax(x),
            "in a batch the sum runs over the wrong axis",
        ),
        "over everything": (
            lambda x: softmax(x.flatten()).view_as(x),
            "all numbers together sum to 1",
        ),
        "not divided": (lambda x: x.exp(), "not yet divided"),
        "not divided, safe": (lambda x: (x - x.amax(-1, keepdim=True)).exp(), "divide the exp"),
        "clamped": (
            lambda x: x.clamp(max=80).exp() / x.clamp(max=80).exp().sum(-1, keepdim=True),
            "as a clamp does",
        ),
        "mean subtracted": (
            lambda x: (
                (x - x.mean(-1, keepdim=True)).exp()
                / (x - x.mean(-1, keepdim=True)).exp().sum(-1, keepdim=True)
            ),
            "mean or smallest number",
        ),
        "minimum subtracted": (
            lambda x: (
                (x - x.amin(-1, keepdim=True)).exp()
                / (x - x.amin(-1, keepdim=True)).exp().sum(-1, keepdim=True)
            ),
            "mean or smallest number",
        ),
        "squeezed": (lambda x: softmax(x).squeeze(), "an axis of size 1 stays"),
        "logarithms": (lambda x: softmax(x).log(), "logarithms of the weights"),
        "without exp": (lambda x: x / x.sum(-1, keepdim=True), "exp is missing"),
        "overflows": (lambda x: x.exp() / x.exp().sum(-1, keepdim=True), "x + 1000) overflows"),
        "one maximum for all": (
            lambda x: (x - x.max()).exp() / (x - x.max()).exp().sum(-1, keepdim=True),
            "the largest number of each row, not of all",
        ),
        "changes x": (changes_its_input, "changes its argument number 1"),
        "hidden ones get a share": (
            lambda x: softmax(x.clamp(min=-3)),
            "softmax(x)",
        ),
        "calls it": (lambda x: x.softmax(-1), "it calls softmax"),
        "calls it by another name": (torch.nn.functional.softmax, "it calls softmax"),
        "calls its logarithm": (lambda x: torch.log_softmax(x, -1).exp(), "it calls log_softmax"),
        "returns nothing": (lambda x: None, "is there a return"),
    },
    "attention": {
        "not divided": (lambda Q, K, V: attention(Q, K, V, 1), "not divided by sqrt(d_k)"),
        "by d_k": (lambda Q, K, V: attention(Q, K, V, Q.shape[-1]), "not by its square root"),
        "by 2": (lambda Q, K, V: attention(Q, K, V, 2), "here d_k is 9"),
        "by d_k**1/2": (
            lambda Q, K, V: attention(Q / Q.shape[-1] ** 1 / 2, K, V, 1),
            "divides by d_k, then by 2",
        ),
        "by (d_k**1/2)": (
            lambda Q, K, V: attention(Q, K, V, Q.shape[-1] ** 1 / 2),
            "d_k**1/2 is d_k / 2",
        ),
        "dim=1": (
            lambda Q, K, V: attention(Q, K, V, softmax=lambda s: softmax(s, 1)),
            "the last, dim=-1, not dim=1",
        ),
        "by sqrt(d_v)": (
            lambda Q, K, V: attention(Q, K, V, math.sqrt(V.shape[-1])),
            "divided by sqrt(d_v)",
        ),
        "by sqrt(n_kv)": (
            lambda Q, K, V: attention(Q, K, V, math.sqrt(len(K))),
            "divided by sqrt(n_kv)",
        ),
        "by sqrt(n_q)": (
            lambda Q, K, V: attention(Q, K, V, math.sqrt(len(Q))),
            "divided by sqrt(n_q)",
        ),
        "multiplied": (
            lambda Q, K, V: attention(Q, K, V, 1 / math.sqrt(Q.shape[-1])),
            "multiplied by sqrt(d_k)",
        ),
        "divided after the softmax": (
            lambda Q, K, V: attention(Q, K, V, 1) / math.sqrt(Q.shape[-1]),
            "the weights are divided",
        ),
        "softmax over the queries": (
            lambda Q, K, V: attention(Q, K, V, softmax=lambda s: softmax(s, -2)),
            "softmax ran over the queries",
        ),
        "no softmax": (
            lambda Q, K, V: attention(Q, K, V, softmax=lambda s: s),
            "the softmax is missing",
        ),
        "weights alone": (
            lambda Q, K, V: softmax(Q @ K.mT / 2),
            "multiply them with V",
        ),
        "for the keys": (
            lambda Q, K, V: softmax(K @ Q.mT / 2) @ V[: len(Q)],
            "are Q and K exchanged",
        ),
        "K not transposed": (lambda Q, K, V: softmax(Q @ K / 2) @ V, "stops with RuntimeError"),
        "K.T on a batch": (
            lambda Q, K, V: softmax(Q @ K.permute(*range(K.dim())[::-1]) / 2) @ V,
            "in a batch transpose the last two axes",
        ),
        "calls the package's": (
            __import__("qkv.attention").attention.attention,
            "it calls attention",
        ),
        "calls PyTorch's": (
            torch.nn.functional.scaled_dot_product_attention,
            "it calls scaled_dot_product_attention",
        ),
    },
    "blend_one": {
        "mean of all": (
            lambda i, Q, K, V: sum(one_blend(j, Q, K, V) for j in range(len(Q))) / len(Q),
            "mean of all queries' blends",
        ),
        "sum over the queries": (
            lambda *inputs: one_blend(*inputs, over="queries"),
            "runs over the queries",
        ),
        "not divided": (lambda *inputs: one_blend(*inputs, divide=False), "not divided by their"),
        "not scaled": (lambda *inputs: one_blend(*inputs, scale=False), "not divided by sqrt(d_k)"),
        "not divided, safe": (blend_of(lambda s: (s - s.max()).exp()), "the largest being 1"),
        "by 2": (
            lambda i, Q, K, V: torch.softmax((Q[i] * K).sum(-1) / 2, -1) @ V,
            "it calls softmax",
        ),
        "by 2, built": (
            lambda i, Q, K, V: one_blend(i, Q * (Q.shape[1] ** 0.5 / 2), K, V),
            "divided by 2",
        ),
        "last part alone": (
            lambda i, Q, K, V: softmax((Q[i] * K).sum(-1) / Q.shape[1] ** 0.5)[-1] * V[-1],
            "the last key's part alone",
        ),
        "query 0": (lambda i, Q, K, V: one_blend(0, Q, K, V), "take Q[i]"),
        "V[i]": (lambda *inputs: one_blend(*inputs, value="i"), "take the value of its key"),
        "all rows": (lambda i, Q, K, V: attention(Q, K, V), "these are all queries' blends"),
    },
    "query_for": {
        "the key itself": (lambda row, K: K[row].clone(), "a dot product is no cosine"),
        "the key made long": (lambda row, K: 50 * K[row], "gives it a weight of"),
        "against the sum of the others": (
            lambda row, K: 100 * (2 * K[row] - K.sum(0)),
            "gives it a weight of",
        ),
        "solved": (
            lambda row, K: (
                torch.linalg.pinv(K) @ torch.where(torch.arange(len(K)) == row, 99.0, -99.0)
            ),
            "gives it a weight of",
        ),
        "nothing": (lambda row, K: torch.zeros(K.shape[1]), "gives it a weight of"),
        "all keys": (lambda row, K: K.clone(), "has shape"),
    },
}
