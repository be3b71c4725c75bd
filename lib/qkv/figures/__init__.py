"""Every picture of the book, a module a subject; `grid` has the palette and the drawing grammar.

A figure is a function that returns a picture: as the last line of a notebook's cell,
`query_key_value.pipeline()` shows it. Numbers that an experiment or a cell computed are arguments.
The docstring of a figure's function ends with an example call, which the tests draw and measure.
"""
