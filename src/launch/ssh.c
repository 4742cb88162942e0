/* ssh.c - replicas as detached processes of machines that ssh reaches.
 *
 * The program is uploaded as DIR/bin/<SHA-256>/diloco. Before each use the other machine computes
 * its SHA-256 again, so that what is executed is what was sent. A program for another architecture
 * is refused before it is sent. Then `diloco host` there does what host.h describes. Requests go
 * through its stdin, so that neither machine's list of processes shows a secret.
 *
 * Rank r in generation g is started on host (r + g) mod n: a replica that was lost with its machine
 * is started on the next one.
 *
 * A call of an executor becomes one call of ssh for each host, one after the other. A host that
 * does not answer makes its jobs silent, and does not hold up the others. */
#include "launch/command.h"
#include "launch/executor_rows.h"
#include "launch/program.h"
#include "launch/remote.h"
#include "launch/ssh_script.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    HOSTS_MAX = 256,        /* of --on */
    HOST_BYTES = 160,       /* of one host with user and port: an id has room for them */
    REQUEST_MAX = 16 << 20, /* bytes of a request, and of a reply */
    DIGEST = DL_PROGRAM_DIGEST
};
/* ssh's own exit code when it could not connect. All others are those of the remote command. */
enum { SSH_FAILED = 255 };

/* A program of some MB over a slow link. */
#define UPLOAD_PATIENCE (600 * DL_SECOND)

/* ---- hosts: "alice@a,bob@b:2222,[2001:db8::1]" */

/* A host and the program on it. */
typedef struct place {
    char host[HOST_BYTES];   /* "alice@a" */
    char target[HOST_BYTES]; /* the same for ssh, which takes no brackets around an address */
    char port[8];            /* "" */
    char digest[DIGEST + 1]; /* of the program there */
} place;

/* Is this a host that may be an argument of ssh, and of the commands of its configuration? OpenSSH
 * itself refuses these characters since 9.6. Neither user nor host may begin with '-': ssh would
 * read an option. */
static bool is_host(const char *host)
{
    const char *at = strrchr(host, '@');
    for (const char *c = host; *c; c++)
        if ((unsigned char)*c <= ' ' || *c == 127) return false;
    return *host && host[0] != '-' && !(at && (!at[1] || at[1] == '-')) &&
           !strpbrk(host, "'`\"$;&<>|(){}[]");
}

/* Copy a host without the brackets around an IPv6 address. Returns false if there is an address
 * without brackets, or if the brackets hold no address. */
static bool read_target(char out[HOST_BYTES], const char *host)
{
    const char *at = strrchr(host, '@');
    const char *name = at ? at + 1 : host;
    const size_t len = strlen(name);
    const bool bracketed = name[0] == '[' && name[len - 1] == ']';
    const char *colon = strchr(name, ':');
    if (!colon != !bracketed) return false;
    snprintf(out, HOST_BYTES, "%.*s%.*s", (int)(name - host), host,
             (int)(len - (bracketed ? 2 : 0)), name + bracketed);
    return true;
}

/* Read one host up to the next comma. A colon within brackets belongs to an IPv6 address. */
static diloco_status read_place(place *out, const char *text)
{
    char all[HOST_BYTES];
    const size_t len = strcspn(text, ",");
    snprintf(all, sizeof all, "%.*s", (int)len, text);
    const char *bracket = strrchr(all, ']');
    char *colon = strrchr(bracket ? bracket : all, ':');
    *out = (place){.port = ""};
    if (colon) {
        snprintf(out->port, sizeof out->port, "%.5s", colon + 1);
        *colon = '\0';
    }
    snprintf(out->host, sizeof out->host, "%s", all);
    const bool bad_port =
        colon && (!*out->port || strspn(out->port, "0123456789") != strlen(out->port));
    if (len < HOST_BYTES && read_target(out->target, out->host) && is_host(out->target) &&
        !bad_port)
        return DILOCO_OK;
    return dl_fail(
        DILOCO_EINVAL,
        "ssh://%.*s: write each host as [USER@]HOST[:PORT], with brackets around an IPv6 "
        "address",
        (int)len, text);
}

/* The hosts of --on: one more than the commas. */
static size_t count_hosts(const char *on)
{
    size_t n = 1;
    for (; *on; on++)
        n += *on == ',';
    return n;
}

