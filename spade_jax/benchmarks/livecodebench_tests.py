"""The tests of LiveCodeBench's problems, as its files hold them.

Private ones are JSON, or base64 of zlib of a pickle of one string, which is JSON. The pickle is not
loaded: its opcodes are read, and any but those of a lone string are refused.
"""

import base64
import json
import pickletools
import zlib

HARMLESS = {
    *("PROTO", "FRAME", "MEMOIZE", "BINPUT", "LONG_BINPUT", "PUT", "STOP"),
    *("SHORT_BINUNICODE", "BINUNICODE", "BINUNICODE8", "UNICODE"),
}


def tests_of(text: str) -> list[dict[str, str]]:
    """The test cases of a row's field: ``input``, ``output``, ``testtype``.

    Raises:
      ValueError: it is neither JSON nor such a pickle.
    """
    try:
        return json.loads(text)
    except ValueError:
        return json.loads(lone_string(zlib.decompress(base64.b64decode(text))))


def lone_string(pickled: bytes) -> str:
    """The string that a pickle of one string holds; nothing is executed.

    Raises:
      ValueError: it holds anything else.
    """
    found: list[str] = []
    for opcode, argument, _ in pickletools.genops(pickled):
        if opcode.name not in HARMLESS:
            raise ValueError(f"opcode {opcode.name} in a pickle of private tests")
        if "UNICODE" in opcode.name:
            found.append(str(argument))
    if len(found) != 1:
        raise ValueError(f"{len(found)} strings in a pickle of private tests")
    return found[0]
