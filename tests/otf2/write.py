"""Writes an OTF2 archive from a description on standard input: cases that no recorded run has.

    python3 write.py FOLDER < description.json      (Debian: apt install python3-otf2)

The description has `ranks` (host, threads), `communicators` (name, members or null for MPI_COMM_SELF, or name and both `groups` of an
intercommunicator), `creator`, and `events`: [rank, thread, kind, time in nanoseconds, ...] with send, isend, recv, irecv: peer, communicator, tag, bytes; collective: operation,
communicator, root or null, sent, received; put, get: peer, bytes; atomic: peer, sent, received; flush; work (a function call).
"""

import json
import sys

import otf2
from otf2.enums import CollectiveOp, GroupType, LocationGroupType, Paradigm, RmaAtomicType

NO_ROOT = 0xFFFFFFFF  # OTF2_COLLECTIVE_ROOT_NONE

# The module (3.0.2) treats an intercommunicator as a communicator with more fields and cannot write
# it.
ours = {field.name: field for field in otf2.definitions.InterComm._fields}
ours["parent"] = ours["parent"]._replace(type=otf2.definitions.Comm)
otf2.definitions.InterComm._fields = [ours[name] for name in ("name", "groupA", "groupB", "parent", "flags")]

description = json.load(sys.stdin)
with otf2.writer.open(sys.argv[1], timer_resolution=1_000_000_000) as trace:
    if description.get("creator"):
        trace.creator = description["creator"]
    known = trace.definitions
    machine = known.system_tree_node("lab", "machine")
    hosts = {host: known.system_tree_node(host, "node", parent=machine)
             for host in sorted({rank["host"] for rank in description["ranks"]})}
    locations = []
    for number, rank in enumerate(description["ranks"]):
        process = known.location_group(
            f"MPI Rank {number}", location_group_type=LocationGroupType.PROCESS, system_tree_parent=hosts[rank["host"]])
        locations.append([known.location(f"thread {thread}", group=process) for thread in range(rank["threads"])])
    known.group("", group_type=GroupType.COMM_LOCATIONS, paradigm=Paradigm.MPI, members=[own[0] for own in locations])
    # Locations of another paradigm, which have no rank.
    threads = [thread for own in locations for thread in own]
    known.group("", group_type=GroupType.COMM_LOCATIONS, paradigm=Paradigm.OPENMP, members=list(reversed(threads)))
    communicators = []
    for number, communicator in enumerate(description["communicators"]):
        if "groups" in communicator:
            both = [known.group(f"group {number} {side}", group_type=GroupType.COMM_GROUP, paradigm=Paradigm.MPI, members=members)
                    for side, members in zip("ab", communicator["groups"])]
            communicators.append(known.inter_comm(communicator["name"], *both, parent=communicators[0]))
            continue
        own = communicator["members"] is None
        kind = GroupType.COMM_SELF if own else GroupType.COMM_GROUP
        group = known.group(f"group {number}", group_type=kind, paradigm=Paradigm.MPI, members=communicator["members"] or [])
        communicators.append(known.comm(communicator["name"], group))
    window = known.rma_win("window", communicators[0])
    work = known.region("work")
    writers = {}
    for rank, thread, kind, time, *rest in sorted(description["events"], key=lambda event: event[3]):
        if (rank, thread) not in writers:
            writers[rank, thread] = trace.event_writer_from_location(locations[rank][thread])
        writer = writers[rank, thread]
        if kind in ("send", "recv"):
            peer, communicator, tag, length = rest
            getattr(writer, f"mpi_{kind}")(time, peer, communicators[communicator], tag, length)
        elif kind in ("isend", "irecv"):
            peer, communicator, tag, length = rest
            getattr(writer, f"mpi_{kind}")(time, peer, communicators[communicator], tag, length, 7)
        elif kind == "collective":
            operation, communicator, root, sent, received = rest
            writer.mpi_collective_begin(time)
            root = NO_ROOT if root is None else root
            writer.mpi_collective_end(time + 1, getattr(CollectiveOp, operation), communicators[communicator], root, sent, received)
        elif kind in ("put", "get"):
            getattr(writer, f"rma_{kind}")(time, window, rest[0], rest[1], 0)
        elif kind == "atomic":
            writer.rma_atomic(time, window, rest[0], RmaAtomicType.FETCH_AND_ADD, rest[1], rest[2], 0)
        elif kind == "flush":
            writer.buffer_flush(time, time + 1)
        else:
            writer.enter(time, work)
            writer.leave(time + 1, work)