/* The id has the host, so a change of --on does not lose replicas. */
static void id_of(char out[DL_JOB_ID_MAX + 1], const place *p)
{
    snprintf(out, DL_JOB_ID_MAX + 1, "%.160s%s%s %s", p->host, *p->port ? ":" : "", p->port,
             p->digest);
}

/* Read an id. Returns false unless id_of would write this id: the digest becomes part of a command
 * on the host, so it has to be hex digits. */
static bool read_id(place *out, const char *id)
{
    char host[DL_JOB_ID_MAX + 1], again[DL_JOB_ID_MAX + 1];
    const size_t len = strcspn(id, " ");
    snprintf(host, sizeof host, "%.*s", (int)len, id);
    if (!id[len] || strspn(id + len + 1, "0123456789abcdef") != DIGEST || read_place(out, host))
        return false;
    snprintf(out->digest, sizeof out->digest, "%s", id + len + 1);
    id_of(again, out);
    return strcmp(id, again) == 0;
}

static bool is_id(const dl_job *job)
{
    place p;
    return read_id(&p, job->id);
}

/* The place of a job. A job that was started has host and program in its id, "alice@a:22
 * <SHA-256>", so that another list of hosts or another program does not lose it. Of a job that was
 * not, the host follows from its rank and generation, and the program is `digest`. */
static diloco_status place_of(place *out, const dl_launch_spec *spec, const dl_job *job,
                              const char *digest)
{
    const char *at = spec->on;
    if (*job->id)
        return read_id(out, job->id) ? DILOCO_OK
                                     : dl_fail(DILOCO_EPROTO, "%s: its id is invalid", job->name);
    for (size_t skip = (job->rank + job->generation) % count_hosts(at); skip; skip--)
        at = strchr(at, ',') + 1;
    DL_TRY(read_place(out, at));
    snprintf(out->digest, sizeof out->digest, "%s", digest);
    return DILOCO_OK;
}

/* ---- one call of ssh */

enum { ARGS_MAX = 24 };

/* Never ask a question, never accept an unknown host key, and notice a dead connection within 15
 * seconds. "--" keeps the host from being read as an option. */
static void ssh_args(const char *args[ARGS_MAX], const dl_launch_spec *spec, const place *p,
                     const char *script)
{
    static const char *const fixed[] = {"ssh",
                                        "-T",
                                        "-oBatchMode=yes",
                                        "-oStrictHostKeyChecking=yes",
                                        "-oConnectTimeout=10",
                                        "-oServerAliveInterval=5",
                                        "-oServerAliveCountMax=3"};
    size_t n = 0;
    for (; n < sizeof fixed / sizeof *fixed; n++)
        args[n] = fixed[n];
    if (spec->config->launch_ssh_config[0]) {
        args[n++] = "-F";
        args[n++] = spec->config->launch_ssh_config;
    }
    if (*p->port) {
        args[n++] = "-p";
        args[n++] = p->port;
    }
    args[n++] = "--";
    args[n++] = p->target;
    args[n++] = script;
    args[n] = NULL;
}

/* Is it an error that another try does not mend? ssh has one exit code for all, so its words
 * decide. */
static bool is_refusal(const char *err)
{
    return strstr(err, "Permission denied") || strstr(err, "Host key verification failed") ||
           strstr(err, "IDENTIFICATION HAS CHANGED") || strstr(err, "Could not resolve hostname");
}

/* The error of a call that did not end with 0. */
static diloco_status ssh_failed(const place *p, int code, const char *err)
{
    const char *last = strrchr(err, '\n');
    const char *line = last ? last + 1 : err;
    const char *advice = dl_program_pip_advice(err);
    if (code != SSH_FAILED)
        return dl_fail(*advice ? DILOCO_EREFUSED : DILOCO_EIO, "%s: %s%s", p->host, err, advice);
    if (is_refusal(err))
        return dl_fail(DILOCO_EREFUSED, "ssh to %s: %s; try  ssh %s%s%s%s true", p->host, line,
                       *p->port ? "-p " : "", p->port, *p->port ? " " : "", p->target);
    return dl_fail(DILOCO_EUNREACHABLE, "ssh to %s: %s", p->host,
                   *line ? line : "the connection was cut");
}

/* Run a script on the host, with `in` or the file in_fd as its stdin. The caller frees result->out
 * after success. An exit code other than 0 is an error. */
