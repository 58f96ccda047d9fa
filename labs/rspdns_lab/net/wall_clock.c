/* Shows a program another time of day: an offset in seconds, read from the file that RSPDNS_LAB_CLOCK names.
 *
 * For labs only: they step the clock of one host, and all hosts of a lab share the machine's. Loaded with LD_PRELOAD.
 * The monotonic clock stays as it is, as it does when a real clock is stepped. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static const int64_t no_offset = 0;
static const volatile int64_t *offset_s = &no_offset;

__attribute__((constructor)) static void open_offset(void)
{
    const char *path = getenv("RSPDNS_LAB_CLOCK");
    int fd = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (fd < 0)
        return;
    void *page = mmap(NULL, sizeof(int64_t), PROT_READ, MAP_SHARED, fd, 0);
    if (page != MAP_FAILED)
        offset_s = page;
    close(fd);
}

int clock_gettime(clockid_t id, struct timespec *now)
{
    if (syscall(SYS_clock_gettime, id, now) != 0)
        return -1;
    if (id == CLOCK_REALTIME || id == CLOCK_REALTIME_COARSE)
        now->tv_sec += *offset_s;
    return 0;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone)
{
    (void)zone;
    struct timespec exact;
    if (clock_gettime(CLOCK_REALTIME, &exact) != 0)
        return -1;
    now->tv_sec = exact.tv_sec;
    now->tv_usec = exact.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *out)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (out)
        *out = now.tv_sec;
    return now.tv_sec;
}

/* A deadline was reckoned from the time shown here; the kernel waits by its own. */
int pthread_cond_timedwait(pthread_cond_t *restrict condition, pthread_mutex_t *restrict mutex,
                           const struct timespec *restrict deadline)
{
    static int (*real)(pthread_cond_t *, pthread_mutex_t *, const struct timespec *);
    if (!real)
        *(void **)&real = dlvsym(RTLD_NEXT, "pthread_cond_timedwait", "GLIBC_2.3.2");
    if (!real)
        abort();
    struct timespec shifted = *deadline;
    shifted.tv_sec -= *offset_s;
    return real(condition, mutex, &shifted);
}
