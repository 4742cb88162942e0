/* sigv4_test.c - the signer against what AWS publishes.
 *
 * S3 examples: "Signature Calculations for the Authorization Header: Transferring Payload in a
 * Single Chunk" of the Amazon S3 API reference. The others are of the AWS Signature Version 4
 * test suite (aws-sig-v4-test-suite), named as there; those that tidy paths are not for S3. */
#include "store/http/sigv4.h"

#include "check.h"

static const char empty_sha[] = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

typedef struct vector {
    const char *name, *method, *path;
    dl_pair query[3], headers[8]; /* until a NULL */
    const char *payload, *names, *signature;
} vector;

static size_t count(const dl_pair *pairs, size_t max)
{
    size_t n = 0;
    while (n < max && pairs[n].name)
        n++;
    return n;
}

static void check_vector(const vector *v, const dl_sigv4_scope *scope, const char *date)
{
    char names[256], signature[128];
    dl_buf out;
    dl_sigv4_request r = {.method = v->method,
                          .path = v->path,
                          .query = v->query,
                          .n_query = count(v->query, 3),
                          .headers = v->headers,
                          .n_headers = count(v->headers, 8),
                          .payload = v->payload,
                          .date = date};
    dl_buf_init(&out, 1000);
    CHECK_OK(dl_sigv4_sign(&out, scope, &r));
    print_message("%s\n", v->name);
    snprintf(names, sizeof names, "SignedHeaders=%s,", v->names);
    snprintf(signature, sizeof signature, "Signature=%s", v->signature);
    CHECK_CONTAINS(names, dl_buf_str(&out));
    CHECK_CONTAINS(signature, dl_buf_str(&out));
    CHECK(!strstr(dl_buf_str(&out), scope->secret));
    dl_buf_deinit(&out);
}

TEST(the_examples_of_the_s3_reference_come_out)
{
    static const dl_sigv4_scope scope = {"AWS4", "AKIAIOSFODNN7EXAMPLE",
                                         "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY", "us-east-1",
                                         "s3"};
    static const char host[] = "examplebucket.s3.amazonaws.com", at[] = "20130524T000000Z";
    static const char put_sha[] =
        "44ce7dd67c959e0d3524ffac1771dfbba87d2b6b4b4e99e42034a8b803f8b072";
    const vector vectors[] = {
        {"get object with a range",
         "GET",
         "/test.txt",
         {{NULL, NULL}},
         {{"Host", host},
          {"Range", "bytes=0-9"},
          {"x-amz-content-sha256", empty_sha},
          {"x-amz-date", at}},
         empty_sha,
         "host;range;x-amz-content-sha256;x-amz-date",
         "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41"},
        {"put object with $ in its name",
         "PUT",
         "/test%24file.text",
         {{NULL, NULL}},
         {{"x-amz-storage-class", "REDUCED_REDUNDANCY"},
          {"Date", "Fri, 24 May 2013 00:00:00 GMT"},
          {"Host", host},
          {"x-amz-date", at},
          {"x-amz-content-sha256", put_sha}},
         put_sha,
         "date;host;x-amz-content-sha256;x-amz-date;x-amz-storage-class",
         "98ad721746da40c64f1a55b78f14c238d841ea1380cd77a1b5971af0ece108bd"},
        {"get bucket lifecycle: a name without a value",
         "GET",
         "/",
         {{"lifecycle", ""}},
         {{"Host", host}, {"x-amz-date", at}, {"x-amz-content-sha256", empty_sha}},
         empty_sha,
         "host;x-amz-content-sha256;x-amz-date",
         "fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543"},
        {"list objects: an unsorted query",
         "GET",
         "/",
         {{"prefix", "J"}, {"max-keys", "2"}},
         {{"Host", host}, {"x-amz-date", at}, {"x-amz-content-sha256", empty_sha}},
         empty_sha,
         "host;x-amz-content-sha256;x-amz-date",
         "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7"},
    };
    for (size_t i = 0; i < sizeof vectors / sizeof *vectors; i++)
        check_vector(&vectors[i], &scope, at);
}

static const char suite_at[] = "20150830T123600Z";
#define PLAIN                                                                                      \
    {                                                                                              \
        {"Host", "example.amazonaws.com"},                                                         \
        {                                                                                          \
            "X-Amz-Date", suite_at                                                                 \
        }                                                                                          \
    }
