/* record_test.c - diloco_record_walk gives back the lines that the replicas heard. */
#include "toy_run.h"

enum { N = 2 };

typedef struct heard {
    char *text;
    size_t len, n_lines, stop_after;
} heard;

static diloco_status take(void *user, const char *line, size_t len)
{
    heard *h = user;
    h->text = realloc(h->text, h->len + len + 2);
    memcpy(h->text + h->len, line, len);
    h->text[h->len + len] = '\n';
    h->text[h->len + len + 1] = '\0';
    h->len += len + 1;
    return ++h->n_lines == h->stop_after ? DILOCO_ECLOSED : DILOCO_OK;
}

TEST(the_lines_of_all_replicas_come_back_in_their_order)
{
    toy all[N];
    heard h = {.n_lines = 0};
    toy_keep("mem://record-walk");
    toy_crew(all, N, "mem://record-walk", "none");
    toy_set_all(all, N, "trainer.rounds", "3");
    for (int i = 0; i < N; i++)
        toy_keep_record(&all[i]);
    toy_live_all(all, N);
    for (int i = 0; i < N; i++)
        TOY_OK(all[i]);

    CHECK_OK(diloco_record_walk("mem://record-walk", take, &h));
    CHECK_INT(all[0].record_len + all[1].record_len, h.len);
    CHECK_BYTES(all[0].record, h.text, all[0].record_len);
    CHECK_BYTES(all[1].record, h.text + all[0].record_len, all[1].record_len);

    /* Foreign objects and a damaged part do not hide the rest of the record. */
    static const char *const junk[] = {"rec/r0.0000/notes.txt", "rec/0x10",
                                       "rec/r1.0000/0000000009.jsonl.zst"};
    dl_store *store;
    heard again = {.n_lines = 0};
    CHECK_OK(dl_store_open(&store, "mem://record-walk", false));
    for (size_t i = 0; i < sizeof junk / sizeof *junk; i++)
        CHECK_OK(dl_store_create(store, junk[i], &(dl_span){"junk", 4}, 1, NULL, DL_NEVER));
    dl_store_close(store);
    CHECK_OK(diloco_record_walk("mem://record-walk", take, &again));
    CHECK_INT(h.len, again.len);
    free(again.text);

    heard few = {.stop_after = 2};
    CHECK_STATUS(DILOCO_ECLOSED, diloco_record_walk("mem://record-walk", take, &few));
    CHECK_INT(2, few.n_lines);
    free(h.text), free(few.text);
    for (int i = 0; i < N; i++)
        free(all[i].record);
}

TEST(where_there_is_no_run_there_is_no_record)
{
    heard h = {.n_lines = 0};
    toy_keep("mem://record-none");
    CHECK_STATUS(DILOCO_ENOENT, diloco_record_walk("mem://record-none", take, &h));
}

TEST_MAIN(the_lines_of_all_replicas_come_back_in_their_order,
          where_there_is_no_run_there_is_no_record)
