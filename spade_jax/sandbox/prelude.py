"""What the zygote loads before it forks: all that an environment can import.

A child cannot open a file, so a module that is not loaded here does not exist for it. Nothing is
left out for safety: what a module could do to the host is the business of the layers, and a
program that imports ``os`` for no reason should not fail for it.
"""

import abc
import array
import ast
import asyncio
import atexit
import base64
import binascii
import bisect
import calendar
import cmath
import collections
import collections.abc
import colorsys
import concurrent.futures
import contextlib
import contextvars
import copy
import csv
import ctypes
import dataclasses
import datetime
import decimal
import difflib
import enum
import fractions
import functools
import gc
import graphlib
import hashlib
import heapq
import hmac
import inspect
import io
import itertools
import json
import keyword
import locale
import logging
import math
import mmap
import multiprocessing
import numbers
import operator
import os
import os.path
import pathlib
import pickle
import platform
import pprint
import queue
import random
import re
import reprlib
import resource
import secrets
import select
import shutil
import signal
import socket
import statistics
import string
import struct
import subprocess
import sys
import tempfile
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

LOADED = (
    abc,
    array,
    ast,
    asyncio,
    atexit,
    base64,
    binascii,
    bisect,
    calendar,
    cmath,
    collections,
    collections.abc,
    colorsys,
    concurrent.futures,
    contextlib,
    contextvars,
    copy,
    csv,
    ctypes,
    dataclasses,
    datetime,
    decimal,
    difflib,
    enum,
    fractions,
    functools,
    gc,
    graphlib,
    hashlib,
    heapq,
    hmac,
    inspect,
    io,
    itertools,
    json,
    keyword,
    locale,
    logging,
    math,
    mmap,
    multiprocessing,
    numbers,
    operator,
    os,
    os.path,
    pathlib,
    pickle,
    platform,
    pprint,
    queue,
    random,
    re,
    reprlib,
    resource,
    secrets,
    select,
    shutil,
    signal,
    socket,
    statistics,
    string,
    struct,
    subprocess,
    sys,
    tempfile,
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

# Bound in every environment's module, so that a forgotten import does not kill it.
_BOUND: dict[str, Any] = (
    {
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


def names() -> dict[str, Any]:
    """The names bound before an environment's module runs; a fresh dictionary."""
    return dict(_BOUND)
