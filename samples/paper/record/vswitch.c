/* The switches of the fabric: a learning Ethernet switch for QEMU's "-netdev stream" sockets that can
 * mirror ports.
 *
 *   vswitch DIR PORTS
 *
 * Guests connect to DIR/portN.sock. Requests arrive as datagrams at DIR/control.sock, one per packet,
 * and are answered to their sender:
 *
 *   mirror PORT SINK     copy both directions of PORT to SINK     ok | refused: ...
 *   unmirror PORT        stop copying                             ok | refused: ...
 *   show PORT                                                     SINK (0: not mirrored)
 *
 * SINK stands for a port without a guest. Its wire is the file DIR/sinkN.wire: a nanosecond pcap of
 * Ethernet frames, in the order in which the switch forwarded them. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#define PORTS 16
#define ROOM (1 << 18)
#define MAX_FRAME 65536

static int port_count, listening[PORTS + 1], guest[PORTS + 1], sink_of[PORTS + 1];
static uint8_t *input[PORTS + 1];
static size_t filled[PORTS + 1];
static FILE *wire[PORTS + 1];
static struct {
    uint8_t mac[6];
    int port;
} learned[256];
static int learned_count;

static void fail(const char *what) {
    perror(what);
    exit(1);
}

static struct sockaddr_un address(const char *folder, const char *name) {
    struct sockaddr_un to = {.sun_family = AF_UNIX};
    snprintf(to.sun_path, sizeof to.sun_path, "%s/%s", folder, name);
    return to;
}

static void mirror(int port, const uint8_t *frame, uint32_t bytes) {
    struct timespec now;
    FILE *to = sink_of[port] ? wire[sink_of[port]] : 0;
    if (!to)
        return;
    clock_gettime(CLOCK_REALTIME, &now);
    uint32_t head[4] = {(uint32_t)now.tv_sec, (uint32_t)now.tv_nsec, bytes, bytes};
    if (fwrite(head, 16, 1, to) != 1 || fwrite(frame, bytes, 1, to) != 1)
        fail("wire of a sink");
}

static void deliver(int port, const uint8_t *frame, uint32_t bytes) {
    uint8_t data[MAX_FRAME + 4];
    uint32_t length = htonl(bytes);
    size_t done = 0;
    mirror(port, frame, bytes);
    if (guest[port] < 0)
        return;
    memcpy(data, &length, 4);
    memcpy(data + 4, frame, bytes);
    while (done < bytes + 4) {
        ssize_t n = send(guest[port], data + done, bytes + 4 - done, MSG_NOSIGNAL);
        if (n >= 0) {
            done += n;
        } else if (errno == EINTR || errno == EAGAIN) {
            struct pollfd room = {guest[port], POLLOUT, 0};
            poll(&room, 1, 100);
        } else {
            return;
        }
    }
}

static void forward(int from, const uint8_t *frame, uint32_t bytes) {
    int i = 0;
    if (bytes < 14)
        return;
    mirror(from, frame, bytes);
    while (i < learned_count && memcmp(learned[i].mac, frame + 6, 6))
        i++;
    if (i == learned_count && i < 256 && !(frame[6] & 1))
        memcpy(learned[learned_count++].mac, frame + 6, 6);
    if (i < learned_count)
        learned[i].port = from;
    if (!(frame[0] & 1))
        for (i = 0; i < learned_count; i++)
            if (!memcmp(learned[i].mac, frame, 6)) {
                if (learned[i].port != from)
                    deliver(learned[i].port, frame, bytes);
                return;
            }
    for (int port = 1; port <= port_count; port++)
        if (port != from && guest[port] >= 0)
            deliver(port, frame, bytes);
}

static void receive(int port) {
    size_t at = 0;
    ssize_t n = recv(guest[port], input[port] + filled[port], ROOM - filled[port], MSG_DONTWAIT);
    if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR)) {
        close(guest[port]);
        guest[port] = -1;
        return;
    }
    if (n < 0)
        return;
    filled[port] += n;
    while (filled[port] - at >= 4) {
        uint32_t length;
        memcpy(&length, input[port] + at, 4);
        length = ntohl(length);
        if (length > MAX_FRAME) {
            fprintf(stderr, "port %d: a frame of %u bytes\n", port, length);
            exit(1);
        }
        if (filled[port] - at < 4 + length)
            break;
        forward(port, input[port] + at + 4, length);
        at += 4 + length;
    }
    memmove(input[port], input[port] + at, filled[port] - at);
    filled[port] -= at;
}

static void open_wire(const char *folder, int sink) {
    char path[256];
    uint32_t head[6] = {0xa1b23c4d, 0x00040002, 0, 0, 65535, 1};
    if (wire[sink])
        return;
    snprintf(path, sizeof path, "%s/sink%d.wire", folder, sink);
    if (!(wire[sink] = fopen(path, "wb")))
        fail(path);
    fwrite(head, 24, 1, wire[sink]);
}

static void answer(const char *folder, char *request, char *text, size_t room) {
    int port, sink, end = 0;
    if (sscanf(request, "show %d%n", &port, &end) == 1 && !request[end] && port > 0 && port <= port_count) {
        snprintf(text, room, "%d", sink_of[port]);
    } else if (sscanf(request, "unmirror %d%n", &port, &end) == 1 && !request[end] && port > 0 && port <= port_count) {
        sink_of[port] = 0;
        snprintf(text, room, "ok");
    } else if (sscanf(request, "mirror %d %d%n", &port, &sink, &end) == 2 && !request[end] && port > 0 &&
               sink > 0 && port <= port_count && sink <= port_count && port != sink) {
        if (sink_of[port] && sink_of[port] != sink) {
            snprintf(text, room, "refused: port %d is mirrored to %d", port, sink_of[port]);
            return;
        }
        if (guest[sink] >= 0 || sink_of[sink]) {
            snprintf(text, room, "refused: port %d is not a sink", sink);
            return;
        }
        open_wire(folder, sink);
        sink_of[port] = sink;
        snprintf(text, room, "ok");
    } else {
        snprintf(text, room, "refused: %.100s", request);
    }
}

int main(int count, char **words) {
    if (count != 3 || (port_count = atoi(words[2])) < 1 || port_count > PORTS) {
        fprintf(stderr, "usage: vswitch DIR PORTS (at most %d)\n", PORTS);
        return 2;
    }
    for (int port = 1; port <= port_count; port++) {
        char name[32];
        snprintf(name, sizeof name, "port%d.sock", port);
        struct sockaddr_un to = address(words[1], name);
        unlink(to.sun_path);
        listening[port] = socket(AF_UNIX, SOCK_STREAM, 0);
        if (bind(listening[port], (void *)&to, sizeof to) || listen(listening[port], 2))
            fail(to.sun_path);
        guest[port] = -1;
        input[port] = malloc(ROOM);
    }
    struct sockaddr_un to = address(words[1], "control.sock");
    unlink(to.sun_path);
    int control = socket(AF_UNIX, SOCK_DGRAM, 0);
    if (bind(control, (void *)&to, sizeof to))
        fail(to.sun_path);
    for (;;) {
        struct pollfd ready[PORTS + 1] = {{control, POLLIN, 0}};
        for (int port = 1; port <= port_count; port++) {
            ready[port] = (struct pollfd){guest[port] >= 0 ? guest[port] : listening[port], POLLIN, 0};
            if (wire[port])
                fflush(wire[port]);
        }
        if (poll(ready, port_count + 1, 1000) < 0)
            continue;
        for (int port = 1; port <= port_count; port++)
            if (ready[port].revents && guest[port] < 0) {
                guest[port] = accept(listening[port], 0, 0);
                filled[port] = 0;
            } else if (ready[port].revents) {
                receive(port);
            }
        if (ready[0].revents) {
            char request[256], text[256];
            struct sockaddr_un from;
            socklen_t size = sizeof from;
            ssize_t n = recvfrom(control, request, sizeof request - 1, 0, (void *)&from, &size);
            if (n < 0)
                continue;
            request[n] = 0;
            answer(words[1], request, text, sizeof text);
            fprintf(stderr, "%s: %s\n", request, text);
            sendto(control, text, strlen(text), MSG_DONTWAIT, (void *)&from, size);
        }
    }
}
