"""Random numbers and fresh names.

Use it as `randomness.uniform(…)`, not by importing single names: a simulator puts its own in their place.
"""

from os import urandom
from random import random, uniform
from secrets import token_hex
from uuid import uuid4

__all__ = ["random", "token_hex", "uniform", "urandom", "uuid4"]
