/* backend_test.c - every backend moves bytes alike; the trap backend kills a process that touches
 * its memory from outside. The touching is done by a child process. */
#include "base/config.h"
#include "check.h"
#include "tensor/backend.h"

#include <signal.h>
#include <stdint.h>
#include <sys/wait.h>
#include <unistd.h>

TEST(copies_and_zero_move_bytes_on_every_backend)
{
    for (size_t i = 0; dl_backend_name_at(i); i++) {
        dl_backend *b;
        void *x, *y;
        unsigned char in[100], out[100] = {1};
        CHECK_OK(dl_backend_create(&b, dl_backend_name_at(i)));
        CHECK_OK(dl_backend_alloc(b, &x, 100));
        CHECK_OK(dl_backend_alloc(b, &y, 3 << 20));
        CHECK((uintptr_t)x % 64 == 0 && (uintptr_t)y % 64 == 0);
        dl_backend_copy_out(b, out, (char *)y + (3 << 20) - 100, 100);
        for (int k = 0; k < 100; k++) {
            CHECK_INT(0, out[k]);
            in[k] = (unsigned char)(k * 3);
        }
        dl_backend_copy_in(b, x, in, 100);
        dl_backend_copy_within(b, (char *)y + 7, x, 100);
        dl_backend_zero(b, (char *)y + 7 + 10, 5);
        CHECK_OK(dl_backend_sync(b));
        dl_backend_copy_out(b, out, (char *)y + 7, 100);
        memset(in + 10, 0, 5);
        CHECK_BYTES(in, out, 100);
        dl_backend_release(b, x);
        dl_backend_release(b, y);
        dl_backend_destroy(b);
    }
}

TEST(forgotten_memory_is_nan_on_the_trap_backend_and_stays_on_the_cpu)
{
    for (size_t i = 0; dl_backend_name_at(i); i++) {
        dl_backend *b;
        void *x;
        float out[4];
        CHECK_OK(dl_backend_create(&b, dl_backend_name_at(i)));
        CHECK_OK(dl_backend_alloc(b, &x, sizeof out));
        dl_backend_forget(b, (float *)x + 1, 2 * sizeof out[0]);
        dl_backend_copy_out(b, out, x, sizeof out);
        const bool fills = strcmp(b->ops->name, "trap") == 0;
        CHECK(out[0] == 0 && out[3] == 0);
        for (int k = 1; k < 3; k++)
            CHECK(fills ? isnan(out[k]) : out[k] == 0);
        dl_backend_release(b, x);
        dl_backend_destroy(b);
    }
}

TEST(an_empty_piece_is_a_valid_pointer)
{
    for (size_t i = 0; dl_backend_name_at(i); i++) {
        dl_backend *b;
        void *x;
        CHECK_OK(dl_backend_create(&b, dl_backend_name_at(i)));
        CHECK_OK(dl_backend_alloc(b, &x, 0));
        CHECK(x != NULL);
        dl_backend_release(b, x);
        dl_backend_release(b, NULL);
        dl_backend_destroy(b);
    }
    dl_backend_destroy(NULL);
}

TEST(more_than_there_is_says_how_much)
{
    for (size_t i = 0; dl_backend_name_at(i); i++) {
        dl_backend *b;
        void *x;
        CHECK_OK(dl_backend_create(&b, dl_backend_name_at(i)));
        CHECK_STATUS(DILOCO_ENOMEM, dl_backend_alloc(b, &x, SIZE_MAX - 100));
        CHECK_CONTAINS("18446744073709551515 bytes", diloco_error_text());
        CHECK_STATUS(DILOCO_ENOMEM, dl_backend_alloc(b, &x, (size_t)1 << 60));
        dl_backend_destroy(b);
    }
}

TEST(an_unknown_backend_names_the_known_ones)
{
    dl_backend *b;
    CHECK_STATUS(DILOCO_EINVAL, dl_backend_create(&b, "abacus"));
    CHECK(b == NULL);
    CHECK_CONTAINS("cpu", diloco_error_text());
    CHECK_CONTAINS("trap", diloco_error_text());
}

