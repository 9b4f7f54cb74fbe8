/* A stand-in for ibdump on a sink: the guests have Soft-RoCE and no InfiniBand.
 *
 * It takes ibdump's options as strictly, reads the frames that the switch mirrors to its port, and
 * writes each RoCEv2 packet as ibdump writes a native one: pcap, microseconds, link type 197 (ERF),
 * one ERF header (type 21), then LRH, BTH to pad bytes unchanged, ICRC, VCRC. LIDs come from the
 * table of addresses; both CRCs are computed anew. Frames that are not RoCEv2 (ssh, ARP) are left out
 * and counted on standard error. A RoCEv2 packet of an unknown address is an error.
 *
 * Environment: IBDUMP_WIRE, the file with the frames; IBDUMP_LIDS, a file with lines "ADDRESS LID". */
#include <arpa/inet.h>
#include <getopt.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define DEVICE "ibsim0"
#define MAX_FRAME 65536

static volatile sig_atomic_t stop;
static uint32_t crc32_table[256];
static uint16_t vcrc_table[256];
static struct {
    uint32_t address;
    uint16_t lid;
} lids[64];
static int lid_count;

static void on_signal(int number) {
    (void)number;
    stop = 1;
}

static void fail(const char *what) {
    fprintf(stderr, "-E- %s\n", what);
    exit(1);
}

static void tables(void) {
    for (int byte = 0; byte < 256; byte++) {
        uint32_t long_crc = byte;
        uint16_t crc = byte;
        for (int bit = 0; bit < 8; bit++) {
            long_crc = long_crc & 1 ? long_crc >> 1 ^ 0xEDB88320 : long_crc >> 1;
            crc = crc & 1 ? crc >> 1 ^ 0xD008 : crc >> 1; /* 0x100B, bits reversed */
        }
        crc32_table[byte] = long_crc;
        vcrc_table[byte] = crc;
    }
}

static uint32_t icrc(const uint8_t *packet, size_t bytes) {
    uint32_t crc = 0xFFFFFFFF;
    for (size_t at = 0; at < bytes; at++) {
        uint8_t byte = packet[at];
        if (at == 0)
            byte |= 0xF0; /* VL */
        if (at == 12)
            byte = 0xFF; /* FECN, BECN, reserved */
        crc = crc >> 8 ^ crc32_table[(crc ^ byte) & 0xFF];
    }
    return ~crc;
}

static uint16_t vcrc(const uint8_t *packet, size_t bytes) {
    uint16_t crc = 0xFFFF;
    for (size_t at = 0; at < bytes; at++)
        crc = crc >> 8 ^ vcrc_table[(crc ^ packet[at]) & 0xFF];
    return ~crc;
}

static uint16_t lid_of(const uint8_t *address) {
    uint32_t wanted;
    memcpy(&wanted, address, 4);
    for (int i = 0; i < lid_count; i++)
        if (lids[i].address == wanted)
            return lids[i].lid;
    fail("a RoCEv2 packet of an address that has no LID");
    return 0;
}

static void read_lids(void) {
    const char *path = getenv("IBDUMP_LIDS");
    FILE *file = path ? fopen(path, "r") : 0;
    char text[64];
    unsigned lid;
    if (!file)
        fail("IBDUMP_LIDS");
    while (fscanf(file, "%63s %u", text, &lid) == 2) {
        if (lid_count == 64 || lid == 0 || lid >= 0xC000 || inet_pton(AF_INET, text, &lids[lid_count].address) != 1)
            fail("IBDUMP_LIDS: not ADDRESS LID");
        lids[lid_count++].lid = lid;
    }
    if (!feof(file) || !lid_count)
        fail("IBDUMP_LIDS: not ADDRESS LID");
    fclose(file);
}

