/* s3_api_test.c - the S3 side, by requests signed here: signatures that hold and those that do not,
 * listings against a plain walk, multipart, framed bodies. tests/e2e/hub_s3.sh tests
 * it with real tools. */
#include "hub_fixture.h"

#include "hub/chunks.h"
#include "store/http/sigv4.h"
#include "store/http/web.h"
#include "store/store.h"

#include <time.h>

static const char access_key[] = "AKIDTEST", secret[] = "a-secret-of-tests";

static void serve_s3(void)
{
    char keys[700];
    fixture_write("keys", "OTHER another-secret\nAKIDTEST a-secret-of-tests\n");
    snprintf(keys, sizeof keys, "%s/keys", fixture.root);
    fixture_serve((dl_hub_options){.s3_keys_file = keys, .max_object = 1 << 20});
}

/* One request; members that stay NULL or 0 are filled in correctly. */
typedef struct s3 {
    const char *method, *path;
    dl_pair query[8]; /* ends with a NULL name */
    const char *body;
    dl_pair header;      /* one more, signed if its name begins with x-amz- */
    dl_pair more[3];     /* x-amz- headers, signed; ends with a NULL name */
    const char *payload; /* NULL: the body's hash */
    const char *secret, *access, *date;
    const char *sent_path; /* other than the one signed */
    const char *tamper;    /* a header after the signed ones */
} s3;

static size_t n_pairs(const dl_pair *pairs)
{
    size_t n = 0;
    while (pairs[n].name)
        n++;
    return n;
}

static const char *s3_ask(s3 q)
{
    static char request[1 << 17];
    char hash[DL_SHA256_HEX], now[DL_SIGV4_DATE];
    const char *body = q.body ? q.body : "";
    dl_buf sign, query;
    dl_span span = {body, strlen(body)};
    char more[400] = "";
    dl_pair headers[7] = {{"Host", "localhost"}};
    size_t n = 1;
    dl_buf_init(&sign, 4096), dl_buf_init(&query, 4096);
    CHECK_OK(dl_sha256_hex(hash, &span, 1));
    dl_sigv4_date(now, time(NULL));
    if (!q.payload) q.payload = hash;
    if (!q.date) q.date = now;
    headers[n++] = (dl_pair){"x-amz-content-sha256", q.payload};
    headers[n++] = (dl_pair){"x-amz-date", q.date};
    if (q.header.name && !strncmp(q.header.name, "x-amz-", 6)) headers[n++] = q.header;
    for (size_t i = 0; i < 3 && q.more[i].name; i++) {
        const size_t at = strlen(more);
        headers[n++] = q.more[i];
        snprintf(more + at, sizeof more - at, "%s: %s\r\n", q.more[i].name, q.more[i].value);
    }
    const dl_sigv4_scope scope = {"AWS4", q.access ? q.access : access_key,
                                  q.secret ? q.secret : secret, "eu-north-1", "s3"};
    const dl_sigv4_request r = {q.method, q.path, q.query,   n_pairs(q.query),
                                headers,  n,      q.payload, q.date};
    CHECK_OK(dl_sigv4_sign(&sign, &scope, &r));
    CHECK_OK(dl_sigv4_query(&query, q.query, n_pairs(q.query)));
    int len = snprintf(request, sizeof request,
                       "%s %s?%s HTTP/1.1\r\nHost: localhost\r\nAuthorization: %s\r\n"
                       "x-amz-content-sha256: %s\r\nx-amz-date: %s\r\nContent-Length: %zu\r\n"
                       "%s%s%s%s%s%s\r\n%s",
                       q.method, q.sent_path ? q.sent_path : q.path, dl_buf_str(&query),
                       dl_buf_str(&sign), q.payload, q.date, strlen(body),
                       q.header.name ? q.header.name : "", q.header.name ? ": " : "",
                       q.header.name ? q.header.value : "", q.header.name ? "\r\n" : "", more,
                       q.tamper ? q.tamper : "", body);
    CHECK(len > 0 && (size_t)len < sizeof request);
    dl_buf_deinit(&sign), dl_buf_deinit(&query);
    return client_ask(request);
}

#define S3(...) status_of(s3_ask((s3){__VA_ARGS__}))

/* The text between <tag> and </tag>, in a static buffer. */
static const char *inside(const char *reply, const char *tag)
{
    static char out[4][600];
    static int which;
    char open[80];
    snprintf(open, sizeof open, "<%s>", tag);
    const char *at = strstr(reply, open);
    if (!at) return "";
    at += strlen(open);
    snprintf(out[++which % 4], 600, "%.*s", (int)strcspn(at, "<"), at);
    return out[which % 4];
}

