/* What the kernel tells of a TCP connection that may have both of its ends in this process, or that has ended: its state, what waits to
 * be read, and how many bytes it has been given and has got. Nothing is taken out. SO_REUSEADDR is set, which
 * means nothing to a connected socket: when this process is killed, the new one can have the addresses again at once. That the peer has confirmed all
 * bytes would say that they have arrived, but the kernel may delay that for 40 ms.
 *
 * A record is a TcpHead and the bytes that wait. It is made in two steps, since other ends are noted later: `read_connection` for each
 * end, then `confirm_connection` for all (frames_moment.c). When an end has got as many bytes as the other one was given, and no more
 * wait there than were read, its record has all that had been sent.
 *
 * Not here: which ends belong together (ckpt.image.ipc.tcp_ends).
 */
#include "frames.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <stddef.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#ifndef SIOCOUTQ
#define SIOCOUTQ TIOCOUTQ
#endif
#ifndef POLLRDHUP
#define POLLRDHUP 0x2000
#endif
#define CONTENT_BYTES_MAX (1 << 20) /* a new connection takes in so much without a reader */
#define LOOPBACK_NET 127
#define TCP_INFO 11 /* of linux/tcp.h, which cannot be included beside the headers of the C library everywhere */
enum { ESTABLISHED = 1, SYN_SENT, SYN_RECV, FIN_WAIT1, FIN_WAIT2, TIME_WAIT, CLOSE, CLOSE_WAIT, LAST_ACK, LISTEN, CLOSING };

/* The beginning of struct tcp_info (linux/tcp.h), as far as it is used; bytes_sent and bytes_retrans since Linux 4.19. */
typedef struct {
    uint8_t state, unused[4], options;
    uint8_t more_unused[114];
    uint64_t bytes_acked, bytes_received;
    uint8_t segments[8];
    uint32_t notsent_bytes;
    uint8_t rates[52];
    uint64_t bytes_sent, bytes_retrans;
} TcpInfo;
_Static_assert(offsetof(TcpInfo, bytes_received) == 128 && offsetof(TcpInfo, notsent_bytes) == 144 &&
                   offsetof(TcpInfo, bytes_sent) == 200,
               "struct tcp_info");

/* The address without its port, as one of IPv6. Returns 0: it has none. */
static int address_of(int fd, int is_peer, struct in6_addr *address)
{
    struct sockaddr_storage name;
    socklen_t bytes = sizeof name;
    int failed = is_peer ? getpeername(fd, (struct sockaddr *)&name, &bytes) : getsockname(fd, (struct sockaddr *)&name, &bytes);
    if (failed || (name.ss_family != AF_INET && name.ss_family != AF_INET6))
        return 0;
    if (name.ss_family == AF_INET6)
        *address = ((struct sockaddr_in6 *)&name)->sin6_addr;
    else {
        memset(address, 0, sizeof *address);
        address->s6_addr[10] = address->s6_addr[11] = 0xff;
        memcpy(address->s6_addr + 12, &((struct sockaddr_in *)&name)->sin_addr, 4);
    }
    return 1;
}

/* Is the peer on this host: has it the same address, or one of the loopback interface? */
static int is_local(int fd)
{
    struct in6_addr own, peer;
    if (!address_of(fd, 0, &own) || !address_of(fd, 1, &peer))
        return 0;
    return !memcmp(&own, &peer, sizeof own) || (IN6_IS_ADDR_V4MAPPED(&peer) && peer.s6_addr[12] == LOOPBACK_NET);
}

static int state_of(int fd, TcpInfo *info)
{
    int domain = 0, type = 0;
    socklen_t bytes = sizeof domain, type_bytes = sizeof type, info_bytes = sizeof *info;
    memset(info, 0, sizeof *info);
    if (getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &bytes) < 0 || (domain != AF_INET && domain != AF_INET6) ||
        getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &type_bytes) < 0 || type != SOCK_STREAM ||
        getsockopt(fd, IPPROTO_TCP, TCP_INFO, info, &info_bytes) < 0)
        return -1;
    if (info_bytes < sizeof *info)
        info->bytes_sent = UINT64_MAX;
    return info->state;
}