/* Writes the packet of a frame. Returns its length, or 0 if the frame is not RoCEv2. */
static uint32_t convert(FILE *out, uint32_t seconds, uint32_t micros, const uint8_t *frame, uint32_t bytes) {
    static uint8_t packet[MAX_FRAME + 16];
    if (bytes > 58 && frame[12] == 0x86 && frame[13] == 0xDD && frame[20] == 17 && frame[56] == 0x12 && frame[57] == 0xB7)
        fail("RoCEv2 over IPv6, which has no LID");
    if (bytes < 54 || frame[12] != 8 || frame[13] != 0 || frame[14] != 0x45 || frame[23] != 17 || frame[36] != 0x12 ||
        frame[37] != 0xB7)
        return 0;
    uint32_t datagram = frame[38] << 8 | frame[39]; /* UDP header, BTH to pad bytes, ICRC */
    if (datagram < 8 + 12 + 4 || 34 + datagram > bytes)
        fail("a RoCEv2 packet that is cut");
    uint32_t body = datagram - 8 - 4, length = 8 + body + 4 + 2;
    uint16_t words = (8 + body + 4) / 4, to = lid_of(frame + 30), from = lid_of(frame + 26);
    uint8_t lrh[8] = {0, 2, to >> 8, to, words >> 8, words, from >> 8, from};
    memcpy(packet, lrh, 8);
    memcpy(packet + 8, frame + 42, body);
    uint32_t invariant = icrc(packet, 8 + body);
    for (int i = 0; i < 4; i++)
        packet[8 + body + i] = invariant >> 8 * i;
    uint16_t variant = vcrc(packet, length - 2);
    packet[length - 2] = variant;
    packet[length - 1] = variant >> 8;
    uint32_t record = length + 16, head[4] = {seconds, micros, record, record};
    uint64_t stamp = ((uint64_t)seconds << 32) + (uint64_t)micros * 4295;
    uint8_t erf[16] = {0};
    memcpy(erf, &stamp, 8);
    erf[8] = 21;
    erf[9] = 4;
    erf[10] = record >> 8;
    erf[11] = record;
    erf[14] = length >> 8;
    erf[15] = length;
    if (fwrite(head, 16, 1, out) != 1 || fwrite(erf, 16, 1, out) != 1 || fwrite(packet, length, 1, out) != 1)
        fail("cannot write the capture");
    return length;
}

int main(int count, char **words) {
    const char *device = DEVICE, *path = "sniffer.pcap";
    static const struct option long_options[] = {{"ib-dev", 1, 0, 'd'},    {"ib-port", 1, 0, 'i'}, {"write", 1, 0, 'w'},
                                                 {"max-burst", 1, 0, 'b'}, {"silent", 0, 0, 's'},  {0}};
    int option;
    for (int i = 0; i < 4; i++)
        signal((int[]){SIGINT, SIGTERM, SIGHUP, SIGPIPE}[i], on_signal);
    while ((option = getopt_long(count, words, "d:i:w:b:s", long_options, 0)) != -1)
        switch (option) {
        case 'd': device = optarg; break;
        case 'w': path = optarg; break;
        case 'i':
            if (strcmp(optarg, "1"))
                fail("no such port");
            break;
        case 'b':
            if (!*optarg || strspn(optarg, "0123456789") != strlen(optarg) || atoi(optarg) > 32)
                fail("max-burst is out of range");
            break;
        case 's': break;
        default: return 1;
        }
    if (optind != count)
        fail("unknown argument");
    FILE *out = fopen(path, "wb"); /* before the device, as ibdump does */
    if (!out)
        fail("cannot open the capture");
    if (strcmp(device, DEVICE))
        fail("IB device not found");
    tables();
    read_lids();
    uint32_t head[6] = {0xa1b2c3d4, 0x00040002, 0, 0, 65535, 197};
    fwrite(head, 24, 1, out);
    /* The capture begins with the next frame that arrives. */
    const char *wire_path = getenv("IBDUMP_WIRE");
    if (!wire_path)
        fail("IBDUMP_WIRE");
    FILE *wire = fopen(wire_path, "rb");
    long at = 24;
    if (wire && !fseek(wire, 0, SEEK_END) && ftell(wire) > at)
        at = ftell(wire);
    printf("Ready to capture (Press ^c to stop):\n");
    fflush(stdout);
    static uint8_t frame[MAX_FRAME];
    unsigned long long packets = 0, bytes = 0, others = 0;
    for (int last = 0; !last;) {
        last = stop; /* once more after the signal, to the end of the file */
        if (!wire && !(wire = fopen(wire_path, "rb"))) {
            usleep(50000);
            continue;
        }
        uint32_t record[4];
        fseek(wire, at, SEEK_SET);
        while (fread(record, 16, 1, wire) == 1) {
            if (record[2] > MAX_FRAME || record[2] != record[3])
                fail("the wire is damaged");
            if (record[2] && fread(frame, record[2], 1, wire) != 1)
                break; /* the switch is writing this frame */
            at += 16 + record[2];
            uint32_t length = convert(out, record[0], record[1] / 1000, frame, record[2]);
            packets += length > 0;
            others += length == 0;
            bytes += length;
        }
        clearerr(wire);
        if (!last)
            usleep(20000);
    }
    if (fclose(out))
        fail("cannot write the capture");
    fprintf(stderr, "\nInterrupted (signal) - exiting ...\nCaptured: %llu packets, %llu bytes\n", packets, bytes);
    fprintf(stderr, "left out: %llu Ethernet frames that are not RoCEv2\n", others);
    return 0;
}