TEST(key_of_an_object_that_a_pointer_publishes_is_refused_with_advice)
{
    serve_s3();
    CHECK_INT(200, S3(.method = "PUT", .path = "/bkt"));
    const char *first = s3_ask((s3){.method = "PUT", .path = "/bkt/.b/log/1/00", .body = "x"});
    CHECK_INT(400, status_of(first));
    CHECK_CONTAINS("halves=yes", inside(first, "Message"));
    const char *below = s3_ask((s3){.method = "PUT", .path = "/bkt/run/.b/log/1/00", .body = "x"});
    CHECK_INT(400, status_of(below));
    CHECK_CONTAINS("halves=yes", inside(below, "Message"));
    const char *other = s3_ask((s3){.method = "PUT", .path = "/bkt/run/.c/1", .body = "x"});
    CHECK_INT(400, status_of(other));
    CHECK_CONTAINS("that do not begin with a dot", inside(other, "Message"));
    /* Any client may have stored a pointer. Its readers find that its object does not exist. */
    CHECK_INT(404, S3(.method = "GET", .path = "/bkt/run/.b/log/1/00"));
    CHECK_INT(404, S3(.method = "HEAD", .path = "/bkt/run/.b/log/1/00"));
    CHECK_INT(204, S3(.method = "DELETE", .path = "/bkt/run/.b/log/1/00"));
    CHECK_INT(404, S3(.method = "GET", .path = "/no-bkt/.b/log/1/00"));
    fixture_stop();
}

TEST(a_signature_of_a_known_key_is_welcome_and_no_other_is)
{
    char old[DL_SIGV4_DATE], soon[DL_SIGV4_DATE];
    serve_s3();
    CHECK_INT(200, S3(.method = "PUT", .path = "/bkt"));
    CHECK_INT(200, S3(.method = "PUT", .path = "/bkt/a", .body = "hello"));
    CHECK_CONTAINS("\r\n\r\nhello", s3_ask((s3){.method = "GET", .path = "/bkt/a"}));
    CHECK_INT(200, S3(.method = "HEAD", .path = "/bkt"));

    const char *reply = s3_ask((s3){.method = "GET", .path = "/bkt/a", .secret = "another"});
    CHECK_INT(403, status_of(reply));
    CHECK_STR("SignatureDoesNotMatch", inside(reply, "Code"));
    reply = s3_ask((s3){.method = "GET", .path = "/bkt/a", .access = "NOBODY"});
    CHECK_STR("InvalidAccessKeyId", inside(reply, "Code"));
    reply = s3_ask((s3){.method = "GET", .path = "/bkt/a", .sent_path = "/bkt/b"});
    CHECK_STR("SignatureDoesNotMatch", inside(reply, "Code"));
    reply = s3_ask((s3){.method = "GET", .path = "/bkt/a", .tamper = "x-amz-acl: public\r\n"});
    CHECK_STR("AccessDenied", inside(reply, "Code"));
    dl_sigv4_date(old, time(NULL) - 1000);
    dl_sigv4_date(soon, time(NULL) + 1000);
    reply = s3_ask((s3){.method = "GET", .path = "/bkt/a", .date = old});
    CHECK_STR("RequestTimeTooSkewed", inside(reply, "Code"));
    reply = s3_ask((s3){.method = "GET", .path = "/bkt/a", .date = soon});
    CHECK_STR("RequestTimeTooSkewed", inside(reply, "Code"));
    CHECK_INT(401, ask("GET /bkt/a")); /* keys are given, so the other side asks, too */
}

TEST(an_invalid_claim_is_refused)
{
    static const char *const claims[] = {
        "AWS4-HMAC-SHA256",
        "AWS4-HMAC-SHA256 ",
        "AWS AKID:signature",
        "AWS4-HMAC-SHA256 Credential=,SignedHeaders=,Signature=",
        "AWS4-HMAC-SHA256 Credential=AKIDTEST/20260101/r/s3/aws4_request,SignedHeaders=x-amz-date,"
        "Signature=00",
        "AWS4-HMAC-SHA256 Credential=AKIDTEST/20260101/r/ec2/aws4_request,SignedHeaders=host,"
        "Signature=00",
        "AWS4-HMAC-SHA256 Credential=AKIDTEST/20260101/r/s3,SignedHeaders=host,Signature=00",
        "AWS4-HMAC-SHA256 Credential=A/B/20260101/r/s3/aws4_request,SignedHeaders=host,Signature=0",
        "AWS4-HMAC-SHA256 Credential=AKIDTEST/x/r/s3/aws4_request,SignedHeaders=host;;;;;;;;;;;;;;;"
        ";;;;;;;,Signature=00"};
    char header[400];
    serve_s3();
    for (size_t i = 0; i < sizeof claims / sizeof *claims; i++) {
        snprintf(header, sizeof header,
                 "Authorization: %s\r\nx-amz-content-sha256: UNSIGNED-PAYLOAD\r\nx-amz-date: x\r\n",
                 claims[i]);
        CHECK_INT(400, ask_with("GET /bkt/a", header, ""));
    }
    CHECK_INT(400, ask("GET /bkt/a?X-Amz-Algorithm=AWS4-HMAC-SHA256"));
    CHECK_INT(400, ask("GET /bkt/a?X-Amz-Signature=00"));
    CHECK_INT(403, ask("GET /bkt/a?X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Credential="
                       "AKIDTEST/20130524/us-east-1/s3/aws4_request&X-Amz-Date=20130524T000000Z&"
                       "X-Amz-Expires=86400&X-Amz-SignedHeaders=host&X-Amz-Signature=00"));
}

