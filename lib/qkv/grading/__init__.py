"""The grader: `qkv check` for a learner, `qkv grade` for an instructor.

A submission is never run as it is. Its answers are grafted onto the pristine notebook, which runs
in a kernel inside a sandbox, while nbval compares outside. Needs the optional dependencies:
`pip install "ask-match-blend[grade]"`.
"""
