"""Writes an OTF2 archive from the events on standard input.

ibscope runs it as `python3 -c PROGRAM FOLDER`. Standard input has one line of JSON with the
definitions (`creator`; `ranks`: the node of each rank; `communicators`: name and members;
`operations`: names of collective operations by number), then one record per event by time:

    time in ns, bytes sent, bytes received (u64), kind, rank, peer, communicator, tag, operation (u32)

The kinds are 0 send, 1 receive, 2 begin and 3 end of a collective operation.
"""

import json
import struct
import sys
from fractions import Fraction

try:
    import otf2
    from otf2.enums import CollectiveOp, GroupType, LocationGroupType, Paradigm
except ImportError as error:
    sys.exit(f"{error}; install the OTF2 module of Python (Debian and Ubuntu: apt install python3-otf2)")

NO_ROOT = 0xFFFFFFFF  # OTF2_COLLECTIVE_ROOT_NONE
RECORD = struct.Struct("<QQQIIIIII")
RECORDS_PER_READ = 1 << 14

events = sys.stdin.buffer
definitions = json.loads(events.readline())
operations = [getattr(CollectiveOp, name, None) for name in definitions["operations"]]
with otf2.writer.open(sys.argv[1], timer_resolution=1_000_000_000) as trace:
    trace.creator = definitions["creator"]
    known = trace.definitions
    fabric = known.system_tree_node("fabric", "machine")
    nodes = {name: known.system_tree_node(name, "node", parent=fabric) for name in sorted(set(definitions["ranks"]))}
    writers = []
    locations = []
    for rank, node in enumerate(definitions["ranks"]):
        process = known.location_group(
            f"MPI Rank {rank}", location_group_type=LocationGroupType.PROCESS, system_tree_parent=nodes[node])
        locations.append(known.location("Master thread", group=process))
        writers.append(trace.event_writer_from_location(locations[-1]))
    known.group("", group_type=GroupType.COMM_LOCATIONS, paradigm=Paradigm.MPI, members=locations)
    communicators = []
    places = []
    for own in definitions["communicators"]:
        group = known.group(f"members of {own['name']}", group_type=GroupType.COMM_GROUP, paradigm=Paradigm.MPI,
                            members=own["members"])
        communicators.append(known.comm(own["name"], group))
        places.append({rank: place for place, rank in enumerate(own["members"])})
    first = None
    while chunk := events.read(RECORD.size * RECORDS_PER_READ):
        for time, sent, received, kind, rank, peer, communicator, tag, operation in RECORD.iter_unpack(chunk):
            writer = writers[rank]
            first = time if first is None else first
            if kind == 0:
                writer.mpi_send(time, places[communicator][peer], communicators[communicator], tag, sent)
            elif kind == 1:
                writer.mpi_recv(time, places[communicator][peer], communicators[communicator], tag, sent)
            elif kind == 2:
                writer.mpi_collective_begin(time)
            else:
                writer.mpi_collective_end(
                    time, operations[operation], communicators[communicator], NO_ROOT, sent, received)
    if first is not None:
        # The times are those of the capture. The module takes the time of writing instead, and
        # converts it from seconds.
        trace._realtime_timestamp = Fraction(first, 1_000_000_000)