TEST(a_body_is_the_one_that_was_signed)
{
    serve_s3();
    CHECK_INT(200, S3(.method = "PUT", .path = "/bkt"));
    static const char other[] = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
    const char *reply =
        s3_ask((s3){.method = "PUT", .path = "/bkt/a", .body = "not abc", .payload = other});
    CHECK_INT(400, status_of(reply));
    CHECK_STR("XAmzContentSHA256Mismatch", inside(reply, "Code"));
    CHECK_INT(200, S3(.method = "PUT", .path = "/bkt/a", .body = "abc", .payload = other));
    CHECK_INT(200,
              S3(.method = "PUT", .path = "/bkt/b", .body = "abc", .payload = "UNSIGNED-PAYLOAD"));
    CHECK_INT(200, S3(.method = "PUT", .path = "/bkt/c", .body = "abc",
                      .header = {"Content-MD5", "kAFQmDzST7DWlj99KOF/cg=="}));
    reply = s3_ask((s3){.method = "PUT",
                        .path = "/bkt/d",
                        .body = "abd",
                        .header = {"Content-MD5", "kAFQmDzST7DWlj99KOF/cg=="}});
    CHECK_STR("BadDigest", inside(reply, "Code"));
    CHECK_INT(404, S3(.method = "GET", .path = "/bkt/d"));
    CHECK_INT(501, S3(.method = "PUT", .path = "/bkt/d",
                      .payload = "STREAMING-AWS4-HMAC-SHA256-PAYLOAD"));
    CHECK_INT(501, S3(.method = "PUT", .path = "/bkt/d", .header = {"Content-Encoding", "gzip"}));
    CHECK_INT(200,
              S3(.method = "PUT", .path = "/bkt/e", .payload = "STREAMING-UNSIGNED-PAYLOAD-TRAILER",
                 .more = {{"x-amz-decoded-content-length", "5"}},
                 .body = "3\r\nabc\r\n2;x=y\r\nde\r\n0\r\n\r\n"));
    CHECK_CONTAINS("\r\n\r\nabcde", s3_ask((s3){.method = "GET", .path = "/bkt/e"}));
    CHECK_INT(400,
              S3(.method = "PUT", .path = "/bkt/f", .payload = "STREAMING-UNSIGNED-PAYLOAD-TRAILER",
                 .body = "3\r\nabc\r\n", .more = {{"x-amz-decoded-content-length", "3"}}));
    CHECK_INT(0, count_files("hub/bkt/.tmp"));
}

/* A PUT of /bkt/<name> with a body "abc" and a header. */
static const char *put_abc(const char *path, const char *name, const char *value)
{
    return s3_ask((s3){.method = "PUT", .path = path, .body = "abc", .header = {name, value}});
}

TEST(a_checksum_in_a_header_is_checked)
{
    static const char *const right[][2] = {
        {"x-amz-checksum-crc32", "NSRBwg=="},
        {"x-amz-checksum-crc32c", "Nks/tw=="},
        {"x-amz-checksum-crc64nvme", "BeXKuz/B+us="},
        {"x-amz-checksum-sha1", "qZk+NkcGgWq6PiVxeFDCbJzQ2J0="},
        {"x-amz-checksum-sha256", "ungWv48Bz+pBQUDeXa4iI7ADYaOWF3qctBD/YfIAFa0="},
    };
    char header[200];
    serve_s3();
    CHECK_INT(200, S3(.method = "PUT", .path = "/bkt"));
    for (size_t i = 0; i < sizeof right / sizeof *right; i++) {
        const char *reply = put_abc("/bkt/a", right[i][0], right[i][1]);
        CHECK_INT(200, status_of(reply));
        snprintf(header, sizeof header, "%s: %s\r\n", right[i][0], right[i][1]);
        CHECK_CONTAINS(header, reply);
        reply = put_abc("/bkt/b", right[i][0], right[(i + 1) % 5][1]);
        CHECK_INT(400, status_of(reply));
        CHECK_STR("BadDigest", inside(reply, "Code"));
    }
    CHECK_INT(404, S3(.method = "GET", .path = "/bkt/b"));
    const char *reply = put_abc("/bkt/b", "x-amz-checksum-xxhash64", "AAAAAAAAAAA=");
    CHECK_INT(501, status_of(reply));
    CHECK_CONTAINS("x-amz-checksum-xxhash64", reply);
    reply = s3_ask((s3){.method = "PUT",
                        .path = "/bkt/b",
                        .body = "abc",
                        .header = {"x-amz-checksum-crc32", "NSRBwg=="},
                        .more = {{"x-amz-checksum-sha1", "qZk+NkcGgWq6PiVxeFDCbJzQ2J0="}}});
    CHECK_INT(400, status_of(reply));
    CHECK_INT(200, status_of(put_abc("/bkt/c", "x-amz-sdk-checksum-algorithm", "CRC32")));
    CHECK_INT(0, count_files("hub/bkt/.tmp"));
}