/* How many bytes the program has given to this end, FIN included; UINT64_MAX: that is not known. bytes_sent counts what is sent again as
 * well, which happens within a host, too: when two small segments wait for a delayed ACK, the tail loss probe (RFC 8985) sends the last one
 * again. What was to be sent again and could not, for want of memory, is in bytes_retrans and not in bytes_sent. So the difference is
 * believed only where it is what was acknowledged (with SYN, at the end that made the connection) and what was not. */
static uint64_t given_to(const TcpInfo *info, uint32_t unacknowledged)
{
    int has_shut = info->state == FIN_WAIT1 || info->state == FIN_WAIT2 || info->state == CLOSING || info->state == LAST_ACK;
    if (info->bytes_sent == UINT64_MAX || unacknowledged == UINT32_MAX)
        return UINT64_MAX;
    uint64_t given = info->bytes_sent - info->bytes_retrans + info->notsent_bytes + (uint64_t)has_shut;
    uint64_t others = info->bytes_acked + unacknowledged - given;
    return !info->bytes_retrans || others <= 1 ? given : UINT64_MAX;
}

/* Options of TCP have been agreed upon with the peer of a connection, and never with that of one that was refused. */
static int has_ended(const TcpInfo *info, int events)
{
    return info->state == CLOSE && (events & POLLRDHUP) && info->options;
}

/* The record of one end, in raw memory. NULL with `*bytes` 0: it is no such connection; with -1: no memory. */
char *read_connection(int fd, ssize_t *bytes)
{
    TcpInfo info;
    struct pollfd about = {.fd = fd, .events = POLLIN | POLLPRI | POLLRDHUP};
    int state = state_of(fd, &info), count = 0;
    *bytes = 0;
    if (state <= 0 || state == LISTEN || state == SYN_SENT || state == SYN_RECV || poll(&about, 1, 0) < 0)
        return NULL;
    if (!has_ended(&info, about.revents) && (state == CLOSE || !is_local(fd)))
        return NULL;
    TcpHead head = {.state = (uint8_t)state, .events = (uint16_t)about.revents};
    head.is_unread = ioctl(fd, FIONREAD, &count) < 0 || count > CONTENT_BYTES_MAX;
    if (head.is_unread)
        count = 0;
    char *record = PyMem_RawMalloc(sizeof head + (size_t)count);
    if (record == NULL) {
        *bytes = -1;
        return NULL;
    }
    if (count > 0 && recv(fd, record + sizeof head, (size_t)count, MSG_PEEK | MSG_DONTWAIT) != count) {
        head.is_unread = 1;
        count = 0;
    }
    memcpy(record, &head, sizeof head);
    *bytes = (ssize_t)sizeof head + count;
    return record;
}

/* Has the connection ended in both directions? What it had still to send is lost. */
int is_over(const TcpHead *head)
{
    return head->state == CLOSE;
}

/* First for each end with `is_last` 0, then for each with 1. `content_bytes`: of its record, without the head. */
void confirm_connection(int fd, TcpHead *head, size_t content_bytes, int is_last)
{
    TcpInfo info;
    int count = 0, on = 1, state = state_of(fd, &info);
    if (is_last) {
        if (state != head->state || ioctl(fd, FIONREAD, &count) < 0 || (size_t)count != content_bytes)
            head->is_unread = 1;
        head->received_bytes = info.bytes_received;
        return;
    }
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    head->unacknowledged = ioctl(fd, SIOCOUTQ, &count) < 0 ? UINT32_MAX : (uint32_t)count;
    head->given_bytes = given_to(&info, head->unacknowledged);
}
