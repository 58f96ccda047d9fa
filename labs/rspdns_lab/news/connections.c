/* Opens connections by the thousand, each when it is due, and tells what came on them and when.
 *
 *     connections ADDRESS < jobs > outcomes         # until SIGTERM, or the end of the jobs
 *
 * A job is a line, `NAME PORT COUNT DUE_US PATIENCE_US STREAM LENGTH`, and LENGTH bytes: at DUE_US (CLOCK_MONOTONIC) COUNT connections
 * are opened, and the bytes are sent on each of them. An outcome is a line, `NAME LATE_US GROUPS`, and for each group a line,
 * `ERRNO COUNT LENGTH`, COUNT times (int64_t, us) and LENGTH bytes: as many connections were told these bytes at these times, or
 * failed with ERRNO. A connection ends with the server's end; the pieces between empty lines are told one by one if STREAM is 1.
 *
 * LATE_US: neither were the connections opened later after DUE_US than that, nor was a piece read later after it came. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/queue.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { EVENTS = 4096, PIECE = 64 * 1024, MOST_INPUT = 1024 * 1024, MOST_WAIT_MS = 10, LOOK_FOR_LATE_US = 100000 };

struct group {
    int problem;
    size_t length, count, room;
    char *bytes;
    int64_t *at_us;
    SLIST_ENTRY(group) next;
};

struct connection {
    int fd;
    struct job *job;
    size_t sent, length, room;
    char *bytes;
};

struct job {
    int name, port, count, open, is_stream;
    int64_t due_us, until_us, late_us;
    size_t length;
    char *line;
    struct connection *connections;
    SLIST_HEAD(, group) groups;
    TAILQ_ENTRY(job) next;
};

TAILQ_HEAD(jobs, job);
static struct jobs waiting = TAILQ_HEAD_INITIALIZER(waiting), running = TAILQ_HEAD_INITIALIZER(running), over = TAILQ_HEAD_INITIALIZER(over);
static struct sockaddr_in server = {.sin_family = AF_INET};
static int poll_fd;
static volatile sig_atomic_t is_ended;
static int64_t looked_us; /* all that came before it is read */

static void die(const char *what)
{
    fprintf(stderr, "connections: %s: %s\n", what, strerror(errno));
    exit(2);
}

static void *grown(void *old, size_t bytes)
{
    void *room = realloc(old, bytes ? bytes : 1);
    if (!room)
        die("memory");
    return room;
}

static int64_t now_us(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * INT64_C(1000000) + now.tv_nsec / 1000;
}

static void note_late(struct job *job, int64_t late_us)
{
    if (late_us > job->late_us)
        job->late_us = late_us;
}

/* Counts a connection that was told these bytes, or failed. */
static void tell(struct job *job, int problem, const char *bytes, size_t length)
{
    int64_t at_us = now_us();
    struct group *group;
    SLIST_FOREACH(group, &job->groups, next)
        if (group->problem == problem && group->length == length && !memcmp(group->bytes, bytes, length))
            break;
    if (!group) {
        group = grown(NULL, sizeof *group);
        *group = (struct group){.problem = problem, .length = length, .bytes = grown(NULL, length)};
        memcpy(group->bytes, bytes, length);
        SLIST_INSERT_HEAD(&job->groups, group, next);
    }
    if (group->count == group->room) {
        group->room = group->room ? 2 * group->room : 8;
        group->at_us = grown(group->at_us, group->room * sizeof *group->at_us);
    }
    group->at_us[group->count++] = at_us;
    if (!problem)
        note_late(job, at_us - looked_us);
}

