/* latency curl|bus URL COUNT FILE: requests URL?0, URL?1 …, one at a time, by a reused libcurl handle or by a bus.
   Prints the microseconds of each, one a line. Requires status 200 and the bytes of FILE. */
#define _DEFAULT_SOURCE
#include "common.h"

#include <curl/curl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { LARGEST = 1 << 20 };

typedef struct {
    char bytes[LARGEST];
    size_t length;
} body;

static body expected, received;

static int is_right(const char *bytes, size_t length)
{
    return length == expected.length && memcmp(bytes, expected.bytes, length) == 0;
}

static size_t receive(char *bytes, size_t size, size_t count, void *context)
{
    body *into = context;
    if (into->length + size * count > LARGEST) return 0;
    memcpy(into->bytes + into->length, bytes, size * count);
    into->length += size * count;
    return size * count;
}

/* Both return whether all responses were right, and write the times. */

static int by_curl(const char *url, int count, double *microseconds)
{
    char target[300];
    CURL *curl = curl_easy_init();
    if (!curl) return 0;
    curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, receive);
    curl_easy_setopt(curl, CURLOPT_WRITEDATA, &received);
    int right = 1;
    for (int i = 0; i < count && right; i++) {
        double began = now();
        long status = 0;
        received.length = 0;
        snprintf(target, sizeof target, "%s?%d", url, i);
        curl_easy_setopt(curl, CURLOPT_URL, target);
        right = curl_easy_perform(curl) == CURLE_OK && curl_easy_getinfo(curl, CURLINFO_RESPONSE_CODE, &status) == CURLE_OK
            && status == 200 && is_right(received.bytes, received.length);
        microseconds[i] = (now() - began) * 1e6;
    }
    curl_easy_cleanup(curl);
    return right;
}

static int by_bus(const char *url, int count, double *microseconds)
{
    char target[300], handler[40], request[20];
    earshot_bus bus;
    earshot_message message;
    snprintf(handler, sizeof handler, "latency/%ld", (long)getpid());
    int right = earshot_open(&bus) == 0;
    for (int i = 0; i < count && right; i++) {
        double began = now();
        snprintf(target, sizeof target, "%s?%d", url, i);
        snprintf(request, sizeof request, "%d", i);
        right = earshot_fetch(&bus, handler, request, target, NULL) == 0 && receive_terminal(&bus, &message) == 0;
        if (!right) break;
        right = strcmp(message.verb, "RESULT") == 0 && strcmp(message.word[2], "200") == 0
            && is_right(zmq_msg_data(&message.body), zmq_msg_size(&message.body))
            && earshot_acknowledge(&bus, &message) == 0;
        earshot_free(&message);
        microseconds[i] = (now() - began) * 1e6;
    }
    if (!right && *bus.error) fprintf(stderr, "latency: %s\n", bus.error);
    earshot_close(&bus);
    return right;
}

int main(int argc, char **argv)
{
    int count = argc == 5 ? atoi(argv[3]) : 0;
    if (count < 1 || (strcmp(argv[1], "curl") != 0 && strcmp(argv[1], "bus") != 0)) {
        fprintf(stderr, "usage: latency curl|bus URL COUNT FILE\n");
        return 64;
    }
    FILE *file = fopen(argv[4], "rb");
    double *microseconds = calloc(count, sizeof *microseconds);
    if (!file || !microseconds) {
        perror("latency");
        return 1;
    }
    expected.length = fread(expected.bytes, 1, LARGEST, file);
    fclose(file);
    int right = (*argv[1] == 'c' ? by_curl : by_bus)(argv[2], count, microseconds);
    if (!right) fprintf(stderr, "latency: a wrong answer, or none\n");
    for (int i = 0; i < count && right; i++) printf("%.1f\n", microseconds[i]);
    free(microseconds);
    return !right;
}