/* A PUT of /bkt/a in aws-chunked framing: "abcde", then these trailers. */
static const char *put_framed(const char *trailers, const char *announced, const char *length)
{
    char body[300];
    s3 q = {.method = "PUT",
            .path = "/bkt/a",
            .payload = "STREAMING-UNSIGNED-PAYLOAD-TRAILER",
            .header = {"Content-Encoding", "aws-chunked"},
            .body = body};
    size_t n = 0;
    snprintf(body, sizeof body, "3\r\nabc\r\n2\r\nde\r\n0\r\n%s\r\n", trailers);
    if (length) q.more[n++] = (dl_pair){"x-amz-decoded-content-length", length};
    if (announced) q.more[n++] = (dl_pair){"x-amz-trailer", announced};
    return s3_ask(q);
}

TEST(a_checksum_in_a_trailer_and_the_decoded_length_are_checked)
{
    static const char crc[] = "x-amz-checksum-crc32", line[] = "x-amz-checksum-crc32:hYfYZQ==\r\n";
    static const struct {
        const char *trailers, *announced, *length;
        int status;
        const char *code;
    } refused[] = {
        {"x-amz-checksum-crc32:NSRBwg==\r\n", crc, "5", 400, "BadDigest"},
        {"", crc, "5", 400, "MalformedTrailerError"},
        {line, NULL, "5", 400, "MalformedTrailerError"},
        {"x-amz-checksum-crc32:hYfYZQ==\r\nx-amz-checksum-sha1:AA==\r\n", crc, "5", 400,
         "InvalidArgument"},
        {"x-amz-checksum-md9:AA==\r\n", "x-amz-checksum-md9", "5", 501, "NotImplemented"},
        {line, crc, "4", 400, "IncompleteBody"},
        {line, crc, "6", 400, "IncompleteBody"},
        {line, crc, "x", 400, "InvalidArgument"},
        {line, crc, NULL, 411, "MissingContentLength"},
    };
    serve_s3();
    CHECK_INT(200, S3(.method = "PUT", .path = "/bkt"));
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        const char *reply =
            put_framed(refused[i].trailers, refused[i].announced, refused[i].length);
        CHECK_INT(refused[i].status, status_of(reply));
        CHECK_STR(refused[i].code, inside(reply, "Code"));
        CHECK_INT(404, S3(.method = "GET", .path = "/bkt/a"));
    }
    CHECK_INT(200, status_of(put_framed(line, crc, "5")));
    CHECK_CONTAINS("\r\n\r\nabcde", s3_ask((s3){.method = "GET", .path = "/bkt/a"}));
    CHECK_INT(400, status_of(put_abc("/bkt/b", "x-amz-trailer", crc))); /* no framing */
    CHECK_INT(400, status_of(put_abc("/bkt/b", "Content-Encoding", "aws-chunked")));
}

TEST(encryption_is_refused_by_name)
{
    static const char key[] = "x-amz-server-side-encryption-customer-key";
    serve_s3();
    CHECK_INT(200, S3(.method = "PUT", .path = "/bkt"));
    const char *reply = put_abc("/bkt/a", key, "AAAA");
    CHECK_INT(501, status_of(reply));
    CHECK_CONTAINS(key, reply);
    CHECK_INT(501, status_of(put_abc("/bkt/a", "x-amz-server-side-encryption", "aws:kms")));
    CHECK_INT(404, S3(.method = "GET", .path = "/bkt/a"));
    CHECK_INT(200, status_of(put_abc("/bkt/a", "x-amz-meta-a", "b")));
    CHECK_INT(501, S3(.method = "GET", .path = "/bkt/a", .header = {key, "AAAA"}));
    fixture_stop();
    fixture_serve((dl_hub_options){0}); /* an open hub, asked without a signature */
    CHECK_INT(501,
              ask_with("PUT /bkt/b", "x-amz-server-side-encryption-customer-key: AAAA\r\n", "abc"));
    CHECK_INT(404, ask("GET /bkt/b"));
}

TEST(a_put_does_not_replace_and_one_of_equal_bytes_has_succeeded)
{
    serve_s3();
    CHECK_INT(200, S3(.method = "PUT", .path = "/bkt"));
    CHECK_INT(200,
              S3(.method = "PUT", .path = "/bkt/a", .body = "x", .header = {"If-None-Match", "*"}));
    CHECK_INT(412,
              S3(.method = "PUT", .path = "/bkt/a", .body = "x", .header = {"If-None-Match", "*"}));
    CHECK_INT(200, S3(.method = "PUT", .path = "/bkt/a", .body = "x"));
    CHECK_INT(409, S3(.method = "PUT", .path = "/bkt/a", .body = "y"));
    CHECK_INT(200, S3(.method = "PUT", .path = "/bkt/run/hb/r0.0", .body = "x"));
    CHECK_INT(200, S3(.method = "PUT", .path = "/bkt/run/hb/r0.0", .body = "y"));
    CHECK_INT(400, S3(.method = "PUT", .path = "/bkt/.tmp/a"));
    CHECK_INT(400, S3(.method = "PUT", .path = "/bkt/a/../b"));
    CHECK_INT(400, S3(.method = "PUT", .path = "/.git"));
    CHECK_INT(404, S3(.method = "PUT", .path = "/none/a"));
    CHECK_INT(501,
              S3(.method = "PUT", .path = "/bkt/b", .header = {"x-amz-copy-source", "/bkt/a"}));
    CHECK_INT(501, S3(.method = "GET", .path = "/bkt/a", .query = {{"acl", ""}}));
    CHECK_INT(405, S3(.method = "PATCH", .path = "/bkt/a"));
}

