"""What the host and its zygote say to each other, one datagram each."""

import struct

# Host to zygote: what to do, and to which instance. A fork carries the child's socket and the pipe
# for what it prints.
COMMAND = struct.Struct(">cQ")
FORK, FORK_WITH_FOLDER, KILL = b"F", b"D", b"K"
# Zygote to host: what happened, to which instance, and the wait status of a reaped one or the
# error number of one that could not be forked.
EVENT = struct.Struct(">cQi")
FORKED, REAPED, REFUSED = b"f", b"r", b"x"
# The first message of a zygote is the JSON of its self-test, at most so long.
REPORT_BYTES = 65536