static diloco_status ssh(dl_command_result *result, const dl_launch_spec *spec, const place *p,
                         const char *script, const dl_buf *in, int in_fd)
{
    const char *args[ARGS_MAX];
    ssh_args(args, spec, p, script);
    const dl_command_run run = {.argv = args,
                                .in = in ? in->data : NULL,
                                .in_len = in ? in->len : 0,
                                .in_fd = in_fd,
                                .most = REQUEST_MAX,
                                .patience = in_fd ? UPLOAD_PATIENCE : 0};
    diloco_status status = dl_command_do(result, &run);
    if (status == DILOCO_ETIMEDOUT)
        return dl_fail(DILOCO_EUNREACHABLE, "ssh to %s: no answer in time", p->host);
    if (status || result->exit_code == 0) return status;
    status = ssh_failed(p, result->exit_code, result->err);
    dl_buf_deinit(&result->out);
    return status;
}

/* ---- the program */

/* The SHA-256 of spec->program. Returns DILOCO_EINVAL if it is neither a wheel nor an ELF file for
 * one of those machines. */
static diloco_status read_digest(char out[DIGEST + 1], const dl_launch_spec *spec)
{
    if (!dl_program_is_wheel(spec->program) && !dl_program_machine(spec->program))
        return dl_fail(DILOCO_EINVAL, "%s is no program for Linux that ssh:// can upload",
                       spec->program);
    return dl_program_digest(out, spec->program);
}

/* Compare the first line of DL_SSH_LOOK's output, of `uname -sm`, with the program's architecture.
 */
static diloco_status check_machine(const dl_launch_spec *spec, const place *p, const char *uname)
{
    char want[64], got[64];
    snprintf(want, sizeof want, "Linux %s", dl_program_machine(spec->program));
    snprintf(got, sizeof got, "%.*s", (int)strcspn(uname, "\n"), uname);
    if (strcmp(want, got) == 0) return DILOCO_OK;
    return dl_fail(DILOCO_EREFUSED,
                   "%s is a machine of %s, and the program is for %s: set launch.binary to a "
                   "diloco that was built for it",
                   p->host, got, want);
}

