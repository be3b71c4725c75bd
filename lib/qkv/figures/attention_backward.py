"""Chapter 11: attention forward and back, a query that learns, and where gradients arrive."""

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.patches import Circle
from numpy.typing import ArrayLike

from qkv.figures import grid
from qkv.figures.grid import OUTPUT, WEIGHTS, K, Q, Role, V, X, matrix, sizes
from qkv.figures.picture import INK, LINE, Box, Picture, Point, arrow, chart, new, sheet, text

SMALL = 0.2  # inches: a cell
N_Q, N_KV, D_K, D_V, D_MODEL = 3, 5, 4, 2, 5  # of the drawings


def flow() -> Picture:
    """Attention forward, above, and its gradients, below: the same boxes, all arrows turned round.

    Shapes: n_q = 3, n_kv = 5, d_k = 4, d_v = 2, drawn to size.

    >>> flow()
    """
    figure = new(7, 7.2)
    axes = sheet(figure)
    for top, title in ((0.0, "forward"), (3.6, "backward")):
        text(axes, 3.5, top + 0.32, title, size=22, bold=True)
    q, k, v, s, a, out = _boxes(axes, 0.95, ("$Q$", "$K$", "$V$", "$S$", "$A$", "$O$"))
    for start, end in ((q, s), (k, s), (s, a), (a, out), (v, out)):
        arrow(axes, *_between(start, end))
    for box in (q, s, a, out):
        sizes(axes, box, top=_shape(box))
    for box in (k, v):
        sizes(axes, box, bottom=_shape(box))
    _over(axes, s, a, "softmax")

    names = ("$g_Q$", "$g_K$", "$g_V$", "$g_S$", "$g_A$", "$g$")
    q, k, v, s, a, out = _boxes(axes, 4.55, names)
    for start, end in ((s, q), (s, k), (a, s), (out, a), (out, v)):
        arrow(axes, *_between(end, start)[::-1])
    sizes(axes, q, top="$g_S K \\div \\sqrt{d_k}$")
    sizes(axes, k, bottom="$g_S^T Q \\div \\sqrt{d_k}$")
    sizes(axes, a, top="$g V^T$")
    sizes(axes, v, bottom="$A^T g$")
    _over(axes, s, a, "softmax")
    return figure


def _boxes(axes: Axes, y: float, names: Sequence[str]) -> tuple[Box, ...]:
    # Q over K on the left, the scores between them, A, and V below it; the output on the right.
    q = matrix(axes, 0.5, y, rows=N_Q, columns=D_K, role=Q, cell=SMALL)
    k = matrix(axes, 0.5, y + 0.95, rows=N_KV, columns=D_K, role=K, cell=SMALL)
    s = grid.scores(axes, 2.45, y + 0.35, np.zeros((N_Q, N_KV)), cell=SMALL)
    a = matrix(axes, 4.5, y + 0.35, rows=N_Q, columns=N_KV, role=WEIGHTS, cell=SMALL, strength=0.5)
    v = matrix(axes, 4.8, y + 1.25, rows=N_KV, columns=D_V, role=V, cell=SMALL)
    out = matrix(axes, 6.35, y + 0.35, rows=N_Q, columns=D_V, role=OUTPUT, cell=SMALL)
    boxes = (q, k, v, s, a, out)
    faces = [grid.mix(role.colour, grid.FILL) for role in (Q, K, V)]
    faces += [(1, 1, 1), grid.mix(WEIGHTS.colour, 0.5), grid.mix(OUTPUT.colour, grid.FILL)]
    for box, face, name in zip(boxes, faces, names, strict=True):
        grid.halo(text(axes, *box.centre, name, size=20), face)
    return boxes


def _between(left: Box, right: Box) -> tuple[Point, Point]:
    # Where an arrow from a box to one right of it begins and ends; it aims at its own height.
    aim = min(max(left.centre[1], right.y + 0.12), right.bottom - 0.12)
    return left.east, (right.x, aim)


def _shape(box: Box) -> str:
    return f"{round(box.height / SMALL)} × {round(box.width / SMALL)}"


def _over(axes: Axes, left: Box, right: Box, words: str) -> None:
    text(axes, (left.right + right.x) / 2, left.centre[1] - 0.1, words, down="bottom")


def roles() -> Picture:
    """Where gradients meet: all three in the one X of self-attention, K's and V's in cross.

    Shapes: self, n = 4; cross, n_q = 3, n_kv = 5; d_model = 5, d_k = 4, d_v = 2.

    >>> roles()
    """
    figure = new(7, 5.1)
    axes = sheet(figure)
    for left, title in ((0.15, "self"), (3.75, "cross")):
        text(axes, left + 1.5, 0.32, title, size=22, bold=True)
    x = _tokens(axes, 0.15, 2.2, 4, "$g_X$")
    ends = _plus(axes, x)
    for role, y, end in zip((Q, K, V), (0.75, 2.2, 3.65), ends, strict=True):
        _way(axes, 2.55, y, role, 4, end)
    x_q = _tokens(axes, 3.75, 0.75, N_Q, "$g_{X_q}$")
    x_kv = _tokens(axes, 3.75, 2.75, N_KV, "$g_{X_{kv}}$")
    upper, _, lower = _plus(axes, x_kv)
    _way(axes, 6.1, 0.75, Q, N_Q, x_q.east)
    _way(axes, 6.1, 1.95, K, N_KV, upper)
    _way(axes, 6.1, 3.55, V, N_KV, lower)
    return figure


