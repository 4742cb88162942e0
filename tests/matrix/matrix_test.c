/* matrix_test.c - refusal is one pure function of the configuration, compared with rules.txt over
 * the whole matrix.
 *
 *     matrix_test                      a part of all combinations, every example, docs/refusals.md
 *     matrix_test --all                every combination of the axes (minutes)
 *     matrix_test --contract           the tables of docs/contract.md
 *     matrix_test --judge              what is said to each line of settings on stdin: the exit
 * code, then its sentence, or the codes of the warnings matrix_test --markdown docs/refusals.md as
 * it should be
 *
 * A combination of the axes is a number; the values beside it are drawn from that
 * number. Where several rules hold, any of them may be the one that speaks; where none does,
 * nothing may be refused. Of warnings the codes have to be exactly those of the rules that hold.
 * STO-8. */
#include "matrix/table.h"

#include "base/rng.h"
#include "model/model.h"
#include "presets/checks.h"
#include <diloco/train.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PART = 97, MAX_PRESETS = 32, MAX_MISTAKES = 20 };

static table all;
static size_t n_mistakes;

typedef struct combination {
    const value *given[MAX_AXES + 1]; /* beside the preset */
    size_t n_given;
    dl_config config;
    diloco_status preset_status; /* of a preset that is not there */
} combination;

static void settings_text(char *out, size_t cap, const value *const *given, size_t n)
{
    size_t len = 0;
    out[0] = 0;
    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; k < given[i]->n && len < cap; k++)
            len += (size_t)snprintf(out + len, cap - len, " %s=%s", given[i]->settings[k].row->name,
                                    given[i]->settings[k].text);
}

static void mistake(const combination *c, const char *what, const char *detail)
{
    char text[2048];
    settings_text(text, sizeof text, c->given, c->n_given);
    if (n_mistakes++ < MAX_MISTAKES)
        fprintf(stderr, "%s: %s\n    preset=%s%s\n", what, detail, c->config.preset, text);
}

/* ---- a combination ---------------------------------------------------------------------- */

static void must(diloco_status status)
{
    if (!status) return;
    fprintf(stderr, "matrix_test: %s\n", diloco_error_text());
    exit(2);
}

/* The model that table.c knows: three blocks. */
static void set_common(dl_config *config)
{
    static const char *const common[][2] = {
        {"run.store", "runs/x"},
        {"trainer.rounds", "3"},
        {"parameters.model.layers", "3"},
        {"parameters.model.heads", "1"},
        {"parameters.model.channels", "8"},
        {"parameters.model.context", "16"},
    };
    for (size_t i = 0; i < sizeof common / sizeof common[0]; i++)
        must(dl_config_set(config, common[i][0], common[i][1], "common"));
}

static diloco_status base_config(dl_config *config, const char *preset)
{
    dl_config_init(config);
    set_common(config);
    const diloco_status status = diloco_preset_apply(config, preset);
    if (status == DILOCO_EREFUSED) snprintf(config->preset, sizeof config->preset, "%s", preset);
    if (status && status != DILOCO_EREFUSED) must(status);
    return status;
}

static void give(combination *c, const value *v)
{
    c->given[c->n_given++] = v;
    for (size_t i = 0; i < v->n; i++)
        if (strcmp(v->settings[i].row->name, "preset") != 0)
            must(
                dl_config_set(&c->config, v->settings[i].row->name, v->settings[i].text, "matrix"));
}

/* The pure function. */
static diloco_status check(const combination *c)
{
    const dl_sample bytes = {.kind = DL_TOKENS, .length = 16, .classes = 256};
    if (c->preset_status) {
        dl_config room;
        return base_config(&room, c->config.preset); /* words it again */
    }
    DL_TRY(dl_check_config(&c->config));
    return dl_check_model(&c->config, &bytes);
}

/* ---- refusals --------------------------------------------------------------------------- */

static diloco_status status_of(const rule *r)
{
    return r->verb == REFUSED ? DILOCO_EREFUSED : r->verb == INVALID ? DILOCO_EINVAL : DILOCO_OK;
}

static bool speaks(const rule *r, diloco_status status, const char *text)
{
    return status == status_of(r) && strstr(text, r->words) && strstr(text, r->way_out);
}

static void compare_refusal(const combination *c, diloco_status status)
{
    const rule *holds = NULL;
    for (size_t i = 0; i < all.n_rules; i++) {
        const rule *r = &all.rules[i];
        if (r->verb == WARNED || !table_holds(r, &c->config, c->given, c->n_given)) continue;
        if (speaks(r, status, diloco_error_text())) return;
        holds = r;
    }
    if (holds && !status)
        mistake(c, "this is to be refused, and is not", holds->code);
    else if (holds)
        mistake(c, "it is refused in other words", diloco_error_text());
    else if (status)
        mistake(c, "no rule refuses this", diloco_error_text());
}

/* ---- warnings --------------------------------------------------------------------------- */

typedef struct heard {
    const combination *c;
    bool spoken[MAX_RULES];
} heard;

