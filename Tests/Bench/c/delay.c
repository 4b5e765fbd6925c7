/* delay MICROSECONDS: network with delayed packets, for a private network namespace. Creates the interface
   `delay0` and prints `ready`; the caller assigns it an address. Each packet routed to it returns with its two
   addresses exchanged. A connection to any other address of the interface's network ends at the same port of the
   interface's own address. The checksums stay valid, since they add both addresses. IPv4 only.

   It replaces netem, which many kernels lack. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/if.h>
#include <linux/if_tun.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

/* Capacity of packets in flight: 50 ms of 20 MB at the usual 1,500 bytes and more. Beyond it packets are lost, as
   in a router. */
enum { PACKETS = 1 << 16, PACKET_BYTES = 2048, PER_TURN = 64, ADDRESS_BYTES = 4, SOURCE = 12, DESTINATION = 16, HEAD_BYTES = 20 };

typedef struct {
    long due; /* in nanoseconds */
    ssize_t size;
    unsigned char bytes[PACKET_BYTES];
} packet;

static packet queue[PACKETS];
static unsigned long first, last;

static long now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1000000000 + time.tv_nsec;
}

static void fail(const char *call)
{
    fprintf(stderr, "delay: %s: %s\n", call, strerror(errno));
    exit(1);
}

/* Reads a packet; returns 0 when there is none. */
static int take(int device, long delay)
{
    static unsigned char lost[PACKET_BYTES];
    int is_full = last - first == PACKETS;
    packet *it = &queue[last % PACKETS];
    unsigned char *bytes = is_full ? lost : it->bytes;
    ssize_t size = read(device, bytes, PACKET_BYTES);
    if (size < 0 && errno == EAGAIN) return 0;
    if (size < 0) fail("read");
    if (is_full || size < HEAD_BYTES || bytes[0] >> 4 != 4) return 1;
    unsigned char address[ADDRESS_BYTES];
    memcpy(address, bytes + SOURCE, ADDRESS_BYTES);
    memcpy(bytes + SOURCE, bytes + DESTINATION, ADDRESS_BYTES);
    memcpy(bytes + DESTINATION, address, ADDRESS_BYTES);
    it->size = size;
    it->due = now() + delay;
    last++;
    return 1;
}

int main(int count, char **arguments)
{
    if (count != 2 || atol(arguments[1]) <= 0) {
        fprintf(stderr, "usage: delay MICROSECONDS\n");
        return 64;
    }
    long delay = atol(arguments[1]) * 1000;
    int device = open("/dev/net/tun", O_RDWR | O_NONBLOCK | O_CLOEXEC);
    if (device < 0) fail("/dev/net/tun");
    struct ifreq request = {.ifr_name = "delay0", .ifr_flags = IFF_TUN | IFF_NO_PI};
    if (ioctl(device, TUNSETIFF, &request) != 0) fail("TUNSETIFF");
    puts("ready");
    fflush(stdout);
    for (;;) {
        long time = now();
        while (first != last && queue[first % PACKETS].due <= time) {
            packet *it = &queue[first++ % PACKETS];
            /* A packet is lost before the interface is up, and when a socket has no room. */
            if (write(device, it->bytes, it->size) < 0 && errno != EIO && errno != ENOBUFS && errno != EAGAIN) fail("write");
        }
        long left = first == last ? -1 : queue[first % PACKETS].due - time;
        struct timespec wait = {.tv_sec = left / 1000000000, .tv_nsec = left % 1000000000};
        struct pollfd polled = {.fd = device, .events = POLLIN};
        if (ppoll(&polled, 1, left < 0 ? NULL : &wait, NULL) < 0 && errno != EINTR) fail("ppoll");
        for (int turn = 0; turn < PER_TURN && take(device, delay); turn++) continue;
    }
}