static void finish(struct connection *connection, int problem)
{
    struct job *job = connection->job;
    if (!job->is_stream || problem)
        tell(job, problem, connection->bytes ? connection->bytes : "", problem ? 0 : connection->length);
    if (connection->fd >= 0 && problem != ECONNREFUSED) { /* reset: no end keeps the connection (TIME_WAIT) */
        struct linger at_once = {.l_onoff = 1};
        setsockopt(connection->fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
    }
    if (connection->fd >= 0)
        close(connection->fd);
    connection->fd = -1;
    free(connection->bytes);
    connection->bytes = NULL;
    if (!--job->open) {
        TAILQ_REMOVE(&running, job, next);
        TAILQ_INSERT_TAIL(&over, job, next);
    }
}

static void tell_pieces(struct connection *connection)
{
    char *end;
    while ((end = memmem(connection->bytes, connection->length, "\n\n", 2))) {
        size_t length = (size_t)(end - connection->bytes);
        tell(connection->job, 0, connection->bytes, length);
        connection->length -= length + 2;
        memmove(connection->bytes, end + 2, connection->length);
    }
}

/* Sends and reads until nothing more can be done now. */
static void proceed(struct connection *connection)
{
    static char piece[PIECE];
    struct job *job = connection->job;
    while (connection->sent < job->length) {
        ssize_t sent = send(connection->fd, job->line + connection->sent, job->length - connection->sent, MSG_NOSIGNAL);
        if (sent < 0 && errno == EAGAIN)
            return;
        if (sent < 0 && errno == EPIPE)
            break; /* the server has answered already */
        if (sent < 0) {
            finish(connection, errno);
            return;
        }
        connection->sent += (size_t)sent;
    }
    for (;;) {
        ssize_t got = recv(connection->fd, piece, sizeof piece, 0);
        if (got < 0 && errno == EAGAIN)
            return;
        if (got <= 0) {
            finish(connection, got < 0 ? errno : job->is_stream ? ECONNRESET : 0);
            return;
        }
        size_t length = connection->length + (size_t)got;
        if (length > connection->room) {
            connection->room = length;
            connection->bytes = grown(connection->bytes, length);
        }
        memcpy(connection->bytes + connection->length, piece, (size_t)got);
        connection->length = length;
        if (job->is_stream)
            tell_pieces(connection);
    }
}

static void begin(struct job *job)
{
    TAILQ_REMOVE(&waiting, job, next);
    TAILQ_INSERT_TAIL(&running, job, next);
    server.sin_port = htons((uint16_t)job->port);
    job->connections = grown(NULL, (size_t)job->count * sizeof *job->connections);
    job->open = job->count;
    for (int number = 0; number < job->count; number++) {
        struct connection *connection = &job->connections[number];
        *connection = (struct connection){.fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0), .job = job};
        if (connection->fd < 0 || (connect(connection->fd, (struct sockaddr *)&server, sizeof server) && errno != EINPROGRESS))
            finish(connection, errno);
    }
    job->until_us += now_us();
    note_late(job, now_us() - job->due_us);
    for (int number = 0; number < job->count; number++) {
        struct connection *connection = &job->connections[number];
        if (connection->fd >= 0)
            proceed(connection); /* most often it was refused meanwhile */
        struct epoll_event event = {.events = EPOLLIN | EPOLLOUT | EPOLLET, .data.ptr = connection};
        if (connection->fd >= 0 && epoll_ctl(poll_fd, EPOLL_CTL_ADD, connection->fd, &event))
            die("epoll");
    }
}

static void finish_all(struct job *job, int problem)
{
    for (int number = 0; number < job->count; number++)
        if (job->connections[number].fd >= 0)
            finish(&job->connections[number], problem);
}

/* Ends the jobs that are not over in time; the last time all of them. */
static void lose_patience(int64_t now, int is_last)
{
    static int64_t next_us;
    if (now < next_us && !is_last)
        return;
    next_us = now + LOOK_FOR_LATE_US;
    for (struct job *job = TAILQ_FIRST(&running), *next; job; job = next) {
        next = TAILQ_NEXT(job, next);
        if (now > job->until_us || is_last)
            finish_all(job, is_last ? ECANCELED : ETIMEDOUT);
    }
}

static void write_outcome(struct job *job)
{
    struct group *group;
    int groups = 0;
    SLIST_FOREACH(group, &job->groups, next)
        groups++;
    printf("%d %" PRId64 " %d\n", job->name, job->late_us, groups);
    while ((group = SLIST_FIRST(&job->groups))) {
        printf("%d %zu %zu\n", group->problem, group->count, group->length);
        fwrite(group->at_us, sizeof *group->at_us, group->count, stdout);
        fwrite(group->bytes, 1, group->length, stdout);
        SLIST_REMOVE_HEAD(&job->groups, next);
        free(group->at_us);
        free(group->bytes);
        free(group);
    }
}

