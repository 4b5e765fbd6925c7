#define _GNU_SOURCE
#include "load.h"

#include <errno.h>
#include <getopt.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <zlib.h>

/* Results of all clients, in memory that their processes share. */
struct load_ledger {
    pthread_barrier_t ready;
    const char *prefix, *suffix;
    long files;
    size_t size;
    int sums;
    atomic_ulong bytes;
    atomic_ulong sum; /* of the bodies' CRC-32: in whatever order they come */
    uint64_t began;
    atomic_ulong ended; /* the last answer of the last client */
};

/* Marks a time as a duration. */
static const uint64_t ENDED = UINT64_C(1) << 63;

static uint64_t now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (uint64_t)time.tv_sec * 1000000000 + (uint64_t)time.tv_nsec;
}

static void *shared(size_t size)
{
    void *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) {
        fprintf(stderr, "no memory: %s\n", strerror(errno));
        exit(70);
    }
    return memory;
}

void load_ready(load_client *client)
{
    if (pthread_barrier_wait(&client->ledger->ready) == PTHREAD_BARRIER_SERIAL_THREAD) client->ledger->began = now();
}

long load_next(load_client *client, char url[LOAD_URL_BYTES])
{
    if (client->requested == client->requests || client->requested - client->answered >= client->outstanding) return -1;
    struct load_ledger *ledger = client->ledger;
    long file = client->requested % ledger->files;
    snprintf(url, LOAD_URL_BYTES, "%s%06ld%s", ledger->prefix, file, ledger->suffix);
    client->times[client->requested] = now();
    return client->requested++;
}

int load_answered(load_client *client, long number, const void *body, size_t size)
{
    struct load_ledger *ledger = client->ledger;
    if (number < 0 || number >= client->requested || client->times[number] & ENDED) {
        fprintf(stderr, "a surplus answer: %ld\n", number);
        return -1;
    }
    if (size != ledger->size) {
        fprintf(stderr, "an answer of %zu bytes\n", size);
        return -1;
    }
    uint64_t time = now();
    client->times[number] = (time - client->times[number]) | ENDED;
    if (++client->answered == client->requests)
        for (unsigned long last = atomic_load(&ledger->ended);
             last < time && !atomic_compare_exchange_weak(&ledger->ended, &last, time);) continue;
    atomic_fetch_add_explicit(&ledger->bytes, size, memory_order_relaxed);
    if (ledger->sums)
        atomic_fetch_add_explicit(&ledger->sum, crc32(0, body, (unsigned)size), memory_order_relaxed);
    return 0;
}

static int compare(const void *one, const void *other)
{
    uint64_t a = *(const uint64_t *)one, b = *(const uint64_t *)other;
    return a < b ? -1 : a > b;
}

static double microseconds(const uint64_t *sorted, long count, double share)
{
    return (double)(sorted[(long)((double)(count - 1) * share)] & ~ENDED) / 1e3;
}

static double processor_seconds(int who)
{
    struct rusage usage;
    getrusage(who, &usage);
    return (double)usage.ru_utime.tv_sec + (double)usage.ru_stime.tv_sec
        + (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1e6;
}

static int usage(const char *program)
{
    fprintf(stderr,
        "usage: %s --server SERVER --prefix TEXT [--suffix TEXT] [--requests N] [--outstanding N] [--clients N]\n"
        "       [--files N] [--size BYTES] [--extra TEXT] [--sums]\n"
        "requests URLs of prefix, number (000000 …) and suffix, and prints its measurements as JSON\n", program);
    return 64;
}

int load_main(int count, char **arguments, int (*run)(load_client *client))
{
    static const struct option options[] = {
        {"server", required_argument, NULL, 'p'}, {"prefix", required_argument, NULL, 'u'},
        {"suffix", required_argument, NULL, 'x'},
        {"requests", required_argument, NULL, 'r'}, {"outstanding", required_argument, NULL, 'o'},
        {"clients", required_argument, NULL, 'c'}, {"files", required_argument, NULL, 'f'},
        {"size", required_argument, NULL, 's'}, {"extra", required_argument, NULL, 'e'},
        {"sums", no_argument, NULL, 'h'}, {NULL, 0, NULL, 0}};
    struct load_ledger *ledger = shared(sizeof *ledger);
    load_client plan = {.extra = "", .outstanding = 100, .requests = 10000, .ledger = ledger};
    int clients = 1;
    ledger->suffix = "";
    ledger->size = 1024;
    ledger->files = 10000;
    for (int option; (option = getopt_long(count, arguments, "", options, NULL)) != -1;)
        switch (option) {
        case 'p': plan.server = optarg; break;
        case 'u': ledger->prefix = optarg; break;
        case 'x': ledger->suffix = optarg; break;
        case 'r': plan.requests = atol(optarg); break;
        case 'o': plan.outstanding = atoi(optarg); break;
        case 'c': clients = atoi(optarg); break;
        case 'f': ledger->files = atol(optarg); break;
        case 's': ledger->size = (size_t)atol(optarg); break;
        case 'e': plan.extra = optarg; break;
        case 'h': ledger->sums = 1; break;
        default: return usage(arguments[0]);
        }
    if (optind != count || !plan.server || !ledger->prefix || plan.requests < 1 || plan.outstanding < 1 || clients < 1
        || ledger->files < 1)
        return usage(arguments[0]);

    long total = plan.requests * clients;
    uint64_t *times = shared((size_t)total * sizeof *times);
    pthread_barrierattr_t across;
    pthread_barrierattr_init(&across);
    pthread_barrierattr_setpshared(&across, PTHREAD_PROCESS_SHARED);
    pthread_barrier_init(&ledger->ready, &across, (unsigned)clients);
    /* Each client is a process, as in real use: they share no threads and no locks of a library. */
    for (int i = 0; i < clients; i++) {
        pid_t child = fork();
        if (child < 0) return perror("fork"), 70;
        if (child == 0) {
            load_client client = plan;
            client.times = times + plan.requests * i;
            exit(run(&client) == 0 ? 0 : 1);
        }
    }
    int status, failed = 0;
    while (wait(&status) > 0) failed |= status != 0;
    double seconds = (double)(atomic_load(&ledger->ended) - ledger->began) / 1e9;
    if (failed) return 70;
    qsort(times, (size_t)total, sizeof *times, compare);
    printf("{\"answers\": %ld, \"seconds\": %.6f, \"bytes\": %lu, \"sum\": %lu, \"cpu\": %.6f, \"p50\": %.1f, "
           "\"p99\": %.1f, \"p999\": %.1f}\n",
        total, seconds, atomic_load(&ledger->bytes), atomic_load(&ledger->sum), processor_seconds(RUSAGE_CHILDREN),
        microseconds(times, total, 0.5), microseconds(times, total, 0.99), microseconds(times, total, 0.999));
    return 0;
}