TEST(a_device_is_the_cpu_or_a_card_by_its_number_or_unknown)
{
    static const char *const cards[] = {"cuda", "cuda:0", "cuda:7", "cuda:12"};
    static const int indexes[] = {0, 0, 7, 12};
    static const char *const unknown[] = {"",       "gpu",     "CUDA",     "cuda:", "cuda:-1",
                                          "cuda:x", "cuda:0 ", "cuda:100", "cudas", "trap"};
    dl_device_list list;
    CHECK_OK(dl_device_of_name(&list, "cpu"));
    CHECK(list.kind == DL_DEVICE_CPU && list.n == 1);
    for (size_t i = 0; i < sizeof cards / sizeof cards[0]; i++) {
        CHECK_OK(dl_device_of_name(&list, cards[i]));
        CHECK(list.kind == DL_DEVICE_CUDA && list.n == 1);
        CHECK_INT(indexes[i], list.cards[0]);
    }
    for (size_t i = 0; i < sizeof unknown / sizeof unknown[0]; i++) {
        CHECK_STATUS(DILOCO_EINVAL, dl_device_of_name(&list, unknown[i]));
        CHECK_CONTAINS("cpu, cuda or cuda:N", diloco_error_text());
    }
}

TEST(a_list_of_cards_has_each_card_once)
{
    static const char *const unknown[] = {"cuda:,",
                                          "cuda:0,",
                                          "cuda:0,,1",
                                          "cuda:0 1",
                                          "cuda:0,1x",
                                          ("cuda:0,1,2,3,4,5,6,7,8,9,10,"
                                           "11,12,13,14,15,16")};
    static const int cards[] = {3, 0, 12};
    dl_device_list list;
    CHECK_OK(dl_device_of_name(&list, "cuda:3,0,12"));
    CHECK(list.kind == DL_DEVICE_CUDA && list.n == 3);
    CHECK_BYTES(cards, list.cards, sizeof cards);
    for (size_t i = 0; i < sizeof unknown / sizeof unknown[0]; i++)
        CHECK_STATUS(DILOCO_EINVAL, dl_device_of_name(&list, unknown[i]));
    CHECK_STATUS(DILOCO_EINVAL, dl_device_of_name(&list, "cuda:1,2,1"));
    CHECK_CONTAINS("names card 1 twice", diloco_error_text());
}

TEST(option_holds_a_list_of_the_most_cards)
{
    static const char most[] = "cuda:10,11,12,13,14,15,16,17,18,19,20,21,22,23,24,25";
    dl_device_list list;
    dl_config *config = malloc(sizeof *config);
    CHECK(config != NULL);
    dl_config_init(config);
    CHECK_OK(dl_config_set(config, "trainer.device", most, "test"));
    CHECK_OK(dl_device_of_name(&list, config->device));
    CHECK_INT(DL_MAX_CARDS, list.n);
    CHECK_INT(25, list.cards[DL_MAX_CARDS - 1]);
    free(config);
}

/* How a child ends that reads a byte: by itself, or by a signal. */
static int end_of_reader(dl_backend *b, const unsigned char *x, int depth)
{
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        signal(SIGSEGV, SIG_DFL);
        for (int i = 0; i < depth; i++)
            b->ops->enter(b);
        for (int i = 0; i < depth - 1; i++)
            b->ops->leave(b);
        _exit(*(const volatile unsigned char *)x == 42 ? 0 : 1);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child);
    return WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status);
}

TEST(the_trap_backend_kills_a_host_that_looks_inside)
{
    dl_backend *b;
    void *x, *y;
    unsigned char byte = 42;
    CHECK_OK(dl_backend_create(&b, "trap"));
    CHECK_OK(dl_backend_alloc(b, &x, 1));
    dl_backend_copy_in(b, x, &byte, 1);
    CHECK_INT(SIGSEGV, end_of_reader(b, x, 0));
    CHECK_INT(0, end_of_reader(b, x, 1)); /* inside an operation */
    CHECK_INT(0, end_of_reader(b, x, 3)); /* they nest */
    b->ops->enter(b);
    CHECK_OK(dl_backend_alloc(b, &y, 1)); /* open now, closed with the rest */
    *(unsigned char *)y = 42;
    b->ops->leave(b);
    CHECK_INT(SIGSEGV, end_of_reader(b, y, 0));
    CHECK_INT(SIGSEGV, end_of_reader(b, x, 0));
    dl_backend_release(b, x);
    dl_backend_release(b, y);
    dl_backend_destroy(b);
}

TEST_MAIN(copies_and_zero_move_bytes_on_every_backend,
          forgotten_memory_is_nan_on_the_trap_backend_and_stays_on_the_cpu,
          an_empty_piece_is_a_valid_pointer, more_than_there_is_says_how_much,
          an_unknown_backend_names_the_known_ones,
          a_device_is_the_cpu_or_a_card_by_its_number_or_unknown,
          a_list_of_cards_has_each_card_once, option_holds_a_list_of_the_most_cards,
          the_trap_backend_kills_a_host_that_looks_inside)