def _tokens(axes: Axes, x: float, y: float, rows: int, name: str) -> Box:
    return matrix(axes, x, y, rows=rows, columns=D_MODEL, role=X, cell=SMALL, name=name)


def _plus(axes: Axes, box: Box) -> tuple[Point, Point, Point]:
    # A plus in a circle, right of the box that it leads to; where arrows reach it on the right.
    radius = 0.17
    x, y = box.right + 0.3 + radius, box.centre[1]
    axes.add_patch(Circle((x, y), radius, facecolor="white", edgecolor=INK, linewidth=LINE))
    for across, down in ((0.09, 0), (0, 0.09)):
        axes.plot([x - across, x + across], [y - down, y + down], color=INK, linewidth=LINE)
    arrow(axes, (x - radius, y), box.east, gap=2)
    aside = 0.7 * radius
    return (x + aside, y - aside), (x + radius, y), (x + aside, y + aside)


def _way(axes: Axes, x: float, y: float, role: Role, rows: int, end: Point) -> None:
    # A role's gradient, the matrix that it is multiplied by, and its way to where gradients meet.
    columns = D_V if role is V else D_K
    box = matrix(axes, x, y, rows=rows, columns=columns, role=role, cell=SMALL)
    words = text(axes, *box.centre, f"$g_{role.label}$", size=20)
    grid.halo(words, grid.mix(role.colour, grid.FILL))
    arrow(axes, box.west, end, colour=role.colour, width=3)
    sizes(axes, box, bottom=f"$\\times W_{role.label}^T$")


def reach(lengths: ArrayLike) -> Picture:
    """How strongly the loss at each token reaches each token: nothing is a masked cell.

    Shapes: lengths [n, n]: row i, the lengths of the gradients that a loss at token i alone
    sends to the tokens. Each row is drawn as shares of its largest.

    >>> reach([[0.7, 0, 0, 0], [0.2, 0.5, 0, 0], [0.1, 0.2, 0.3, 0], [0.4, 0.1, 0.1, 0.2]])
    """
    table = grid.array(lengths)
    if table.ndim != 2 or table.shape[0] != table.shape[1]:
        raise ValueError(f"lengths have shape {table.shape}, expected [n, n]")
    n, cell, left, top = len(table), 0.6, 2.8, 1.0
    grid.at_most(7, tokens=n)
    figure = new(7, round(top + n * cell + 0.2, 1))
    axes = sheet(figure)
    for i, j in np.ndindex(n, n):
        place = Box(left + j * cell, top + i * cell, cell, cell)
        if table[i, j] == 0:
            grid.masked(axes, place.x, place.y, cell=cell)
        else:
            grid.tile(axes, place, X, strength=float(table[i, j] / table[i].max()))
    box = Box(left, top, n * cell, n * cell)
    grid.lines(axes, box, n, n, frame=X.colour, inner=grid.FAINT)
    grid.tokens(
        axes, box, rows=[f"loss at token {i}" for i in range(n)], columns=[*map(str, range(n))]
    )
    text(axes, box.centre[0], 0.32, "gradient at token")
    return figure


def pull(keys: ArrayLike, prices: ArrayLike, path: ArrayLike) -> Picture:
    """Two numbers of a query over several steps, among the same two numbers of the keys.

    Shapes: keys [n_kv, 2], prices [n_kv], path [steps + 1, 2], the query first as it was.

    >>> pull([[-1, 0], [1, 0], [1, 1]], [10, 0, 10], [[1, 1], [1.1, 0.6], [1.3, 0.1], [1.5, -0.4]])
    """
    labels, costs, steps = grid.array(keys), grid.array(prices), grid.array(path)
    grid.alike(keys=len(labels), prices=len(costs))
    figure = new(7, 4.6)
    axes = chart(figure, Box(0.95, 0.2, 5.85, 3.55), across="number 2", up="numbers 3, 4")
    axes.plot(*labels.T, color=K.colour, marker="s", markersize=15, linewidth=0)
    for number, ((x, y), cost) in enumerate(zip(labels, costs, strict=True), 1):
        text(axes, x - 0.2, y, f"key {number} costs {cost:g}", across="right")
    axes.plot(*steps.T, color=Q.colour, marker="o", markersize=7, linewidth=LINE)
    x, y = steps[-1]
    text(axes, x - 0.1, y - 0.05, "query", colour=Q.colour, bold=True, across="right")
    every = np.concatenate([labels, steps])
    low, high = every.min(axis=0), every.max(axis=0)
    axes.set(xlim=(low[0] - 1.9, high[0] + 0.3), ylim=(low[1] - 0.3, high[1] + 0.3))
    axes.locator_params(nbins=4)
    return figure
