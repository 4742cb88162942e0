/* hub_fixture.h - a hub in this process, and a client that sends arbitrary bytes,
 * unlike a well-behaved one. Header only. */
#ifndef DL_TESTS_HUB_FIXTURE_H
#define DL_TESTS_HUB_FIXTURE_H

#include "base/file.h"
#include "hub/hub.h"

#include "check.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <ftw.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

/* <root>/hub is served; no client may touch the rest of <root>. */
typedef struct hub_fixture {
    dl_hub *hub;
    char root[300], dir[320];
    uint16_t port;
} hub_fixture;

static hub_fixture fixture;

#define PLAIN ((dl_hub_options){0})

static inline int fixture_remove(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
    (void)st, (void)type, (void)ftw;
    return remove(path);
}

static inline void fixture_write(const char *name, const char *text)
{
    char path[700];
    snprintf(path, sizeof path, "%s/%s", fixture.root, name);
    CHECK_OK(dl_file_write(path, &(dl_span){text, strlen(text)}, 1));
}

static inline void fixture_serve(dl_hub_options options)
{
    options.dir = fixture.dir;
    if (!options.listen) options.listen = "127.0.0.1:0";
    CHECK_OK(dl_hub_start(&fixture.hub, &options));
    fixture.port = (uint16_t)atoi(strrchr(dl_hub_url(fixture.hub), ':') + 1);
}

static inline void fixture_stop(void)
{
    dl_hub_stop(fixture.hub, dl_time_after(dl_clock_now(), DL_SECOND / 10), NULL);
    fixture.hub = NULL;
}

static inline int fixture_set_up(void **state)
{
    const char *tmp = getenv("TMPDIR");
    (void)state;
    snprintf(fixture.root, sizeof fixture.root, "%s/diloco-hub-XXXXXX", tmp && *tmp ? tmp : "/tmp");
    CHECK(mkdtemp(fixture.root) != NULL);
    snprintf(fixture.dir, sizeof fixture.dir, "%s/hub", fixture.root);
    fixture.hub = NULL;
    return 0;
}

static inline int fixture_tear_down(void **state)
{
    (void)state;
    if (fixture.hub) fixture_stop();
    return nftw(fixture.root, fixture_remove, 16, FTW_DEPTH | FTW_PHYS);
}

/* ---- the client */

static inline int client_open(void)
{
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(fixture.port)};
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    CHECK(fd >= 0);
    CHECK_INT(0, connect(fd, (struct sockaddr *)&to, sizeof to));
    return fd;
}

/* As much as the hub takes: it may have had enough. */
static inline void client_send(int fd, const void *bytes, size_t len)
{
    for (const char *at = bytes; len > 0;) {
        ssize_t n = send(fd, at, len, MSG_NOSIGNAL);
        if (n <= 0) return;
        at += n;
        len -= (size_t)n;
    }
}

static inline void client_send_text(int fd, const char *text)
{
    client_send(fd, text, strlen(text));
}

/* Has one answer been read whole? Only by its length; "100 Continue" is not an answer. */
static inline bool client_has_answer(const char *text, size_t len, bool head)
{
    const char *begin = text;
    while (!strncmp(begin, "HTTP/1.1 100", 12) && strstr(begin, "\r\n\r\n"))
        begin = strstr(begin, "\r\n\r\n") + 4;
    const char *end = strstr(begin, "\r\n\r\n"), *field = strstr(begin, "Content-Length: ");
    if (!end) return false;
    if (head || !strncmp(begin, "HTTP/1.1 204", 12)) return true;
    if (!field || field > end) return false;
    return len - (size_t)(end + 4 - text) >= strtoul(field + 16, NULL, 10);
}

/* The answer as text, up to its end, or all that comes until the connection ends; "" when it
 * ends without one. Valid until the next call. */
static inline const char *client_read(int fd, bool head)
{
    static char text[1 << 20];
    size_t len = 0;
    text[0] = '\0';
    while (len + 1 < sizeof text && !client_has_answer(text, len, head)) {
        struct pollfd poll_fd = {.fd = fd, .events = POLLIN};
        if (poll(&poll_fd, 1, 20000) <= 0) break;
        ssize_t n = recv(fd, text + len, sizeof text - 1 - len, 0);
        if (n <= 0) break;
        len += (size_t)n;
        text[len] = '\0';
    }
    return text;
}

static inline int status_of(const char *answer)
{
    const char *at = answer;
    while (!strncmp(at, "HTTP/1.1 100", 12) && strstr(at, "\r\n\r\n"))
        at = strstr(at, "\r\n\r\n") + 4;
    return strncmp(at, "HTTP/1.1 ", 9) ? 0 : atoi(at + 9);
}

/* The whole text of a request on a connection of its own; its answer. */
static inline const char *client_ask(const char *request)
{
    int fd = client_open();
    client_send_text(fd, request);
    const char *answer = client_read(fd, !strncmp(request, "HEAD ", 5));
    close(fd);
    return answer;
}

/* "<method> <target>", more headers (each with its "\r\n") and a body; the status. */
static inline int ask_with(const char *method_and_target, const char *headers, const char *body)
{
    static char request[1 << 20];
    int len = snprintf(request, sizeof request,
                       "%s HTTP/1.1\r\nHost: localhost\r\nContent-Length: %zu\r\n%s\r\n%s",
                       method_and_target, strlen(body), headers, body);
    CHECK(len > 0 && (size_t)len < sizeof request);
    return status_of(client_ask(request));
}

static inline int ask(const char *method_and_target)
{
    return ask_with(method_and_target, "", "");
}

static inline void make_run(void)
{
    CHECK_INT(201, ask("PUT /run"));
}

/* ---- files on the disk */

static inline size_t count_files(const char *folder)
{
    char path[700];
    size_t n = 0;
    snprintf(path, sizeof path, "%s/%s", fixture.root, folder);
    DIR *dir = opendir(path);
    for (struct dirent *d; dir && (d = readdir(dir));)
        n += strcmp(d->d_name, ".") && strcmp(d->d_name, "..");
    if (dir) closedir(dir);
    return n;
}

#define HUB_TEST(test)                                                                             \
    {                                                                                              \
#test, test, fixture_set_up, fixture_tear_down, NULL                                       \
    }

#endif
