/* A sensor in C99 for POSIX: publishes each line that it reads, a number as a number.
 *
 *   cc -std=c99 -Wall -Wextra -pedantic -o sensor sensor.c
 *   read_my_sensor | ./sensor [-i ADDRESS] [-g GROUP] [-p PORT] [-t TTL] TOPIC
 *
 * -i names the interface by its address; without it the system's route decides. Text is UTF-8.
 */
#define _DEFAULT_SOURCE 1 /* for the options of multicast */
#define _POSIX_C_SOURCE 200809L
#include <arpa/inet.h>
#include <math.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { DATAGRAM_MAX = 1400, LINE_MAX_BYTES = 4096 };

/* Append text as a JSON string; returns the new length, or more than DATAGRAM_MAX if it does not fit. */
static size_t put_text(char *out, size_t length, const char *text)
{
    char piece[8];
    length += (size_t)snprintf(out + length, 2, "\"");
    for (; *text != '\0'; text++) {
        unsigned char c = (unsigned char)*text;
        if (c == '"' || c == '\\')
            snprintf(piece, sizeof piece, "\\%c", c);
        else if (c < 0x20 || c == 0x7f)
            snprintf(piece, sizeof piece, "\\u%04x", c);
        else
            snprintf(piece, sizeof piece, "%c", c);
        if (length + strlen(piece) + 2 > DATAGRAM_MAX)
            return DATAGRAM_MAX + 1;
        strcpy(out + length, piece);
        length += strlen(piece);
    }
    strcpy(out + length, "\"");
    return length + 1;
}

/* The datagram for a line: {"topic":…,"payload":…}; 0 if it does not fit. */
static size_t make_datagram(char out[DATAGRAM_MAX + 64], const char *topic, const char *line)
{
    char *end;
    double number = strtod(line, &end);
    size_t length = (size_t)sprintf(out, "{\"topic\":");
    length = put_text(out, length, topic);
    if (length > DATAGRAM_MAX)
        return 0;
    length += (size_t)sprintf(out + length, ",\"payload\":");
    /* Written anew, since C also takes numbers that JSON does not: 0x10, .5, inf. */
    if (end != line && *end == '\0' && isfinite(number)) {
        int digits = 15; /* as few as tell this number from all others */
        while (snprintf(out + length, 32, "%.*g", digits, number) < 32 && digits < 17
               && strtod(out + length, NULL) != number)
            digits++;
        length += strlen(out + length);
    } else
        length = put_text(out, length, line);
    if (length + 1 > DATAGRAM_MAX)
        return 0;
    strcpy(out + length, "}");
    return length + 1;
}

int main(int argc, char **argv)
{
    const char *group = "239.255.24.16", *interface = NULL;
    int port = 2416, option, sock;
    unsigned char ttl = 1;
    struct sockaddr_in to;
    struct in_addr by;
    static char line[LINE_MAX_BYTES], datagram[DATAGRAM_MAX + 64];

    while ((option = getopt(argc, argv, "i:g:p:t:")) != -1) {
        switch (option) {
        case 'i': interface = optarg; break;
        case 'g': group = optarg; break;
        case 'p': port = atoi(optarg); break;
        case 't': ttl = (unsigned char)atoi(optarg); break;
        default: return 2;
        }
    }
    memset(&to, 0, sizeof to);
    to.sin_family = AF_INET;
    to.sin_port = htons((unsigned short)port);
    if (optind + 1 != argc || port < 1 || port > 65535 || inet_pton(AF_INET, group, &to.sin_addr) != 1
        || (interface != NULL && inet_pton(AF_INET, interface, &by) != 1)) {
        fprintf(stderr, "usage: %s [-i ADDRESS] [-g GROUP] [-p PORT] [-t TTL] TOPIC\n", argv[0]);
        return 2;
    }
    sock = socket(AF_INET, SOCK_DGRAM, 0);
    if (sock < 0 || setsockopt(sock, IPPROTO_IP, IP_MULTICAST_TTL, &ttl, sizeof ttl) < 0
        || (interface != NULL && setsockopt(sock, IPPROTO_IP, IP_MULTICAST_IF, &by, sizeof by) < 0)) {
        perror("socket");
        return 1;
    }
    while (fgets(line, sizeof line, stdin) != NULL) {
        size_t length;
        if (strchr(line, '\n') == NULL && !feof(stdin)) { /* the rest of it is no line of its own */
            int c;
            while ((c = getchar()) != '\n' && c != EOF)
                continue;
            fprintf(stderr, "not sent: longer than a datagram\n");
            continue;
        }
        line[strcspn(line, "\r\n")] = '\0';
        if (line[0] == '\0')
            continue;
        length = make_datagram(datagram, argv[optind], line);
        if (length == 0)
            fprintf(stderr, "not sent: longer than a datagram\n");
        else if (sendto(sock, datagram, length, 0, (struct sockaddr *)&to, sizeof to) < 0)
            perror("not sent"); /* a network that is down comes back */
    }
    close(sock);
    return 0;
}