/* ---- listings */

static const char *const tree[] = {"a-b",     "a.b/x", "a/-", "a/0/y", "a/00", "a/A",
                                   "a/b/c/d", "a/b0",  "a0",  "a=",    "aA/z", "a_"};
enum { N_TREE = sizeof tree / sizeof *tree };

static void make_tree(void)
{
    char path[40];
    CHECK_INT(200, S3(.method = "PUT", .path = "/bkt"));
    for (size_t i = 0; i < N_TREE; i++) {
        dl_buf escaped;
        dl_buf_init(&escaped, 100);
        CHECK_OK(dl_web_escape(&escaped, tree[i], true));
        snprintf(path, sizeof path, "/bkt/%s", dl_buf_str(&escaped));
        CHECK_INT(200, S3(.method = "PUT", .path = path, .body = tree[i]));
        dl_buf_deinit(&escaped);
    }
}

/* All keys and prefixes in order, by pages. */
static void list_all(char out[2000], bool version2, const char *prefix, const char *delimiter,
                     const char *page)
{
    char after[100] = "";
    out[0] = '\0';
    for (int pages = 0; pages < 50; pages++) {
        s3 q = {.method = "GET", .path = "/bkt"};
        size_t n = 0;
        if (version2) q.query[n++] = (dl_pair){"list-type", "2"};
        q.query[n++] = (dl_pair){"prefix", prefix};
        q.query[n++] = (dl_pair){"max-keys", page};
        if (*delimiter) q.query[n++] = (dl_pair){"delimiter", delimiter};
        if (*after) q.query[n++] = (dl_pair){version2 ? "continuation-token" : "marker", after};
        const char *reply = s3_ask(q);
        CHECK_INT(200, status_of(reply));
        for (const char *at = reply; (at = strchr(at, '<')); at++) {
            const char *end = strchr(at + 1, '<');
            bool key = !strncmp(at, "<Contents><Key>", 15);
            bool common = !strncmp(at, "<CommonPrefixes><Prefix>", 24);
            if (!key && !common) continue;
            at += key ? 15 : 24;
            end = strchr(at, '<');
            snprintf(out + strlen(out), 2000 - strlen(out), "%.*s ", (int)(end - at), at);
        }
        if (strcmp(inside(reply, "IsTruncated"), "true") != 0) return;
        snprintf(after, sizeof after, "%s",
                 inside(reply, version2 ? "NextContinuationToken" : "NextMarker"));
    }
    CHECK_FAIL("a listing by %s does not end", page);
}

/* The definition: every key with the prefix, or once what it shares up to the delimiter. */
static void expect_list(char out[2000], const char *prefix, const char *delimiter)
{
    char last[100] = "";
    out[0] = '\0';
    for (size_t i = 0; i < N_TREE; i++) {
        char reported[100];
        if (strncmp(tree[i], prefix, strlen(prefix)) != 0) continue;
        const char *slash = *delimiter ? strchr(tree[i] + strlen(prefix), '/') : NULL;
        snprintf(reported, sizeof reported, "%.*s", (int)(slash ? slash + 1 - tree[i] : 99),
                 tree[i]);
        if (strcmp(reported, last) == 0) continue;
        strcpy(last, reported);
        snprintf(out + strlen(out), 2000 - strlen(out), "%s ", reported);
    }
}

TEST(listings_are_right_for_every_prefix_delimiter_and_page)
{
    static const char *const prefixes[] = {"",    "a", "a/",  "a/b", "a/b/",    "a.",      "b",
                                           "a/0", "A", "a//", "../", "a/b/c/d", "a/b/c/d/"};
    char expected[2000], got[2000];
    serve_s3();
    make_tree();
    for (size_t p = 0; p < sizeof prefixes / sizeof *prefixes; p++)
        for (int d = 0; d < 2; d++) {
            static const char *const pages[] = {"1", "2", "5", "1000"};
            expect_list(expected, prefixes[p], d ? "/" : "");
            for (int page = 0; page < 4; page++)
                for (int version2 = 0; version2 < 2; version2++) {
                    list_all(got, version2, prefixes[p], d ? "/" : "", pages[page]);
                    CHECK_STR(expected, got);
                }
        }
    const char *reply = s3_ask((s3){
        .method = "GET", .path = "/bkt", .query = {{"list-type", "2"}, {"start-after", "a/b0"}}});
    CHECK_STR("a0", inside(reply, "Key"));
    reply = s3_ask(
        (s3){.method = "GET", .path = "/bkt", .query = {{"list-type", "2"}, {"max-keys", "0"}}});
    CHECK_STR("false", inside(reply, "IsTruncated")); /* or a paging client would never end */
    reply = s3_ask((s3){
        .method = "GET", .path = "/bkt", .query = {{"prefix", "<&>"}, {"encoding-type", "url"}}});
    CHECK_STR("%3C%26%3E", inside(reply, "Prefix"));
    CHECK_CONTAINS("<Prefix>&lt;&amp;&gt;</Prefix>",
                   s3_ask((s3){.method = "GET", .path = "/bkt", .query = {{"prefix", "<&>"}}}));
    CHECK_INT(501, S3(.method = "GET", .path = "/bkt", .query = {{"delimiter", "-"}}));
    CHECK_INT(400, S3(.method = "GET", .path = "/bkt", .query = {{"max-keys", "x"}}));
    CHECK_INT(404, S3(.method = "GET", .path = "/none"));
    CHECK_CONTAINS("<Name>bkt</Name>", s3_ask((s3){.method = "GET", .path = "/"}));
}

