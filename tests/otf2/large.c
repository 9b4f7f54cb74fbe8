/* Writes an OTF2 archive of many events; arguments: FOLDER RANKS MESSAGES_PER_RANK. Each rank sends
 * to the next rank of a ring and receives from the one before, each in a separate call, so that a
 * message has three events. For `make soak` (Debian: libotf2-trace-dev); the Python module would
 * take minutes. */
#include <otf2/otf2.h>
#include <stdio.h>
#include <stdlib.h>

static uint64_t now;

static OTF2_FlushType pre_flush(void *user, OTF2_FileType file, OTF2_LocationRef location, void *caller, bool final)
{
    (void)user, (void)file, (void)location, (void)caller, (void)final;
    return OTF2_FLUSH;
}

static OTF2_TimeStamp post_flush(void *user, OTF2_FileType file, OTF2_LocationRef location)
{
    (void)user, (void)file, (void)location;
    return now;
}

static OTF2_FlushCallbacks callbacks = { .otf2_pre_flush = pre_flush, .otf2_post_flush = post_flush };

int main(int count, char **arguments)
{
    if (count != 4)
        return 2;
    uint64_t ranks = strtoull(arguments[2], NULL, 10), messages = strtoull(arguments[3], NULL, 10);
    OTF2_Archive *archive = OTF2_Archive_Open(arguments[1], "traces", OTF2_FILEMODE_WRITE, 1 << 20, 1 << 20, OTF2_SUBSTRATE_POSIX, OTF2_COMPRESSION_NONE);
    if (!archive)
        return 1;
    OTF2_Archive_SetFlushCallbacks(archive, &callbacks, NULL);
    OTF2_Archive_SetSerialCollectiveCallbacks(archive);
    OTF2_Archive_OpenEvtFiles(archive);
    for (uint64_t rank = 0; rank < ranks; rank++) {
        OTF2_EvtWriter *writer = OTF2_Archive_GetEvtWriter(archive, rank);
        now = 1000 + rank;
        for (uint64_t message = 0; message < messages; message++) {
            OTF2_EvtWriter_Enter(writer, NULL, now, 0);
            now += 100;
            if (message & 1)
                OTF2_EvtWriter_MpiRecv(writer, NULL, now, (uint32_t)((rank + ranks - 1) % ranks), 0, (uint32_t)(message / 2 % 7), 1024);
            else
                OTF2_EvtWriter_MpiSend(writer, NULL, now, (uint32_t)((rank + 1) % ranks), 0, (uint32_t)(message / 2 % 7), 1024);
            now += 100;
            OTF2_EvtWriter_Leave(writer, NULL, now, 0);
            now += 100;
        }
        OTF2_Archive_CloseEvtWriter(archive, writer);
    }
    OTF2_Archive_CloseEvtFiles(archive);
    OTF2_Archive_OpenDefFiles(archive);
    for (uint64_t rank = 0; rank < ranks; rank++)
        OTF2_Archive_CloseDefWriter(archive, OTF2_Archive_GetDefWriter(archive, rank));
    OTF2_Archive_CloseDefFiles(archive);
    OTF2_GlobalDefWriter *known = OTF2_Archive_GetGlobalDefWriter(archive);
    OTF2_GlobalDefWriter_WriteClockProperties(known, 1000000000, 0, now, OTF2_UNDEFINED_TIMESTAMP);
    const char *names[] = { "", "MPI_Send", "node", "Master thread", "MPI_COMM_WORLD" };
    uint32_t next = 0;
    for (; next < 5; next++)
        OTF2_GlobalDefWriter_WriteString(known, next, names[next]);
    OTF2_GlobalDefWriter_WriteRegion(known, 0, 1, 1, 0, OTF2_REGION_ROLE_FUNCTION, OTF2_PARADIGM_MPI, 0, 0, 0, 0);
    uint64_t *members = malloc(ranks * sizeof *members);
    for (uint64_t rank = 0; rank < ranks; rank++) {
        char name[64];
        snprintf(name, sizeof name, "node%d", (int)rank + 1);
        OTF2_GlobalDefWriter_WriteString(known, next, name);
        OTF2_GlobalDefWriter_WriteSystemTreeNode(known, rank, next++, 2, OTF2_UNDEFINED_SYSTEM_TREE_NODE);
        snprintf(name, sizeof name, "MPI Rank %d", (int)rank);
        OTF2_GlobalDefWriter_WriteString(known, next, name);
        OTF2_GlobalDefWriter_WriteLocationGroup(known, rank, next++, OTF2_LOCATION_GROUP_TYPE_PROCESS, rank, OTF2_UNDEFINED_LOCATION_GROUP);
        OTF2_GlobalDefWriter_WriteLocation(known, rank, 3, OTF2_LOCATION_TYPE_CPU_THREAD, messages * 3, rank);
        members[rank] = rank;
    }
    OTF2_GlobalDefWriter_WriteGroup(known, 0, 0, OTF2_GROUP_TYPE_COMM_LOCATIONS, OTF2_PARADIGM_MPI, 0, (uint32_t)ranks, members);
    OTF2_GlobalDefWriter_WriteGroup(known, 1, 0, OTF2_GROUP_TYPE_COMM_GROUP, OTF2_PARADIGM_MPI, 0, (uint32_t)ranks, members);
    OTF2_GlobalDefWriter_WriteComm(known, 0, 4, 1, OTF2_UNDEFINED_COMM, 0);
    OTF2_Archive_CloseGlobalDefWriter(archive, known);
    OTF2_Archive_Close(archive);
    return 0;
}