static const vector suite[] = {
    {"get-vanilla",
     "GET",
     "/",
     {{NULL, NULL}},
     PLAIN,
     empty_sha,
     "host;x-amz-date",
     "5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31"},
    {"get-vanilla-query-order-key-case",
     "GET",
     "/",
     {{"Param2", "value2"}, {"Param1", "value1"}},
     PLAIN,
     empty_sha,
     "host;x-amz-date",
     "b97d918cfa904a5beff61c982a1b6f458b799221646efd99d3219ec94cdf2500"},
    {"get-vanilla-query-order-value",
     "GET",
     "/",
     {{"Param1", "value2"}, {"Param1", "value1"}},
     PLAIN,
     empty_sha,
     "host;x-amz-date",
     "5772eed61e12b33fae39ee5e7012498b51d56abc0abb7c60486157bd471c4694"},
    {"get-vanilla-empty-query-key",
     "GET",
     "/",
     {{"Param1", "value1"}},
     PLAIN,
     empty_sha,
     "host;x-amz-date",
     "a67d582fa61cc504c4bae71f336f98b97f1ea3c7a6bfe1b6e45aec72011b9aeb"},
    {"get-vanilla-query-unreserved",
     "GET",
     "/",
     {{"-._~0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz",
       "-._~0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"}},
     PLAIN,
     empty_sha,
     "host;x-amz-date",
     "9c3e54bfcdf0b19771a7f523ee5669cdf59bc7cc0884027167c21bb143a40197"},
    {"get-utf8",
     "GET",
     "/%E1%88%B4",
     {{NULL, NULL}},
     PLAIN,
     empty_sha,
     "host;x-amz-date",
     "8318018e0b0f223aa2bbf98705b62bb787dc9c0e678f255a891fd03141be5d85"},
    {"get-vanilla-utf8-query",
     "GET",
     "/",
     {{"\xe1\x88\xb4", "bar"}},
     PLAIN,
     empty_sha,
     "host;x-amz-date",
     "2cdec8eed098649ff3a119c94853b13c643bcf08f8b0a1d91e12c9027818dd04"},
    {"get-header-value-trim",
     "GET",
     "/",
     {{NULL, NULL}},
     {{"Host", "example.amazonaws.com"},
      {"My-Header1", " value1"},
      {"My-Header2", " \"a   b   c\""},
      {"X-Amz-Date", suite_at}},
     empty_sha,
     "host;my-header1;my-header2;x-amz-date",
     "acc3ed3afb60bb290fc8d2dd0098b9911fcaa05412b367055dee359757a9c736"},
    {"post-vanilla",
     "POST",
     "/",
     {{NULL, NULL}},
     PLAIN,
     empty_sha,
     "host;x-amz-date",
     "5da7c1a2acd57cee7505fc6676e4e544621c30862966e37dddb68e92efbe5d6b"},
    {"post-header-key-sort",
     "POST",
     "/",
     {{NULL, NULL}},
     {{"Host", "example.amazonaws.com"}, {"My-Header1", "value1"}, {"X-Amz-Date", suite_at}},
     empty_sha,
     "host;my-header1;x-amz-date",
     "c5410059b04c1ee005303aed430f6e6645f61f4dc9e1461ec8f8916fdf18852c"},
};
#undef PLAIN

TEST(the_test_suite_of_signature_version_4_comes_out)
{
    static const dl_sigv4_scope scope = {
        "AWS4", "AKIDEXAMPLE", "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY", "us-east-1", "service"};
    for (size_t i = 0; i < sizeof suite / sizeof *suite; i++)
        check_vector(&suite[i], &scope, suite_at);
}

TEST(a_query_is_sorted_by_name_and_escaped)
{
    static const dl_pair query[] = {
        {"a-b", "1"}, {"a", "2"}, {"uploads", ""}, {"p", "+ =:/%&~"}, {"A", "3"}};
    dl_buf out;
    dl_buf_init(&out, 200);
    CHECK_OK(dl_sigv4_query(&out, query, 5));
    CHECK_STR("A=3&a=2&a-b=1&p=%2B%20%3D%3A%2F%25%26~&uploads=", dl_buf_str(&out));
    dl_buf_deinit(&out);
}

TEST(google_signs_the_same_with_other_words)
{
    static const dl_sigv4_scope scope = {"GOOG4", "GOOGKEY", "secret", "auto", "storage"};
    static const dl_pair headers[] = {{"host", "storage.googleapis.com"}};
    dl_sigv4_request r = {.method = "GET",
                          .path = "/",
                          .headers = headers,
                          .n_headers = 1,
                          .payload = "UNSIGNED-PAYLOAD",
                          .date = "20201112T000000Z"};
    dl_buf out;
    dl_buf_init(&out, 400);
    CHECK_OK(dl_sigv4_sign(&out, &scope, &r));
    CHECK_CONTAINS("GOOG4-HMAC-SHA256 Credential=GOOGKEY/20201112/auto/storage/goog4_request,"
                   "SignedHeaders=host,Signature=",
                   dl_buf_str(&out));
    dl_buf_deinit(&out);
}

TEST(dates_and_hashes_are_written_as_the_specification_says)
{
    char date[DL_SIGV4_DATE], hex[DL_SHA256_HEX];
    dl_span spans[] = {{"Welcome to ", 11}, {NULL, 0}, {"Amazon S3.", 10}};
    dl_sigv4_date(date, 1369353600);
    CHECK_STR("20130524T000000Z", date);
    CHECK_OK(dl_sha256_hex(hex, spans, 3));
    CHECK_STR("44ce7dd67c959e0d3524ffac1771dfbba87d2b6b4b4e99e42034a8b803f8b072", hex);
    CHECK_OK(dl_sha256_hex(hex, NULL, 0));
    CHECK_STR(empty_sha, hex);
}

TEST_MAIN(the_examples_of_the_s3_reference_come_out,
          the_test_suite_of_signature_version_4_comes_out, a_query_is_sorted_by_name_and_escaped,
          google_signs_the_same_with_other_words,
          dates_and_hashes_are_written_as_the_specification_says)
