"""Writes an OTF2 archive from the events on standard input.

ibscope runs it as `python3 -c PROGRAM FOLDER`. Standard input has one line of JSON with the
definitions (`creator`; `ranks`: the node of each rank; `communicators`: name and members;
`operations`: names of collective operations by number; `window`: the communicator of one-sided
operations, or null; `ports`: name and lowest rank; `rate`: description of the rates of ports), then
one record per event by time, and one per sample of a port by port and time:

    time in ns, bytes sent, bytes received, number (u64),
    kind, rank, peer, communicator, tag, operation (u32)

The kinds are the constants from `SEND` to `RATES`. A record of `RATES` has a port instead of the rank, and
bytes per second.
"""

import ctypes
import json
import struct
import sys
from fractions import Fraction

try:
    import _otf2
    import otf2
    from otf2.enums import (Base, CollectiveOp, FileType, GroupType, LocationGroupType, LocationType, MetricMode,
                            MetricOccurrence, Paradigm, SystemTreeDomain, Type)
except ImportError as error:
    sys.exit(f"{error}; install the OTF2 module of Python (Debian and Ubuntu: apt install python3-otf2)")

NO_ROOT = 0xFFFFFFFF  # OTF2_COLLECTIVE_ROOT_NONE
RECORD = struct.Struct("<QQQQIIIIII")
RECORDS_PER_READ = 1 << 14
(SEND, RECEIVE, COLLECTIVE_BEGIN, COLLECTIVE_END, REQUEST_SEND, REQUEST_SEND_END, REQUEST_RECEIVE_BEGIN,
 REQUEST_RECEIVE, PUT, GET, ONE_SIDED_END, RATES) = range(12)

CHUNK_BYTES = 256 * 1024  # OTF2_CHUNK_SIZE_MIN
MOST_CHUNKS = 2
ALLOCATE = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint8, ctypes.c_uint64, ctypes.c_void_p,
                            ctypes.c_uint64)
FREE_ALL = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_uint8, ctypes.c_uint64, ctypes.c_void_p, ctypes.c_bool)


class MemoryCallbacks(ctypes.Structure):
    """OTF2_MemoryCallbacks. By default, the library keeps up to 128 MiB of events of each location in memory. It
    writes them to the disk if an allocation fails."""

    _fields_ = [("allocate", ALLOCATE), ("free_all", FREE_ALL)]

    def __init__(self):
        chunks = {}

        def allocate(_, file_type, location, _buffer, size_bytes):
            own = chunks.setdefault((file_type, location), [])
            if file_type == FileType.EVENTS.value and len(own) == MOST_CHUNKS:
                return None
            own.append(ctypes.create_string_buffer(size_bytes))
            return ctypes.addressof(own[-1])

        def free_all(_, file_type, location, _buffer, _is_final):
            chunks.pop((file_type, location), None)

        super().__init__(ALLOCATE(allocate), FREE_ALL(free_all))


events = sys.stdin.buffer
definitions = json.loads(events.readline())
operations = [getattr(CollectiveOp, name, None) for name in definitions["operations"]]
memory = MemoryCallbacks()
# The type of the module is without the first parameter of both functions.
memory_of_module = ctypes.cast(ctypes.pointer(memory), ctypes.POINTER(_otf2.MemoryCallbacks)).contents
with otf2.writer.open(sys.argv[1], timer_resolution=1_000_000_000, chunk_size_events=CHUNK_BYTES,
                      memory_callbacks=memory_of_module) as trace:
    trace.creator = definitions["creator"]
    known = trace.definitions
    fabric = known.system_tree_node("fabric", "machine")
    nodes = {name: known.system_tree_node(name, "node", parent=fabric) for name in sorted(set(definitions["ranks"]))}
    processes = []
    writers = []
    locations = []
    for rank, node in enumerate(definitions["ranks"]):
        processes.append(known.location_group(
            f"MPI Rank {rank}", location_group_type=LocationGroupType.PROCESS, system_tree_parent=nodes[node]))
        locations.append(known.location("Master thread", group=processes[-1]))
        writers.append(trace.event_writer_from_location(locations[-1]))
    known.group("", group_type=GroupType.COMM_LOCATIONS, paradigm=Paradigm.MPI, members=locations)
    communicators = []
    places = []
    for own in definitions["communicators"]:
        group = known.group(f"members of {own['name']}", group_type=GroupType.COMM_GROUP, paradigm=Paradigm.MPI,
                            members=own["members"])
        communicators.append(known.comm(own["name"], group))
        places.append({rank: place for place, rank in enumerate(own["members"])})
    if definitions["window"] is not None:
        window = known.rma_win("one-sided operations", communicators[definitions["window"]])
    samples = []
    if definitions["ports"]:
        rates = known.metric_class([
            known.metric_member(f"link rate {direction}", definitions["rate"], metric_mode=MetricMode.ABSOLUTE_NEXT,
                                value_type=Type.UINT64, base=Base.DECIMAL, unit="B/s")
            for direction in ("sent", "received")], occurrence=MetricOccurrence.ASYNCHRONOUS)
    for port in definitions["ports"]:
        # As plugins of Score-P: the samples of a node's device are at a location of one process.
        device = known.system_tree_node(port["name"], "port", parent=nodes[definitions["ranks"][port["rank"]]])
        known.system_tree_node_domain(device, SystemTreeDomain.NETWORKING_DEVICE)
        location = known.location(f"port {port['name']}", type=LocationType.METRIC, group=processes[port["rank"]])
        samples.append((trace.event_writer_from_location(location),
                        known.metric_instance(rates, recorder=location, scope=device)))
    while chunk := events.read(RECORD.size * RECORDS_PER_READ):
        for time, sent, received, number, kind, rank, peer, communicator, tag, operation in RECORD.iter_unpack(chunk):
            if kind == RATES:
                writer, metric = samples[rank]
                writer.metric(time, metric, [sent, received])
                continue
            writer = writers[rank]
            if kind == SEND:
                writer.mpi_send(time, places[communicator][peer], communicators[communicator], tag, sent)
            elif kind == RECEIVE:
                writer.mpi_recv(time, places[communicator][peer], communicators[communicator], tag, sent)
            elif kind == COLLECTIVE_BEGIN:
                writer.mpi_collective_begin(time)
            elif kind == COLLECTIVE_END:
                writer.mpi_collective_end(
                    time, operations[operation], communicators[communicator], NO_ROOT, sent, received)
            elif kind == REQUEST_SEND:
                writer.mpi_isend(time, places[communicator][peer], communicators[communicator], tag, sent, number)
            elif kind == REQUEST_SEND_END:
                writer.mpi_isend_complete(time, number)
            elif kind == REQUEST_RECEIVE_BEGIN:
                writer.mpi_irecv_request(time, number)
            elif kind == REQUEST_RECEIVE:
                writer.mpi_irecv(time, places[communicator][peer], communicators[communicator], tag, sent, number)
            elif kind == PUT:
                writer.rma_put(time, window, places[communicator][peer], sent, number)
            elif kind == GET:
                writer.rma_get(time, window, places[communicator][peer], sent, number)
            else:
                writer.rma_op_complete_blocking(time, window, number)
    if trace._first_timestamp is not None:
        # The times are those of the capture. The module takes the time of writing instead, and
        # converts it from seconds.
        trace._realtime_timestamp = Fraction(trace._first_timestamp, 1_000_000_000)