static void empty(struct jobs *jobs, int is_written)
{
    struct job *job;
    while ((job = TAILQ_FIRST(jobs))) {
        TAILQ_REMOVE(jobs, job, next);
        if (is_written)
            write_outcome(job);
        free(job->connections);
        free(job->line);
        free(job);
    }
    if (fflush(stdout))
        die("output");
}

static void add(struct job *job)
{
    struct job *before = TAILQ_LAST(&waiting, jobs);
    while (before && before->due_us > job->due_us)
        before = TAILQ_PREV(before, jobs, next);
    if (before)
        TAILQ_INSERT_AFTER(&waiting, before, job, next);
    else
        TAILQ_INSERT_HEAD(&waiting, job, next);
}

/* Reads jobs; returns whether there may be more. */
static int read_jobs(void)
{
    static char input[MOST_INPUT + 1];
    static size_t length;
    for (;;) {
        ssize_t got = read(STDIN_FILENO, input + length, MOST_INPUT - length);
        if (got < 0 && errno == EAGAIN)
            return 1;
        if (got <= 0)
            return 0;
        length += (size_t)got;
        input[length] = 0;
        size_t used = 0;
        char *end;
        while ((end = memchr(input + used, '\n', length - used))) {
            struct job job = {0};
            if (sscanf(input + used, "%d %d %d %" SCNd64 " %" SCNd64 " %d %zu", &job.name, &job.port, &job.count, &job.due_us,
                       &job.until_us, &job.is_stream, &job.length) != 7 || job.count < 1 || job.length > MOST_INPUT / 2)
                errno = EBADMSG, die("a job");
            if (length - (size_t)(end + 1 - input) < job.length)
                break;
            job.line = memcpy(grown(NULL, job.length), end + 1, job.length);
            used = (size_t)(end + 1 - input) + job.length;
            add(memcpy(grown(NULL, sizeof job), &job, sizeof job));
        }
        memmove(input, input + used, length - used);
        length -= used;
    }
}

static void end(int number)
{
    is_ended = number;
}

int main(int count, char **words)
{
    static struct epoll_event ready[EVENTS];
    poll_fd = epoll_create1(EPOLL_CLOEXEC);
    struct epoll_event input = {.events = EPOLLIN};
    if (count != 2 || inet_pton(AF_INET, words[1], &server.sin_addr) != 1)
        errno = EINVAL, die("usage: connections ADDRESS");
    if (fcntl(STDIN_FILENO, F_SETFL, O_NONBLOCK) || epoll_ctl(poll_fd, EPOLL_CTL_ADD, STDIN_FILENO, &input))
        die("input");
    signal(SIGTERM, end);
    looked_us = now_us();
    while (!is_ended) {
        struct job *job = TAILQ_FIRST(&waiting);
        int64_t wait_us = job ? job->due_us - now_us() : MOST_WAIT_MS * 1000;
        int wait_ms = wait_us <= 0 ? 0 : wait_us < MOST_WAIT_MS * 1000 ? (int)(wait_us + 999) / 1000 : MOST_WAIT_MS;
        int found = epoll_wait(poll_fd, ready, EVENTS, wait_ms);
        int64_t now = now_us();
        for (int number = 0; number < found; number++) {
            struct connection *connection = ready[number].data.ptr;
            if (connection && connection->fd >= 0)
                proceed(connection);
            else if (!connection && !read_jobs())
                is_ended = 1;
        }
        if (found < EVENTS)
            looked_us = now;
        if ((job = TAILQ_FIRST(&waiting)) && job->due_us <= now_us())
            begin(job);
        lose_patience(now, 0);
        empty(&over, 1);
    }
    close(STDIN_FILENO); /* or a writer of jobs could wait for ever, and read no outcomes */
    lose_patience(now_us(), 1);
    empty(&over, 1);
    empty(&waiting, 0);
    return 0;
}