/* ---- several at once */

TEST(several_are_deleted_but_never_the_log)
{
    serve_s3();
    CHECK_INT(200, S3(.method = "PUT", .path = "/bkt"));
    CHECK_INT(200, S3(.method = "PUT", .path = "/bkt/a", .body = "x"));
    CHECK_INT(200, S3(.method = "PUT", .path = "/bkt/run/log/0000000001.json", .body = "x"));
    const char *reply = s3_ask((s3){
        .method = "POST",
        .path = "/bkt",
        .query = {{"delete", ""}},
        .body = "<Delete><Object><Key>a</Key></Object><Object><Key>none</Key></Object><Object><Key>"
                "run/log/0000000001.json</Key></Object><Object><Key>../secret</Key></Object>"
                "</Delete>"});
    CHECK_INT(200, status_of(reply));
    CHECK_CONTAINS("<Deleted><Key>a</Key></Deleted><Deleted><Key>none</Key></Deleted><Error><Key>"
                   "run/log/0000000001.json</Key>",
                   reply);
    CHECK_CONTAINS("<Error><Key>../secret</Key>", reply);
    CHECK_INT(404, S3(.method = "GET", .path = "/bkt/a"));
    CHECK_INT(200, S3(.method = "GET", .path = "/bkt/run/log/0000000001.json"));
    CHECK_INT(400, S3(.method = "POST", .path = "/bkt", .query = {{"delete", ""}}, .body = "<x/>"));
    CHECK_INT(400, S3(.method = "POST", .path = "/bkt", .query = {{"delete", ""}}, .body = "no"));
    CHECK_INT(409, S3(.method = "DELETE", .path = "/bkt"));
}

/* A folder that loses its .tmp/ is taken for gone by those who have it open as a folder. */
TEST(a_bucket_that_is_not_empty_stays_whole)
{
    dl_store *store;
    char folder[400];
    serve_s3();
    CHECK_INT(200, S3(.method = "PUT", .path = "/bkt"));
    snprintf(folder, sizeof folder, "%s/bkt", fixture.dir);
    CHECK_OK(dl_store_open(&store, folder, false));
    CHECK_OK(dl_store_put(store, "a", "x", 1, DL_NEVER));
    CHECK_INT(409, S3(.method = "DELETE", .path = "/bkt"));
    CHECK_OK(dl_store_put(store, "a", "y", 1, DL_NEVER));
    CHECK_OK(dl_store_delete(store, "a", DL_NEVER));
    CHECK_INT(501, S3(.method = "DELETE", .path = "/bkt", .query = {{"inventory", ""}}));
    CHECK_INT(204, S3(.method = "DELETE", .path = "/bkt"));
    dl_store_close(store);
}

/* ---- multipart */

static void begin_upload(char id[64], const char *path)
{
    const char *reply = s3_ask((s3){.method = "POST", .path = path, .query = {{"uploads", ""}}});
    CHECK_INT(200, status_of(reply));
    snprintf(id, 64, "%s", inside(reply, "UploadId"));
    CHECK_INT(32, strlen(id));
}

static int send_part(char etag[80], const char *path, const char *id, const char *number,
                     const char *body)
{
    const char *reply = s3_ask((s3){.method = "PUT",
                                    .path = path,
                                    .body = body,
                                    .query = {{"partNumber", number}, {"uploadId", id}}});
    const char *at = strstr(reply, "ETag: ");
    etag[0] = '\0';
    if (at) CHECK_INT(1, sscanf(at, "ETag: %79s", etag));
    return status_of(reply);
}

static int complete(const char *path, const char *id, const char *parts)
{
    char body[2000];
    snprintf(body, sizeof body, "<CompleteMultipartUpload>%s</CompleteMultipartUpload>", parts);
    return S3(.method = "POST", .path = path, .query = {{"uploadId", id}}, .body = body);
}

#define PART "<Part><PartNumber>%s</PartNumber><ETag>%s</ETag></Part>"

