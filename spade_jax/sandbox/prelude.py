"""What the zygote loads before it forks: all that an environment can import.

A child cannot open a file, so a module that is not loaded here does not exist for it. Nothing is
left out for safety: what a module could do to the host is the business of the layers, and a
program that imports ``os`` for no reason should not fail for it. What no game needs and is heavy
(asyncio, multiprocessing, unittest) is left out because every fork pays for it.
"""

import __future__

import abc
import array
import ast
import base64
import binascii
import bisect
import builtins
import calendar
import cmath
import collections
import collections.abc
import contextlib
import copy
import ctypes
import dataclasses
import datetime
import decimal
import difflib
import enum
import fractions
import functools
import gc
import hashlib
import heapq
import inspect
import io
import itertools
import json
import keyword
import logging
import math
import mmap
import numbers
import operator
import os
import os.path
import pprint
import queue
import random
import re
import resource
import select
import signal
import socket
import statistics
import string
import struct
import sys
import textwrap
import threading
import time
import traceback
import types
import typing
import unicodedata
import uuid
import warnings
import weakref
import zlib
from collections import Counter, OrderedDict, defaultdict, deque, namedtuple
from dataclasses import dataclass, field
from itertools import accumulate, chain, combinations, permutations, product
from typing import Any

from spade_jax.sandbox import tool_env

LOADED = (
    __future__,
    abc,
    array,
    ast,
    base64,
    binascii,
    bisect,
    builtins,
    calendar,
    cmath,
    collections,
    collections.abc,
    contextlib,
    copy,
    ctypes,
    dataclasses,
    datetime,
    decimal,
    difflib,
    enum,
    fractions,
    functools,
    gc,
    hashlib,
    heapq,
    inspect,
    io,
    itertools,
    json,
    keyword,
    logging,
    math,
    mmap,
    numbers,
    operator,
    os,
    os.path,
    pprint,
    queue,
    random,
    re,
    resource,
    select,
    signal,
    socket,
    statistics,
    string,
    struct,
    sys,
    textwrap,
    threading,
    time,
    traceback,
    types,
    typing,
    unicodedata,
    uuid,
    warnings,
    weakref,
    zlib,
)

# So that an environment can also import it, as people's editors like.
sys.modules["tool_env"] = tool_env

# The builtins of every environment's module, so that a forgotten import does not kill it. One
# dictionary for all: to bind the names in each module would copy a page for nearly each of them.
BUILTINS: dict[str, Any] = (
    vars(builtins)
    | {
        module.__name__: module
        for module in (
            bisect,
            collections,
            copy,
            enum,
            functools,
            heapq,
            itertools,
            json,
            math,
            operator,
            random,
            re,
            statistics,
            string,
            time,
        )
    }
    | {
        item.__name__: item
        for item in (
            Counter,
            OrderedDict,
            defaultdict,
            deque,
            namedtuple,
            dataclass,
            field,
            accumulate,
            chain,
            combinations,
            permutations,
            product,
            functools.lru_cache,
            functools.reduce,
            copy.deepcopy,
            heapq.heappush,
            heapq.heappop,
            enum.Enum,
            abc.ABC,
            abc.abstractmethod,
            tool_env.ToolEnv,
        )
    }
    | {
        name: getattr(typing, name)
        for name in (
            "Any",
            "Callable",
            "Dict",
            "Iterable",
            "Iterator",
            "List",
            "Literal",
            "Mapping",
            "NamedTuple",
            "Optional",
            "Sequence",
            "Set",
            "Tuple",
            "Union",
        )
    }
)