static void hear(void *user, const char *code, const char *text)
{
    heard *h = user;
    bool known = false;
    for (size_t i = 0; i < all.n_rules; i++) {
        const rule *r = &all.rules[i];
        if (r->verb != WARNED || strcmp(r->code, code) != 0) continue;
        if (!table_holds(r, &h->c->config, h->c->given, h->c->n_given)) continue;
        known |= strstr(text, r->words) != NULL;
        h->spoken[i] = true;
    }
    if (!known) mistake(h->c, "no rule warns so", text);
}

static void compare_warnings(const combination *c)
{
    heard h = {.c = c};
    dl_check_warnings(&c->config, hear, &h);
    for (size_t i = 0; i < all.n_rules; i++)
        if (all.rules[i].verb == WARNED && !h.spoken[i] &&
            table_holds(&all.rules[i], &c->config, c->given, c->n_given))
            mistake(c, "no warning was given", all.rules[i].code);
}

/* ---- all of them ------------------------------------------------------------------------ */

static uint64_t size_of_matrix(void)
{
    uint64_t n = 1;
    for (size_t i = 0; i < all.n_axes; i++)
        if (!all.axes[i].beside) n *= all.axes[i].n + (i > 0);
    return n;
}

/* Axis 0 is the preset's, which has no value of its own; of the others value n is "as the preset
 * has it". */
static void compare_one(combination *c, const combination *bases, uint64_t number)
{
    uint64_t rest = number / all.axes[0].n;
    const combination *base = &bases[number % all.axes[0].n];
    uint32_t draw[4];
    *c = *base;
    for (size_t i = 1; i < all.n_axes; i++) {
        const axis *a = &all.axes[i];
        uint64_t at = rest % (a->n + 1);
        if (a->beside) {
            dl_philox(draw, 1, DL_STREAM(DL_STREAM_TEST, i), number);
            at = draw[0] % (a->n + 1);
        } else {
            rest /= a->n + 1;
        }
        if (at < a->n) give(c, &a->values[at]);
    }
    const diloco_status status = check(c);
    compare_refusal(c, status);
    if (!status) compare_warnings(c);
}

static void compare_matrix(uint64_t step)
{
    combination *bases = calloc(MAX_PRESETS, sizeof *bases), *c = malloc(sizeof *c);
    if (!bases || !c) exit(2);
    for (size_t i = 0; i < all.axes[0].n; i++)
        bases[i].preset_status =
            base_config(&bases[i].config, all.axes[0].values[i].settings[0].text);
    uint64_t n = 0;
    for (uint64_t number = 0; number < size_of_matrix(); number += step, n++)
        compare_one(c, bases, number);
    printf("%llu of %llu combinations\n", (unsigned long long)n,
           (unsigned long long)size_of_matrix());
    free(bases), free(c);
}

/* ---- examples --------------------------------------------------------------------------- */

static void combine(combination *c, const value *v)
{
    memset(c, 0, sizeof *c);
    const setting *first = &v->settings[0];
    const bool named = v->n && !strcmp(first->row->name, "preset");
    c->preset_status = base_config(&c->config, named ? first->text : "diloco");
    give(c, v);
}

typedef struct wanted {
    const rule *rule;
    char text[1024];
} wanted;

static void hear_wanted(void *user, const char *code, const char *text)
{
    wanted *w = user;
    if (!strcmp(code, w->rule->code) && strstr(text, w->rule->words))
        snprintf(w->text, sizeof w->text, "%s", text);
}

/* The message for a rule's example; "" where it differs from the rule. */
static void sentence(wanted *out, combination *c, const rule *r)
{
    *out = (wanted){.rule = r};
    combine(c, &r->example);
    const diloco_status status = check(c);
    if (r->verb != WARNED && speaks(r, status, diloco_error_text()))
        snprintf(out->text, sizeof out->text, "%s", diloco_error_text());
    else if (r->verb == WARNED && !status)
        dl_check_warnings(&c->config, hear_wanted, out);
}

static void compare_examples(void)
{
    combination *c = malloc(sizeof *c);
    wanted w;
    if (!c) exit(2);
    for (size_t i = 0; i < all.n_rules; i++) {
        sentence(&w, c, &all.rules[i]);
        if (!w.text[0]) mistake(c, "the example of a rule is not what it says", all.rules[i].code);
        if (all.rules[i].n_conditions &&
            !table_holds(&all.rules[i], &c->config, c->given, c->n_given))
            mistake(c, "the example of a rule is none", all.rules[i].code);
    }
    free(c);
}

/* ---- docs/refusals.md ------------------------------------------------------------------- */

static void print_escaped(FILE *out, const char *text)
{
    for (; *text; text++) {
        if (strchr("|_*<>", *text)) fputc('\\', out);
        fputc(*text, out);
    }
}

