/* address.c - from an address to a listening socket.
 *
 * The hub refuses to listen beyond this machine without TLS. So the name is resolved first, and
 * no socket is bound before all its addresses were found to be allowed. Begin reading at
 * dl_address_listen. */
#include "hub/address.h"

#include "store/http/tcp_pacing.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* Return true for 127.0.0.0/8 and ::1. "::ffff:127.0.0.1" does not count; the caller then asks
 * for TLS, which is the safe side. */
static bool is_loopback(const struct sockaddr *address)
{
    if (address->sa_family == AF_INET) {
        const struct sockaddr_in *in = (const struct sockaddr_in *)(const void *)address;
        return ntohl(in->sin_addr.s_addr) >> 24 == 127;
    }
    const struct sockaddr_in6 *in6 = (const struct sockaddr_in6 *)(const void *)address;
    return address->sa_family == AF_INET6 && IN6_IS_ADDR_LOOPBACK(&in6->sin6_addr);
}

/* Return a socket that is bound to `a`, listens and does not block, or -1 with errno set. Pacing
 * is set on the listening socket because accepted connections inherit it. */
static int open_socket(const struct addrinfo *a)
{
    int on = 1, off = 0;
    int fd = socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0) return -1;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on); /* a restart need not wait */
    if (is_loopback(a->ai_addr))                              /* and so do its connections */
        dl_line_unpace(fd);
    else
        dl_line_pace(fd);
    /* One IPv6 socket for "::" serves IPv4 clients too, whatever the system's default is. */
    if (a->ai_family == AF_INET6) setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
    if (bind(fd, a->ai_addr, a->ai_addrlen) == 0 && listen(fd, SOMAXCONN) == 0) return fd;
    int error = errno;
    close(fd);
    errno = error;
    return -1;
}

/* Replace port 0 by the number that the system chose. The port stays as it is where the socket
 * cannot be asked. */
static void read_port(int fd, dl_address *address)
{
    struct sockaddr_storage bound;
    socklen_t len = sizeof bound;
    if (getsockname(fd, (struct sockaddr *)&bound, &len)) return;
    unsigned port = bound.ss_family == AF_INET6
                        ? ntohs(((const struct sockaddr_in6 *)(const void *)&bound)->sin6_port)
                        : ntohs(((const struct sockaddr_in *)(const void *)&bound)->sin_port);
    snprintf(address->port, sizeof address->port, "%u", port);
}

/* Return true if every address of the name is this machine's. One other address is enough to
 * reach the hub from outside. */
static bool all_loopback(const struct addrinfo *all)
{
    for (const struct addrinfo *a = all; a; a = a->ai_next)
        if (!is_loopback(a->ai_addr)) return false;
    return true;
}

/* Bind the first address of `host` that can be bound. Returns DILOCO_EREFUSED if the host can be
 * reached from other machines and `anywhere` is false. Nothing is bound then. */
static diloco_status listen_on(int *fd, const char *host, const char *port, bool *loopback,
                               bool anywhere)
{
    const struct addrinfo hints = {
        .ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE};
    struct addrinfo *all;
    int failed = getaddrinfo(host, port, &hints, &all), error = 0;
    if (failed) return dl_fail(DILOCO_EINVAL, "listen on %s: %s", host, gai_strerror(failed));
    *fd = -1;
    *loopback = all_loopback(all);
    bool may = *loopback || anywhere;
    for (const struct addrinfo *a = all; a && may && *fd < 0; a = a->ai_next) {
        *fd = open_socket(a);
        error = errno;
    }
    freeaddrinfo(all);
    if (!may)
        return dl_fail(DILOCO_EREFUSED,
                       "%s can be reached from other machines: give --cert and --key (diloco serve "
                       "--make-cert makes them), or --insecure",
                       host);
    return *fd >= 0 ? DILOCO_OK
                    : dl_fail(DILOCO_EIO, "listen on %s:%s: %s", host, port, strerror(error));
}

/* Everywhere is "::", which takes IPv4 too; where there is no IPv6, 0.0.0.0. */
diloco_status dl_address_listen(int *fd, dl_address *address, bool *loopback, bool anywhere)
{
    const char *host = address->host[0] ? address->host : "::";
    diloco_status status = listen_on(fd, host, address->port, loopback, anywhere);
    if (status && status != DILOCO_EREFUSED && !address->host[0])
        status = listen_on(fd, "0.0.0.0", address->port, loopback, anywhere);
    if (!status) read_port(*fd, address);
    return status;
}