TEST(parts_become_one_object_at_once_or_not_at_all)
{
    char id[64], one[80], two[80], again[80], parts[1000];
    serve_s3();
    CHECK_INT(200, S3(.method = "PUT", .path = "/bkt"));
    begin_upload(id, "/bkt/big");
    CHECK_INT(200, send_part(two, "/bkt/big", id, "2", "second."));
    CHECK_INT(200, send_part(again, "/bkt/big", id, "1", "wrong first, "));
    CHECK_INT(200, send_part(one, "/bkt/big", id, "1", "first, "));
    CHECK(strcmp(one, again) != 0);
    char late[80]; /* the same bytes are the same part */
    CHECK_INT(200, send_part(late, "/bkt/big", id, "1", "first, "));
    CHECK_STR(one, late);
    CHECK_INT(404, S3(.method = "GET", .path = "/bkt/big"));
    CHECK_STR("", inside(s3_ask((s3){.method = "GET", .path = "/bkt"}), "Key"));
    CHECK_CONTAINS("<Key>big</Key>",
                   s3_ask((s3){.method = "GET", .path = "/bkt", .query = {{"uploads", ""}}}));
    CHECK_CONTAINS("<PartNumber>2</PartNumber>",
                   s3_ask((s3){.method = "GET", .path = "/bkt/big", .query = {{"uploadId", id}}}));

    snprintf(parts, sizeof parts, PART PART, "2", two, "1", one); /* the wrong way round */
    CHECK_INT(400, complete("/bkt/big", id, parts));
    snprintf(parts, sizeof parts, PART PART, "1", again, "2", two); /* of a part since replaced */
    CHECK_INT(400, complete("/bkt/big", id, parts));
    snprintf(parts, sizeof parts, PART PART PART, "1", one, "2", two, "3", two); /* no such part */
    CHECK_INT(400, complete("/bkt/big", id, parts));
    CHECK_INT(400, complete("/bkt/big", id, ""));
    CHECK_INT(404, S3(.method = "GET", .path = "/bkt/big"));
    snprintf(parts, sizeof parts, PART PART, "1", one, "2", two);
    CHECK_INT(404, complete("/bkt/other", id, parts)); /* of another key */
    CHECK_INT(200, complete("/bkt/big", id, parts));
    CHECK_CONTAINS("\r\n\r\nfirst, second.", s3_ask((s3){.method = "GET", .path = "/bkt/big"}));
    CHECK_INT(404, complete("/bkt/big", id, parts));
    CHECK_INT(0, count_files("hub/bkt/.multipart"));
    CHECK_INT(0, count_files("hub/bkt/.tmp"));
}

TEST(checksums_of_parts_and_of_the_whole_are_checked)
{
    char id[64], etag[80], etag_2[80], list[600];
    serve_s3();
    CHECK_INT(200, S3(.method = "PUT", .path = "/bkt"));
    begin_upload(id, "/bkt/a");
    const s3 part = {.method = "PUT",
                     .path = "/bkt/a",
                     .query = {{"partNumber", "1"}, {"uploadId", id}},
                     .body = "abc"};
    s3 q = part;
    q.header = (dl_pair){"x-amz-checksum-crc32", "hYfYZQ=="};
    CHECK_INT(400, status_of(s3_ask(q)));
    q.header = (dl_pair){"x-amz-checksum-crc32", "NSRBwg=="};
    CHECK_INT(200, status_of(s3_ask(q)));
    CHECK_INT(200, send_part(etag, "/bkt/a", id, "1", "abc"));
    CHECK_INT(200, send_part(etag_2, "/bkt/a", id, "2", "de"));
    q = (s3){.method = "POST", .path = "/bkt/a", .query = {{"uploadId", id}}, .body = list};
    static const struct {
        const char *element, *name, *value;
        int status;
    } tries[] = {
        {"<ChecksumCRC32>hYfYZQ==</ChecksumCRC32>", NULL, NULL, 400},
        {"<ChecksumMD9>AA==</ChecksumMD9>", NULL, NULL, 400},
        {"", "x-amz-checksum-crc32", "NSRBwg==", 400},
        {"", "x-amz-checksum-crc32", "NSRBwg==-2", 501}, /* a checksum of checksums */
        {"", "x-amz-checksum-md9", "AA==", 501},
        {"", "x-amz-mp-object-size", "4", 400},
        {"<ChecksumCRC32>NSRBwg==</ChecksumCRC32>", "x-amz-checksum-crc32", "hYfYZQ==", 200},
    };
    for (size_t i = 0; i < sizeof tries / sizeof *tries; i++) {
        snprintf(list, sizeof list,
                 "<CompleteMultipartUpload><Part>%s<PartNumber>1</PartNumber><ETag>%s</ETag></Part>"
                 "<Part><PartNumber>2</PartNumber><ETag>%s</ETag></Part></CompleteMultipartUpload>",
                 tries[i].element, etag, etag_2);
        q.header = (dl_pair){tries[i].name, tries[i].value};
        CHECK_INT(tries[i].status, status_of(s3_ask(q)));
        CHECK_INT(tries[i].status == 200 ? 200 : 404, S3(.method = "HEAD", .path = "/bkt/a"));
    }
    CHECK_INT(0, count_files("hub/bkt/.tmp"));
}

