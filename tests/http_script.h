/* http_script.h - a server on loopback that answers the k-th request with the k-th line of
 * a script, for any client: it records the client's requests. Header only.
 *
 * An answer is the raw bytes. After a leading '!' the connection is closed after them (so a
 * body can be cut), "!" alone closes without a word; "?" never answers. After '=' and four digits
 * there are as many bytes, which may be zero. Past the end of the
 * script every request gets a 500. One thread over poll(2). */
#ifndef DL_TESTS_HTTP_SCRIPT_H
#define DL_TESTS_HTTP_SCRIPT_H

#include "check.h"

#include <arpa/inet.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>

enum { SCRIPT_REQUESTS = 64, SCRIPT_REQUEST_BYTES = 2 << 20, SCRIPT_PEERS = 32 };

typedef struct http_script {
    const char *const *responses;
    size_t n_responses;
    int listener, port;
    pthread_t thread;
    atomic_bool stop;
    atomic_size_t n_requests, n_connections;
    char *requests[SCRIPT_REQUESTS]; /* whole, as they came, each a C string */

    struct pollfd fds[SCRIPT_PEERS + 1];
    size_t n_fds;
    char *partial[SCRIPT_PEERS + 1]; /* the received part of a connection's next request */
    size_t have[SCRIPT_PEERS + 1];
} http_script;

/* Bytes of the first request in a zero-terminated buffer; 0: not all there yet. */
static inline size_t script_request_len(const char *text, size_t have)
{
    const char *end = strstr(text, "\r\n\r\n");
    if (!end) return 0;
    size_t head = (size_t)(end - text) + 4, body = 0;
    for (const char *line = text; line < end; line = strstr(line, "\r\n") + 2)
        if (!strncasecmp(line, "Content-Length:", 15)) body = strtoul(line + 15, NULL, 10);
    return have >= head + body ? head + body : 0;
}

static inline void script_hang_up(http_script *s, size_t i)
{
    close(s->fds[i].fd);
    free(s->partial[i]);
    s->n_fds--;
    s->fds[i] = s->fds[s->n_fds];
    s->partial[i] = s->partial[s->n_fds];
    s->have[i] = s->have[s->n_fds];
}

/* false: the connection is gone. */
static inline bool script_answer(http_script *s, size_t i)
{
    size_t k = atomic_load(&s->n_requests) - 1;
    const char *answer = k < s->n_responses
                             ? s->responses[k]
                             : "HTTP/1.1 500 Off the script\r\nContent-Length: 0\r\n\r\n";
    bool cut = *answer == '!';
    if (*answer == '?') return true;
    size_t left = strlen(answer);
    if (cut) answer++, left--;
    if (*answer == '=') {
        const char digits[5] = {answer[1], answer[2], answer[3], answer[4]};
        left = strtoul(digits, NULL, 10);
        answer += 5;
    }
    while (left > 0) {
        ssize_t n = send(s->fds[i].fd, answer, left, MSG_NOSIGNAL);
        if (n <= 0) break;
        answer += n;
        left -= (size_t)n;
    }
    if (cut) script_hang_up(s, i);
    return !cut;
}

static inline void script_read(http_script *s, size_t i)
{
    ssize_t n =
        recv(s->fds[i].fd, s->partial[i] + s->have[i], SCRIPT_REQUEST_BYTES - 1 - s->have[i], 0);
    if (n <= 0) {
        script_hang_up(s, i);
        return;
    }
    s->have[i] += (size_t)n;
    for (size_t len; (len = script_request_len(s->partial[i], s->have[i]));) {
        size_t k = atomic_load(&s->n_requests);
        if (k < SCRIPT_REQUESTS) s->requests[k] = strndup(s->partial[i], len);
        memmove(s->partial[i], s->partial[i] + len, s->have[i] - len);
        s->have[i] -= len;
        s->partial[i][s->have[i]] = '\0';
        memset(s->partial[i] + s->have[i], 0, SCRIPT_REQUEST_BYTES - s->have[i]);
        atomic_fetch_add(&s->n_requests, 1);
        if (!script_answer(s, i)) return;
    }
}

static inline void script_accept(http_script *s)
{
    int fd = accept(s->listener, NULL, NULL);
    if (fd < 0) return;
    if (s->n_fds > SCRIPT_PEERS) {
        close(fd);
        return;
    }
    s->fds[s->n_fds] = (struct pollfd){.fd = fd, .events = POLLIN};
    s->partial[s->n_fds] = calloc(1, SCRIPT_REQUEST_BYTES);
    s->have[s->n_fds] = 0;
    s->n_fds++;
    atomic_fetch_add(&s->n_connections, 1);
}

static inline void *script_serve(void *context)
{
    http_script *s = context;
    while (!atomic_load(&s->stop)) {
        if (poll(s->fds, s->n_fds, 20) <= 0) continue;
        for (size_t i = s->n_fds; i-- > 1;)
            if (s->fds[i].revents) script_read(s, i);
        if (s->fds[0].revents) script_accept(s);
    }
    while (s->n_fds > 1)
        script_hang_up(s, s->n_fds - 1);
    return NULL;
}

static inline void script_start(http_script *s, const char *const *responses, size_t n)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof at;
    *s = (http_script){.responses = responses, .n_responses = n};
    s->listener = socket(AF_INET, SOCK_STREAM, 0);
    CHECK(s->listener >= 0);
    CHECK_INT(0, bind(s->listener, (struct sockaddr *)&at, sizeof at));
    CHECK_INT(0, listen(s->listener, 16));
    CHECK_INT(0, getsockname(s->listener, (struct sockaddr *)&at, &len));
    s->port = ntohs(at.sin_port);
    s->fds[0] = (struct pollfd){.fd = s->listener, .events = POLLIN};
    s->n_fds = 1;
    CHECK_INT(0, pthread_create(&s->thread, NULL, script_serve, s));
}

static inline void script_stop(http_script *s)
{
    atomic_store(&s->stop, true);
    pthread_join(s->thread, NULL);
    close(s->listener);
    for (size_t i = 0; i < SCRIPT_REQUESTS; i++)
        free(s->requests[i]);
}

#endif
