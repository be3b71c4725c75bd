"""The course's small data sets, found as ``importlib.resources.files("qkv.data")``."""
# An editable install finds this folder only as a regular package: hence this file.