TEST(an_upload_is_aborted_and_never_replaces_an_object)
{
    char id[64], etag[80], parts[300];
    serve_s3();
    CHECK_INT(200, S3(.method = "PUT", .path = "/bkt"));
    CHECK_INT(200, S3(.method = "PUT", .path = "/bkt/a", .body = "there"));
    begin_upload(id, "/bkt/a");
    CHECK_INT(400, send_part(etag, "/bkt/a", id, "0", "x"));
    CHECK_INT(400, send_part(etag, "/bkt/a", id, "10001", "x"));
    CHECK_INT(404, send_part(etag, "/bkt/a", "../../../../../etc", "1", "x"));
    CHECK_INT(404, send_part(etag, "/bkt/a", "00000000000000000000000000000000", "1", "x"));
    CHECK_INT(200, send_part(etag, "/bkt/a", id, "1", "other"));
    snprintf(parts, sizeof parts, PART, "1", etag);
    CHECK_INT(409, complete("/bkt/a", id, parts));
    CHECK_CONTAINS("\r\n\r\nthere", s3_ask((s3){.method = "GET", .path = "/bkt/a"}));
    CHECK_INT(204, S3(.method = "DELETE", .path = "/bkt/a", .query = {{"uploadId", id}}));
    CHECK_INT(404, S3(.method = "DELETE", .path = "/bkt/a", .query = {{"uploadId", id}}));
    CHECK_INT(0, count_files("hub/bkt/.multipart"));
    CHECK_INT(204, S3(.method = "DELETE", .path = "/bkt/a"));
    CHECK_INT(204, S3(.method = "DELETE", .path = "/bkt"));
    CHECK_INT(0, count_files("hub"));
}

/* ---- framed bodies */

static diloco_status note_bytes(void *context, const void *data, size_t len)
{
    return dl_buf_add(context, data, len);
}

/* In pieces of every size; NULL: it is no such framing. */
static void check_chunks(const char *expected, const char *body)
{
    for (size_t piece = 1; piece <= strlen(body); piece++) {
        dl_chunks c = {0};
        dl_buf got;
        diloco_status status = DILOCO_OK;
        dl_buf_init(&got, 1000);
        for (size_t at = 0; at < strlen(body) && !status; at += piece)
            status =
                dl_chunks_add(&c, body + at, strlen(body) - at < piece ? strlen(body) - at : piece,
                              note_bytes, &got);
        if (!status) status = dl_chunks_end(&c);
        CHECK_STATUS(expected ? DILOCO_OK : DILOCO_EPROTO, status);
        if (expected) CHECK_STR(expected, dl_buf_str(&got));
        dl_buf_deinit(&got);
    }
}

TEST(chunk_framing_is_removed_and_invalid_framing_refused)
{
    check_chunks("", "0\r\n\r\n");
    check_chunks("hello world",
                 "5;chunk-signature=00\r\nhello\r\n6\r\n world\r\n0;x\r\na:b\r\n\r\n");
    check_chunks("\r\n", "2\r\n\r\n\r\n00\r\n\r\n");
    static const char *const bad[] = {"5\r\nhello\r\n",
                                      "5\r\nhello0\r\n\r\n",
                                      "5\nhello\r\n0\r\n\r\n",
                                      "\r\nhello",
                                      "g\r\n",
                                      "5 \r\nhello\r\n0\r\n\r\n",
                                      "ffffffffffffffff\r\n",
                                      "0\r\n\r\nmore",
                                      "-1\r\n",
                                      "0\r\nx"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        check_chunks(NULL, bad[i]);
    char long_line[2 * DL_CHUNKS_LINE];
    memset(long_line, '1', sizeof long_line - 1);
    long_line[1] = ';';
    long_line[sizeof long_line - 1] = '\0';
    dl_chunks c = {0};
    CHECK_STATUS(DILOCO_EPROTO,
                 dl_chunks_add(&c, long_line, sizeof long_line - 1, note_bytes, NULL));
}

int main(int argc, char **argv)
{
    static const struct CMUnitTest tests[] = {
        HUB_TEST(key_of_an_object_that_a_pointer_publishes_is_refused_with_advice),
        HUB_TEST(a_signature_of_a_known_key_is_welcome_and_no_other_is),
        HUB_TEST(an_invalid_claim_is_refused),
        HUB_TEST(a_body_is_the_one_that_was_signed),
        HUB_TEST(a_checksum_in_a_header_is_checked),
        HUB_TEST(a_checksum_in_a_trailer_and_the_decoded_length_are_checked),
        HUB_TEST(encryption_is_refused_by_name),
        HUB_TEST(a_put_does_not_replace_and_one_of_equal_bytes_has_succeeded),
        HUB_TEST(listings_are_right_for_every_prefix_delimiter_and_page),
        HUB_TEST(several_are_deleted_but_never_the_log),
        HUB_TEST(a_bucket_that_is_not_empty_stays_whole),
        HUB_TEST(parts_become_one_object_at_once_or_not_at_all),
        HUB_TEST(checksums_of_parts_and_of_the_whole_are_checked),
        HUB_TEST(an_upload_is_aborted_and_never_replaces_an_object),
        HUB_TEST(chunk_framing_is_removed_and_invalid_framing_refused),
    };
    return check_main(argc, argv, tests, sizeof tests / sizeof *tests);
}
