"""Ask, match, blend: attention and the Transformer, built to be read.

Import the modules themselves, for example ``from qkv.attention import attention``.
"""

__version__ = "0.1.0"
