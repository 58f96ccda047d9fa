#include "loop.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define BATCH 64
#define KEPT_LEAST 8 /* descriptors ... */
#define KEPT_MOST (17 * 253) /* ... of which a request may bring 253, and a batch from a pair 16 times that */
#define KEPT_PART 8
#define LOG_LINES 30 /* in a minute: strangers can cause some */
#define LOG_MS 60000
#define LOG_SIZE (256 * 1024) /* bytes; then it is emptied */

static int epoll_fd = -1;
static struct epoll_event batch[BATCH];
static int batch_count;

int loop_start(void)
{
	epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	return epoll_fd < 0 ? -errno : 0;
}

int loop_add(struct watch *watch)
{
	struct epoll_event event = { .events = watch->events, .data.ptr = watch };

	return epoll_ctl(epoll_fd, EPOLL_CTL_ADD, watch->fd, &event) < 0 ? -errno : 0;
}

int loop_change(struct watch *watch, uint32_t events)
{
	struct epoll_event event = { .events = events, .data.ptr = watch };

	if (watch->events == events)
		return 0;
	watch->events = events;
	return epoll_ctl(epoll_fd, EPOLL_CTL_MOD, watch->fd, &event) < 0 ? -errno : 0;
}

void loop_remove(struct watch *watch)
{
	int i;

	epoll_ctl(epoll_fd, EPOLL_CTL_DEL, watch->fd, NULL);
	for (i = 0; i < batch_count; i++) /* it may be freed before its turn in this batch comes */
		if (batch[i].data.ptr == watch)
			batch[i].data.ptr = NULL;
}

static uint64_t now_us(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000 + (uint64_t)now.tv_nsec / 1000;
}

struct loop_figures loop_figures;

void loop_wait(int timeout_ms)
{
	static uint64_t began_us;
	const uint64_t ended_us = now_us();
	int i, count;

	if (began_us != 0 && ended_us - began_us > loop_figures.longest_turn_us)
		loop_figures.longest_turn_us = ended_us - began_us;
	count = epoll_wait(epoll_fd, batch, BATCH, timeout_ms);
	began_us = now_us();
	batch_count = count > 0 ? count : 0;
	for (i = 0; i < batch_count; i++) {
		struct watch *watch = batch[i].data.ptr;

		if (watch != NULL)
			watch->ready(watch, batch[i].events);
	}
	batch_count = 0;
}

/* The kernel gives out the lowest number, so a high one tells that few are left. */
bool loop_keeps_descriptors(int fd)
{
	struct rlimit limit;
	rlim_t kept;

	if (getrlimit(RLIMIT_NOFILE, &limit) < 0)
		return true;
	kept = limit.rlim_cur / KEPT_PART;
	kept = kept < KEPT_LEAST ? KEPT_LEAST : kept > KEPT_MOST ? KEPT_MOST : kept;
	return (rlim_t)fd + kept < limit.rlim_cur;
}

uint64_t loop_now_ms(void)
{
	return now_us() / 1000;
}

static bool in_file;

void log_to_file(void)
{
	in_file = true;
}

void log_bound(void)
{
	struct stat status;

	if (in_file && fstat(STDERR_FILENO, &status) == 0 && status.st_size > LOG_SIZE && ftruncate(STDERR_FILENO, 0) < 0)
		in_file = false;
}

static void write_line(const char *line)
{
	char when[32] = "";
	const time_t now = time(NULL);
	struct tm parts;

	log_bound();
	if (in_file && gmtime_r(&now, &parts) != NULL)
		strftime(when, sizeof(when), "%Y-%m-%dT%H:%M:%SZ ", &parts);
	if (in_file)
		fprintf(stderr, "%ssctpd[%d]: %s\n", when, (int)getpid(), line);
	else
		fprintf(stderr, "sctpd: %s\n", line);
}

void log_line(const char *format, ...)
{
	static uint64_t since_ms;
	static int lines;
	char line[512];
	va_list arguments;

	if (loop_now_ms() - since_ms >= LOG_MS || since_ms == 0) {
		if (lines > LOG_LINES) {
			snprintf(line, sizeof(line), "%d lines were left out", lines - LOG_LINES);
			write_line(line);
		}
		since_ms = loop_now_ms();
		lines = 0;
	}
	if (++lines > LOG_LINES)
		return;
	va_start(arguments, format);
	vsnprintf(line, sizeof(line), format, arguments);
	va_end(arguments);
	write_line(line);
}