/* The file is the stdin of ssh. */
static diloco_status send_program(const dl_launch_spec *spec, const place *p)
{
    char script[DL_SSH_SCRIPT];
    dl_command_result result;
    DL_TRY(dl_ssh_script(script, DL_SSH_UPLOAD, spec, p->digest));
    const int fd = open(spec->program, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return dl_fail_errno(errno, "read", spec->program);
    const diloco_status status = ssh(&result, spec, p, script, NULL, fd);
    close(fd);
    if (!status) dl_buf_deinit(&result.out);
    return status;
}

/* *there: the program is on the host. Returns DILOCO_EREFUSED if it is for another machine. */
static diloco_status look_for_program(bool *there, const dl_launch_spec *spec, const place *p)
{
    char script[DL_SSH_SCRIPT];
    dl_command_result result;
    DL_TRY(dl_ssh_script(script, DL_SSH_LOOK, spec, p->digest));
    DL_TRY(ssh(&result, spec, p, script, NULL, 0));
    const char *said = dl_buf_str(&result.out);
    diloco_status status = said ? DILOCO_OK : dl_fail(DILOCO_ENOMEM, "out of memory for a reply");
    /* The name of a wheel for any machine has none: pip decides. */
    if (said && dl_program_machine(spec->program)) status = check_machine(spec, p, said);
    *there = said && strstr(said, "\nthere");
    dl_buf_deinit(&result.out);
    return status;
}

static diloco_status provide_program(const dl_launch_spec *spec, const place *p)
{
    bool there;
    DL_TRY(look_for_program(&there, spec, p));
    return there ? DILOCO_OK : send_program(spec, p);
}

/* ---- requests */

/* One request about n jobs of one host, and their states from the reply. Jobs without an answer are
 * marked silent. */
static diloco_status ask(const dl_launch_spec *spec, const place *p, const char *what, dl_job *jobs,
                         size_t n)
{
    char script[DL_SSH_SCRIPT];
    dl_buf request;
    dl_command_result result;
    for (size_t i = 0; i < n; i++)
        jobs[i].silent = true;
    DL_TRY(dl_ssh_script(script, DL_SSH_USE, spec, p->digest));
    dl_buf_init(&request, REQUEST_MAX);
    diloco_status status = dl_remote_request(&request, spec, what, jobs, n, false, false);
    if (!status) status = ssh(&result, spec, p, script, &request, 0);
    dl_buf_deinit(&request);
    if (status) return status;
    status = dl_remote_reply(jobs, n, result.out.data, result.out.len);
    dl_buf_deinit(&result.out);
    return status ? dl_fail_context(status, "%s", p->host) : DILOCO_OK;
}

/* For --dry-run: the three commands, and the request without secrets. */
static diloco_status print_requests(const dl_launch_spec *spec, const place *p, const dl_job *jobs,
                                    size_t n)
{
    const char *args[ARGS_MAX];
    char script[DL_SSH_SCRIPT];
    dl_buf line, request;
    diloco_status status = DILOCO_OK;
    dl_buf_init(&line, 1 << 20);
    dl_buf_init(&request, REQUEST_MAX);
    for (int kind = DL_SSH_LOOK; !status && kind <= DL_SSH_USE; kind++) {
        status = dl_ssh_script(script, (dl_ssh_script_kind)kind, spec, p->digest);
        ssh_args(args, spec, p, script);
        for (size_t i = 0; !status && args[i]; i++) {
            if (i) status = dl_buf_add(&line, " ", 1);
            if (!status) status = dl_shell_quote(&line, args[i]);
        }
        if (!status && kind == DL_SSH_UPLOAD) {
            status = dl_buf_add(&line, " <", 2);
            if (!status) status = dl_shell_quote(&line, spec->program);
        }
        if (!status) status = dl_buf_add(&line, "\n", 1);
    }
    if (!status) status = dl_remote_request(&request, spec, "start", jobs, n, false, true);
    if (!status)
        fprintf(spec->dry, "%.*s%.*s\n", (int)line.len, (const char *)line.data, (int)request.len,
                (const char *)request.data);
    dl_buf_deinit(&line);
    dl_buf_deinit(&request);
    return status;
}

/* ---- all hosts */

typedef diloco_status (*host_fn)(const dl_launch_spec *spec, const place *p, dl_job *jobs,
                                 size_t n);

static bool same_place(const place *a, const place *b)
{
    return strcmp(a->host, b->host) == 0 && strcmp(a->port, b->port) == 0 &&
           strcmp(a->digest, b->digest) == 0;
}

/* Move the later jobs of the host of jobs[first] next to it. Returns their number, with it. The
 * order changes, which callers allow: a job is found by its rank. */
static size_t gather(dl_job *jobs, place *places, size_t first, size_t n)
{
    size_t m = first + 1;
    for (size_t i = m; i < n; i++) {
        if (!same_place(&places[first], &places[i])) continue;
        const dl_job job = jobs[i];
        const place p = places[i];
        jobs[i] = jobs[m];
        places[i] = places[m];
        jobs[m] = job;
        places[m++] = p;
    }
    return m - first;
}

/* Call fn with the jobs of one host together, host by host. The first failure is returned after all
 * hosts had their turn. The order of jobs changes. */
static diloco_status each_host(const dl_launch_spec *spec, dl_job *jobs, size_t n,
                               const char *digest, host_fn fn)
{
    char why[1024] = "";
    diloco_status first = DILOCO_OK;
    place *places = calloc(n, sizeof *places);
    if (!places) return dl_fail(DILOCO_ENOMEM, "out of memory for the hosts");
    for (size_t i = 0; !first && i < n; i++)
        first = place_of(&places[i], spec, &jobs[i], digest);
    const bool bad = first != DILOCO_OK;
    if (bad) snprintf(why, sizeof why, "%s", diloco_error_text());
    for (size_t i = 0, m; !bad && i < n; i += m) {
        m = gather(jobs, places, i, n);
        const diloco_status status = fn(spec, &places[i], &jobs[i], m);
        if (!status || first) continue;
        first = status;
        snprintf(why, sizeof why, "%s", diloco_error_text());
        if (status == DILOCO_ENOMEM) break;
    }
    free(places);
    return first ? dl_fail(first, "%s", why) : DILOCO_OK;
}

/* The ids are set after the reply, as only then the replicas are known to be started. Those before
 * one that failed run, and get theirs. A launch whose reply was lost is repeated, and finds the
 * names started. */
static diloco_status launch_on(const dl_launch_spec *spec, const place *p, dl_job *jobs, size_t n)
{
    if (spec->dry) return print_requests(spec, p, jobs, n);
    DL_TRY(provide_program(spec, p));
    const diloco_status status = ask(spec, p, "start", jobs, n);
    for (size_t i = 0; i < n; i++)
        if (!jobs[i].silent) id_of(jobs[i].id, p);
    return status;
}

/* Without the program on the host no replica was started there with it. A poll says whether one
 * was. */
static diloco_status find_on(const dl_launch_spec *spec, const place *p, dl_job *jobs, size_t n)
{
    bool there;
    DL_TRY(look_for_program(&there, spec, p));
    for (size_t i = 0; there && i < n; i++)
        id_of(jobs[i].id, p);
    return DILOCO_OK;
}

/* A host that cannot be asked makes its jobs silent, whatever the reason, and keeps no other host
 * from being asked. */
static diloco_status poll_on(const dl_launch_spec *spec, const place *p, dl_job *jobs, size_t n)
{
    const diloco_status status = ask(spec, p, "poll", jobs, n);
    if (!status || status == DILOCO_ENOMEM) return status;
    for (size_t i = 0; i < n; i++)
        if (jobs[i].silent) dl_job_set_silent(&jobs[i], "%.250s", diloco_error_text());
    return DILOCO_OK;
}

static diloco_status cancel_on(const dl_launch_spec *spec, const place *p, dl_job *jobs, size_t n)
{
    return ask(spec, p, "cancel", jobs, n);
}

/* ---- the row */

/* All hosts are read, so that an error in the last one is found before anything is started. */
static diloco_status check(const dl_launch_spec *spec)
{
    place p;
    char digest[DIGEST + 1];
    if (count_hosts(spec->on) > HOSTS_MAX)
        return dl_fail(DILOCO_EINVAL, "ssh://: at most %d hosts", HOSTS_MAX);
    for (const char *at = spec->on; at; at = strchr(at, ','), at = at ? at + 1 : NULL)
        DL_TRY(read_place(&p, at));
    if (!dl_command_exists("ssh"))
        return dl_fail(DILOCO_EINVAL, "there is no program ssh here: install it");
    return read_digest(digest, spec);
}

static diloco_status launch(const dl_launch_spec *spec, dl_job *jobs, size_t n)
{
    char digest[DIGEST + 1];
    DL_TRY(read_digest(digest, spec));
    return each_host(spec, jobs, n, digest, launch_on);
}

/* The id has the digest of the program, so a replica is found only with the program that started
 * it. A file that is no program finds none. */
static diloco_status find_jobs(const dl_launch_spec *spec, dl_job *jobs, size_t n)
{
    char digest[DIGEST + 1];
    if (read_digest(digest, spec)) return DILOCO_OK;
    return each_host(spec, jobs, n, digest, find_on);
}

static diloco_status poll_all(const dl_launch_spec *spec, dl_job *jobs, size_t n)
{
    return each_host(spec, jobs, n, "", poll_on);
}

static diloco_status cancel(const dl_launch_spec *spec, dl_job *jobs, size_t n)
{
    return each_host(spec, jobs, n, "", cancel_on);
}

/* The reply of "logs" is the output itself, line by line. */
static diloco_status logs(const dl_launch_spec *spec, const dl_job *job, bool follow,
                          dl_job_line_fn fn, void *user)
{
    const char *args[ARGS_MAX];
    char script[DL_SSH_SCRIPT];
    dl_buf request;
    place p;
    int code;
    DL_TRY(place_of(&p, spec, job, ""));
    DL_TRY(dl_ssh_script(script, DL_SSH_USE, spec, p.digest));
    dl_buf_init(&request, REQUEST_MAX);
    diloco_status status = dl_remote_request(&request, spec, "logs", job, 1, follow, false);
    ssh_args(args, spec, &p, script);
    if (!status) status = dl_command_lines(&code, args, request.data, request.len, fn, user);
    dl_buf_deinit(&request);
    return status;
}

/* Two launchers of one name are kept apart by the lock in the name's folder on the host, hence
 * exactly_once. Folders are those of the host, hence not same_files. */
const dl_executor dl_executor_ssh = {
    .name = "ssh",
    .place = "[USER@]HOST[:PORT],…",
    .needs = "ssh here, a key that needs no passphrase, host keys known beforehand; Linux, a POSIX "
             "shell and sha256sum there",
    .tested = "OpenSSH's own server on loopback",
    .options = "|ssh_config|",
    .caps = {.net = "private-ip",
             .rank_env = "argument, DILOCO_RANK",
             .log_api = "file, read over ssh",
             .secrets = "stdin of diloco host",
             .restart = "no",
             .exactly_once = true},
    .poll_s = 5,
    .check = check,
    .launch = launch,
    .find = find_jobs,
    .is_id = is_id,
    .poll = poll_all,
    .logs = logs,
    .cancel = cancel,
};
