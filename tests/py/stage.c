/* Moves the clock of the process it is preloaded into by `STAGE_CLOCK_SECS`. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <sys/time.h>
#include <time.h>

static long ahead;
static int (*next_clock_gettime)(clockid_t, struct timespec *);
static int (*next_gettimeofday)(struct timeval *, void *);

__attribute__((constructor)) static void begin(void) {
    const char *secs = getenv("STAGE_CLOCK_SECS");
    next_clock_gettime = dlsym(RTLD_NEXT, "clock_gettime");
    next_gettimeofday = dlsym(RTLD_NEXT, "gettimeofday");
    ahead = secs ? atol(secs) : 0;
}

int clock_gettime(clockid_t clock, struct timespec *at) {
    int failed = next_clock_gettime(clock, at);
    if (!failed && clock == CLOCK_REALTIME) at->tv_sec += ahead;
    return failed;
}

/* SQLite asks this one. */
int gettimeofday(struct timeval *at, void *zone) {
    int failed = next_gettimeofday(at, zone);
    if (!failed && at) at->tv_sec += ahead;
    return failed;
}
