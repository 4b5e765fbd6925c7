/* worker [MILLISECONDS]: Answers URLs such as upper:hello, with HELLO. Each job takes MILLISECONDS. */
#define _GNU_SOURCE
#include "earshot.h"

#include <ctype.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <time.h>
#include <unistd.h>

enum { SLOTS = 4, MOST_MS = 3600000 };

typedef struct {
    char *attempt;
    char *text;
    long due;
} job;

/* Running jobs. All take the same time, so the first one is due first. */
static job jobs[SLOTS];
static int running;

static long now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1000 + time.tv_nsec / 1000000;
}

static void forget(int index)
{
    free(jobs[index].attempt);
    free(jobs[index].text);
    memmove(jobs + index, jobs + index + 1, (size_t)(--running - index) * sizeof *jobs);
}

static int begin(earshot_bus *bus, const char *attempt, const char *url, long delay, int leaving)
{
    if (leaving || running == SLOTS) return earshot_failed(bus, attempt, "worker-lost", "no room");
    const char *text = strchr(url, ':');
    if (!text || !text[1]) return earshot_failed(bus, attempt, "worker-failed", "no text follows upper:");
    job new = {.attempt = strdup(attempt), .text = strdup(text + 1), .due = now() + delay};
    if (!new.attempt || !new.text) abort();
    for (char *at = new.text; *at; at++) *at = (char)toupper((unsigned char)*at);
    jobs[running++] = new;
    return 0;
}

/* Cancels a running job. Ignores a job that has ended. */
static int cancel(earshot_bus *bus, const char *attempt)
{
    for (int i = 0; i < running; i++)
        if (strcmp(jobs[i].attempt, attempt) == 0) {
            forget(i);
            return earshot_failed(bus, attempt, "cancelled", "the broker cancelled the job");
        }
    return 0;
}

int main(int count, char **arguments)
{
    char *end = NULL;
    long delay = count == 2 ? strtol(arguments[1], &end, 10) : 0;
    if (count > 2 || (end && (end == arguments[1] || *end)) || delay < 0 || delay > MOST_MS) {
        fprintf(stderr, "usage: worker [MILLISECONDS]\n");
        return EARSHOT_USAGE;
    }
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    sigprocmask(SIG_BLOCK, &set, NULL);
    int signals = signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC);

    earshot_bus bus;
    if (earshot_register(&bus, "upper", SLOTS) != 0) return earshot_report_and_close(&bus);
    fprintf(stderr, "earshot: serving upper:\n");
    int leaving = 0;
    while (!leaving || running) {
        long left = running ? jobs[0].due - now() : -1;
        int result = earshot_await(&bus, signals, running && left < 0 ? 0 : (int)left);
        if (result == 1) {
            earshot_message message;
            if (earshot_receive(&bus, &message) != 0) return earshot_report_and_close(&bus);
            const char *verb = message.verb, *attempt = message.word[0];
            if (strcmp(verb, "JOB") == 0) result = begin(&bus, attempt, message.word[1], delay, leaving);
            else if (strcmp(verb, "CANCEL") == 0) result = cancel(&bus, attempt);
            else if (strcmp(verb, "PING") == 0) result = earshot_pong(&bus);
            else if (strcmp(verb, "DRAIN") == 0) leaving = 1;
            earshot_free(&message);
        }
        while (result >= 0 && running && jobs[0].due <= now()) {
            result = earshot_done(&bus, jobs[0].attempt, "text/plain", jobs[0].text);
            forget(0);
        }
        if (result < 0) return earshot_report_and_close(&bus);
        struct signalfd_siginfo caught;
        if (read(signals, &caught, sizeof caught) > 0) leaving = 1;
    }
    if (earshot_bye(&bus) != 0) return earshot_report_and_close(&bus);
    earshot_close(&bus);
    return 0;
}