static void print_row(FILE *out, combination *c, const rule *r)
{
    static char before[1024]; /* said to the rule before */
    wanted w;
    char settings[1024];
    const value *example = &r->example;
    sentence(&w, c, r);
    if (!strcmp(w.text, before)) return;
    snprintf(before, sizeof before, "%s", w.text);
    settings_text(settings, sizeof settings, &example, 1);
    fprintf(out, "| `%s` | ", settings + 1);
    if (r->verb == WARNED) fprintf(out, "`%s` | ", r->code);
    print_escaped(out, w.text);
    fprintf(out, " |\n");
}

/* Is a rule of docs/contract.md? */
static bool of_contract(const rule *r)
{
    static const char *const begins[] = {"contract_", "clients", "unfaithful_"};
    for (size_t i = 0; i < sizeof begins / sizeof begins[0]; i++)
        if (!strncmp(r->code, begins[i], strlen(begins[i]))) return true;
    return false;
}

static void print_table(FILE *out, int verb, const char *title, const char *about, bool contract)
{
    const bool codes = verb == WARNED;
    combination *c = malloc(sizeof *c);
    if (!c) exit(2);
    fprintf(out, "\n## %s\n\n%s\n\n| for example |%s message |\n|---|%s---|\n", title, about,
            codes ? " code |" : "", codes ? "---|" : "");
    for (size_t i = 0; i < all.n_rules; i++)
        if ((int)all.rules[i].verb == verb && (!contract || of_contract(&all.rules[i])))
            print_row(out, c, &all.rules[i]);
    free(c);
}

static void print_page(FILE *out)
{
    fprintf(
        out,
        "# Refusals and warnings\n\n"
        "Before training, `diloco` refuses or warns about combinations of settings. This page has "
        "each message as it is printed, with an example that causes it. The page is generated by "
        "`matrix_test --markdown` from `tests/matrix/rules.txt`, and a test compares it with the "
        "program over the whole matrix of settings. Messages about data, files and machines are "
        "not here.\n\n"
        "No codec and no exchange topology is refused because of the store: each works over every "
        "store that creates an object exactly once. Each run tests its store for that when it "
        "begins.\n");
    print_table(
        out, REFUSED, "Refused",
        "The program ends with exit code 3 before it writes anything. Each setting is valid "
        "by itself, but together they cannot do what their names say, or are not "
        "implemented.",
        false);
    print_table(out, INVALID, "Invalid",
                "The program ends with exit code 2: a value is missing, or does not fit the "
                "others.",
                false);
    print_table(out, WARNED, "Warned about",
                "The program prints the warning on stderr when training begins. The record has it "
                "as `{\"event\":\"warn\",\"code\":…,\"text\":…}`.",
                false);
}

/* The part of docs/contract.md that contract_test.py compares. */
static void print_contract(FILE *out)
{
    print_table(out, REFUSED, "Refused", "Exit code 3.", true);
    print_table(out, INVALID, "Wrong", "Exit code 2.", true);
    print_table(out, WARNED, "Warned about",
                "On stderr and in the record. With one whose code begins with `unfaithful` the "
                "record says `\"contract\":\"unfaithful\"`.",
                true);
}

static void compare_page(const char *path)
{
    char *text, *page;
    size_t len, page_len = 1 << 20;
    FILE *memory = open_memstream(&text, &len), *f = fopen(path, "r");
    if (!memory || !(page = malloc(page_len))) exit(2);
    print_page(memory);
    fclose(memory);
    page_len = f ? fread(page, 1, page_len, f) : 0;
    if (page_len != len || memcmp(page, text, len) != 0) {
        n_mistakes++;
        fprintf(stderr, "%s is not what is printed: matrix_test --markdown > %s\n", path, path);
    }
    if (f) fclose(f);
    free(text), free(page);
}

/* ---- one -------------------------------------------------------------------------------- */

static void say_code(void *user, const char *code, const char *text)
{
    (void)user, (void)text;
    printf(" %s", code);
}

static void judge(combination *c, const char *line)
{
    static value v;
    table_read_value(&v, line);
    combine(c, &v);
    const diloco_status status = check(c);
    compare_refusal(c, status);
    printf("%d", diloco_exit_code(status));
    if (status)
        printf(" %s", diloco_error_text());
    else
        dl_check_warnings(&c->config, say_code, NULL);
    printf("\n");
    fflush(stdout);
}

static void judge_all(void)
{
    char line[2048];
    combination *c = malloc(sizeof *c);
    if (!c) exit(2);
    while (fgets(line, sizeof line, stdin)) {
        line[strcspn(line, "\n")] = 0;
        judge(c, line);
    }
    free(c);
}

int main(int argc, char **argv)
{
    const char *mode = argc > 1 ? argv[1] : "";
    table_read(&all, "tests/matrix/rules.txt");
    if (!strcmp(mode, "--markdown")) {
        print_page(stdout);
    } else if (!strcmp(mode, "--contract")) {
        print_contract(stdout);
    } else if (!strcmp(mode, "--judge")) {
        judge_all();
    } else {
        compare_examples();
        compare_page("docs/refusals.md");
        compare_matrix(strcmp(mode, "--all") ? PART : 1);
    }
    if (n_mistakes) fprintf(stderr, "%zu mistakes\n", n_mistakes);
    return n_mistakes ? 1 : 0;
}
